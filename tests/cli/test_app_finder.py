"""From MODULE[:APP] to an App."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.cli.app_finder import find_app
from headrace.errors import ConfigError
from tests.cli.conftest import Shell


@pytest.fixture(autouse=True)
def here(shell: Shell) -> None:
    Path("two_apps.py").write_text("from headrace import App\none = App()\ntwo = App()\n")
    Path("no_app.py").write_text("app = 3\n")
    Path("alias_app.py").write_text("from headrace import App\napp = App()\nsame = app\n")
    Path("broken_app.py").write_text("\nx = 1 / 0\n")
    Path("needy_app.py").write_text("import a_library_nobody_has\n")
    Path("helper_of_broken.py").write_text("def half(x):\n    return x / 0\n\nhalf(3)\n")
    Path("far_app.py").write_text("import helper_of_broken\n")
    Path("unreadable_app.py").write_text("from headrace import App\napp = App(\n")
    Path("far_unreadable_app.py").write_text("import unreadable_app\n")
    Path("missing_name_app.py").write_text("from os import nothing_of_that_name\n")
    Path("misused_app.py").write_text(
        "from headrace import App, Retry\napp = App()\n\n@app.task(retry=Retry(backoff=5))\ndef a(): ...\n"
    )


def test_an_app_is_found_by_name_or_as_the_only_one() -> None:
    assert find_app("quick:app") is find_app("quick")
    assert find_app("alias_app") is find_app("alias_app:same")


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ("two_apps", "several Apps: say two_apps:one, two_apps:two"),
        ("no_app", "holds no App"),
        ("no_app:app", "is no App"),
        ("quick:other", "does not exist; module quick holds quick:app"),
        ("nowhere", "no module named 'nowhere'"),
        ("quick.py", "name the module, not the file: quick"),
        ("./quick.py", "name the module, not the file: quick"),
        ("jobs/quick.py", "name the module, not the file: jobs.quick"),
        ("", "names no App"),
        ("broken_app", r"ZeroDivisionError: division by zero \(.*broken_app.py:2\)"),
        ("needy_app", r"needs 'a_library_nobody_has', which is not installed \(.*needy_app.py:1\)"),
        ("far_app", r"ZeroDivisionError: division by zero \(.*helper_of_broken.py:2\)"),
        ("unreadable_app", r"SyntaxError: '\(' was never closed \(.*unreadable_app.py:2\)"),
        ("far_unreadable_app", r"SyntaxError: '\(' was never closed \(.*unreadable_app.py:2\)"),
        ("missing_name_app", r"ImportError: cannot import name 'nothing_of_that_name'.*\(.*missing_name_app.py:1\)"),
        ("misused_app", r"ConfigError: backoff must be 'exponential', 'fixed', a list.*\(.*misused_app.py:4\)"),
        (":app", "names no App"),
    ],
)
def test_what_cannot_be_found_is_told(where: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        find_app(where)


BROKEN = {
    "broken_app": ["broken_app.py", "x = 1 / 0"],
    "far_app": ["far_app.py", "import helper_of_broken", "half(3)", "return x / 0"],
    "needy_app": ["needy_app.py", "import a_library_nobody_has"],
    "unreadable_app": ["unreadable_app.py", "app = App("],
    "far_unreadable_app": ["far_unreadable_app.py", "import unreadable_app", "app = App("],
    "misused_app": ["misused_app.py", "@app.task(retry=Retry(backoff=5))"],
}


@pytest.mark.parametrize("debug", [(), ("--debug",)], ids=["plain", "debug"])
@pytest.mark.parametrize("name", BROKEN)
def test_an_import_that_fails_shows_the_lines_of_its_own_code_only(
    shell: Shell, name: str, debug: tuple[str, ...]
) -> None:
    said = shell("worker", name, *debug, code=2).stderr
    for words in BROKEN[name]:
        assert words in said
    told = said.partition("The above exception was the direct cause")[0] if debug else said
    for foreign in ("frozen", "importlib", "headrace/cli", "headrace/core"):
        assert foreign not in told
    assert said.splitlines()[-1].startswith(f"error: importing {name!r} failed: ")
    if not debug:
        assert "Traceback" not in said
