"""The docstring of a package says what is here, where to begin, and what it may import."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "headrace"
PACKAGES = sorted(file.parent for file in SOURCE.rglob("__init__.py"))
_BEGIN = re.compile(r"Begin\s+with\s+(?P<where>[^.]+)\.")
_NAME = re.compile(r"``(\w+)``")
SMALL = 2
"""A package with fewer modules needs no such words: one sentence says it all."""


def modules(package: Path) -> set[str]:
    """The names of what a package holds."""
    files = {file.stem for file in package.glob("*.py")} - {"__init__"}
    return files | {folder.name for folder in package.iterdir() if (folder / "__init__.py").exists()}


def faults(text: str, held: set[str]) -> list[str]:
    """What the docstring of a package with these modules lacks, or names and is not there."""
    found = []
    first = text.partition("\n")[0]
    if not first.endswith((".", "…")):
        found.append("its first line is no sentence")
    if len(held) >= SMALL:
        begin = _BEGIN.search(text)
        if begin is None:
            found.append("it does not say where to begin")
        else:
            found += [f"{name} is not here" for name in _NAME.findall(begin["where"]) if name not in held]
        if not re.search(r"May\s+import\s", text):
            found.append("it does not say what it may import")
    return found


def docstring(package: Path) -> str:
    """What the package says of itself."""
    return ast.get_docstring(ast.parse((package / "__init__.py").read_text(encoding="utf-8"))) or ""


@pytest.mark.parametrize("package", PACKAGES[1:], ids=lambda package: package.relative_to(SOURCE).as_posix())
def test_a_package_says_what_is_here(package: Path) -> None:
    assert faults(docstring(package), modules(package)) == []


def test_the_root_says_where_to_begin() -> None:
    assert faults(docstring(SOURCE) + " May import all.", modules(SOURCE)) == []


def test_a_docstring_that_says_too_little_is_found() -> None:
    held = {"fetcher", "buffer"}
    assert faults("Claims jobs.\n\nBegin with ``fetcher``. May import ``runtime``.", held) == []
    assert faults("Claims jobs.\n\nBegin with ``fetch``. May import ``runtime``.", held) == ["fetch is not here"]
    assert faults("Claims", held) == [
        "its first line is no sentence",
        "it does not say where to begin",
        "it does not say what it may import",
    ]
    assert faults("Claims jobs.", {"fetcher"}) == []
