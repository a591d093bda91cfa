"""The page about the architecture: every file and name in its traces and in "to change X, edit Y" is there."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.docs.pages import ROOT

SOURCE = ROOT / "src" / "headrace"
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
LONGEST = 150
TRACES = ("Submit", "Finish", "HTTP submit", "Remote finish")

_CODE = re.compile(r"`([^`\n]+)`")
_PLACE = re.compile(r"(?P<path>[\w/*.-]+\.\w+)(?::(?P<name>\w+(?:\.\w+)*))?")
_STEP = re.compile(r"^\d+\. (`.+)$")


@dataclass(frozen=True)
class Row:
    """One change, and the places where it is made."""

    change: str
    places: tuple[str, ...]


def section(page: str, title: str) -> str:
    """What stands beneath a heading."""
    return page.partition(f"## {title}\n")[2].partition("\n## ")[0]


def rows(page: str) -> list[Row]:
    """The table "To change X, edit Y"."""
    found = []
    for line in section(page, "To change X, edit Y").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| ") and cells != ["to change", "edit"]:
            found.append(Row(cells[0], tuple(_CODE.findall(cells[1]))))
    return found


def traces(page: str) -> dict[str, list[str]]:
    """The steps of each trace, in their order."""
    found: dict[str, list[str]] = {}
    for part in section(page, "Four traces").split("\n**")[1:]:
        title, _, rest = part.partition(".**")
        found[title] = [code for line in rest.splitlines() if _STEP.match(line) for code in _CODE.findall(line)[:1]]
    return found


def missing(place: str) -> str | None:
    """What is wrong with a place: it has no such form, there is no such file, or no such name in it."""
    form = _PLACE.fullmatch(place)
    if form is None:
        return f"{place}: not FILE or FILE:NAME"
    files = [file for base in (SOURCE, ROOT) for file in sorted(base.glob(form["path"]))]
    if not files:
        return f"{place}: no such file"
    name: str | None = form["name"]
    if name is None or any(has(file, name) for file in files):
        return None
    return f"{place}: no such name"


def has(file: Path, name: str) -> bool:
    """Whether a module defines this function, class, method, field or constant."""
    body: list[ast.stmt] = ast.parse(file.read_text(encoding="utf-8")).body
    *outer, last = name.split(".")
    for part in outer:
        inner = [node for node in body if isinstance(node, ast.ClassDef) and node.name == part]
        if not inner:
            return False
        body = inner[0].body
    return any(last in _defined(node) for node in body)


def _defined(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return [target.id for target in targets if isinstance(target, ast.Name)]


def test_the_page_is_short() -> None:
    assert len(PAGE.splitlines()) <= LONGEST


def test_the_table_has_forty_changes() -> None:
    found = rows(PAGE)
    assert len(found) == len({row.change for row in found}) == 40


@pytest.mark.parametrize("row", rows(PAGE), ids=lambda row: row.change)
def test_what_a_change_touches_is_there(row: Row) -> None:
    assert row.places
    assert [wrong for place in row.places if (wrong := missing(place))] == []
    assert any(":" in place for place in row.places), "a row names functions or classes, not only files"


def test_the_four_traces_are_read() -> None:
    assert tuple(traces(PAGE)) == TRACES


@pytest.mark.parametrize("title", TRACES)
def test_each_step_of_a_trace_is_a_function_that_is_there(title: str) -> None:
    steps = traces(PAGE)[title]
    assert len(steps) >= 6
    assert [wrong for step in steps if (wrong := missing(step))] == []
    assert [step for step in steps if ":" not in step] == []


def test_a_file_or_name_that_is_not_there_is_found() -> None:
    page = (
        "## To change X, edit Y\n\n| to change | edit |\n|---|---|\n"
        "| the retries | `core/lifecycle/retry.py:Retry.colour` `core/pickle.py` `core/lifecycle/retry.py:Retry` |\n"
        "| a claim | `engines/*/jobs/claim.py:pickle` `engines/*/jobs/claim.py:Claiming.claim` `claim it` |\n"
        "## Next\n| no | `row.py` |\n"
    )
    assert [[missing(place) for place in row.places] for row in rows(page)] == [
        ["core/lifecycle/retry.py:Retry.colour: no such name", "core/pickle.py: no such file", None],
        ["engines/*/jobs/claim.py:pickle: no such name", None, "claim it: not FILE or FILE:NAME"],
    ]


def test_a_step_that_is_not_there_is_found() -> None:
    page = "## Four traces\n\n**Submit.** It goes so:\n\n1. `client/task.py:Task.submit` calls `x`\n2. `no.py:f`\n"
    assert traces(page) == {"Submit": ["client/task.py:Task.submit", "no.py:f"]}
    assert [missing(step) for step in traces(page)["Submit"]] == [None, "no.py:f: no such file"]
