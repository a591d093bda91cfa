"""The page of problems names every type that the hub can answer, with its status."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from headrace.http.problems import _KINDS
from tests.docs.pages import ROOT

PAGE = (ROOT / "docs" / "guides" / "problems.md").read_text(encoding="utf-8")
BY_STATUS = ("failed", "cancelled")
"""How a job ended is the word."""


def raised() -> Iterator[tuple[str, int]]:
    """The types and statuses of problems that are made in the sources."""
    yield from ((kind, status) for _, status, kind, _ in _KINDS)
    rooms = [ROOT / "src" / "headrace" / room for room in ("hub", "endpoints", "http")]
    for module in (module for room in rooms for module in room.rglob("*.py")):
        for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Problem":
                status, kind = (one.value if isinstance(one, ast.Constant) else None for one in node.args[:2])
                if isinstance(status, int) and isinstance(kind, str):
                    yield kind, status
            yield from written(node)


def written(node: ast.AST) -> Iterator[tuple[str, int]]:
    """Those of answers that are written as bytes, whole or by ``_problem``."""
    if isinstance(node, ast.Constant) and isinstance(node.value, bytes):
        for kind in re.findall(rb"/problems/([\w-]+)", node.value):
            (status,) = re.findall(rb'"status":(\d+)', node.value)
            yield kind.decode(), int(status)
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "_problem":
        given = [one.value for one in node.args if isinstance(one, ast.Constant) and isinstance(one.value, bytes)]
        if given:
            yield given[1].decode(), int(given[0].split()[0])


def listed() -> dict[str, set[int]]:
    """What the page says."""
    rows = [row.split("|")[1:3] for row in PAGE.splitlines() if row.startswith("| `")]
    return {
        kind: {int(status) for status in re.findall(r"\d+", statuses)}
        for kinds, statuses in rows
        for kind in re.findall(r"`([\w-]+)`", kinds)
    }


def test_every_type_is_on_the_page_with_its_status() -> None:
    page = listed()
    assert {one for one in raised() if one[1] not in page.get(one[0], ())} == set()


def test_no_other_type_is_on_the_page() -> None:
    made = {kind for kind, _ in raised()} | {*BY_STATUS, "method"}
    assert set(listed()) - made == set()
