"""What is imported when: nobody pays for a framework that they do not use, and a missing one is said in a line."""

from __future__ import annotations

import subprocess
import sys

import pytest

_CORE = (
    "request",
    "submit",
    "status",
    "responses",
    "dependencies",
    "task_adapter",
    "arguments",
    "routes",
    "wsgi",
    "retry_after",
)


def run(program: str) -> str:
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def test_neither_headrace_nor_the_core_imports_a_framework() -> None:
    modules = ", ".join(f"headrace.endpoints.{name}" for name in _CORE)
    frameworks = "{'fastapi', 'starlette', 'pydantic', 'django', 'flask'}"
    printed = run(f"import sys, headrace, {modules}\nprint({frameworks} & sys.modules.keys())")
    assert printed.strip() == "set()"


@pytest.mark.parametrize(
    ("framework", "module"),
    [
        ("fastapi", "headrace.endpoints.fastapi"),
        ("starlette", "headrace.endpoints.starlette"),
        ("flask", "headrace.endpoints.flask"),
        ("django", "headrace.contrib.django"),
    ],
)
def test_a_missing_framework_is_said_in_one_line(framework: str, module: str) -> None:
    printed = run(
        "import sys\n"
        f"sys.modules[{framework!r}] = None\n"
        "from headrace.errors import MissingExtra\n"
        f"try:\n    import {module}\n"
        "except MissingExtra as error:\n    print(error)"
    )
    assert printed.strip() == (f'{module} needs {framework}: pip install "headrace[{framework}]"')
