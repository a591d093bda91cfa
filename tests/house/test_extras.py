"""Every extra on offer has code behind it."""

from __future__ import annotations

import ast
import functools
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
IMPORTED_AS = {"opentelemetry_api": "opentelemetry"}
EXTRAS: dict[str, list[str]] = PROJECT["optional-dependencies"]


def libraries(extra: str) -> set[str]:
    """The libraries that an extra brings, by the name they are imported under."""
    names = {re.split(r"[\[<>=!~; ]", line, maxsplit=1)[0].replace("-", "_") for line in EXTRAS[extra]}
    return {IMPORTED_AS.get(name, name) for name in names}


@functools.cache
def used() -> set[str]:
    """What the sources import, also by name and where it is there (``find_spec``, ``sys.modules``)."""
    found: set[str] = set()
    for path in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                found |= {name.name.partition(".")[0] for name in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                found.add(node.module.partition(".")[0])
            elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
                called = ast.unparse(node.func)
                if called in ("importlib.import_module", "find_spec", "sys.modules.get"):
                    found.add(str(node.args[0].value).partition(".")[0])
    return found


@pytest.mark.xdist_group("extras")  # the sources are read once
@pytest.mark.parametrize("extra", sorted(EXTRAS.keys() - {"all"}))
def test_every_library_of_an_extra_is_used(extra: str) -> None:
    assert libraries(extra)
    assert libraries(extra) <= used()


def test_all_is_everything_that_a_running_system_can_use() -> None:
    [line] = EXTRAS["all"]
    named = re.fullmatch(r"headrace\[(.*)\]", line)
    assert named is not None
    assert set(named[1].split(",")) == EXTRAS.keys() - {"all", "conformance"}


def test_every_extra_that_an_error_names_is_offered() -> None:
    named: set[str] = set()
    for path in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "MissingExtra":
                extra = node.args[2]
                assert isinstance(extra, ast.Constant)
                named.add(str(extra.value))
    assert named
    assert named <= EXTRAS.keys()
