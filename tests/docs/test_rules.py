"""The table of rules that SQL repeats: what it names is there, and what SQL says of the core is in it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

import pytest

from tests.docs.pages import ROOT

pytestmark = pytest.mark.every_engine

SOURCE = ROOT / "src" / "headrace"
ENGINES = ("sqlite", "postgres")
NONE = "–"


@dataclass(frozen=True)
class Rule:
    """A row of the table."""

    text: str
    core: str
    places: dict[str, tuple[str, ...]]
    test: str


def rules(page: str) -> list[Rule]:
    """The rows of the table in a page."""
    section = page.partition("## Rules that SQL repeats\n")[2].partition("\n## ")[0]
    found = []
    for line in section.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("|") and len(cells) == 5 and "::" in cells[4]:
            places = {engine: tuple(_code(cell)) for engine, cell in zip(ENGINES, cells[2:4], strict=True)}
            assert all(places[engine] or cell == NONE for engine, cell in zip(ENGINES, cells[2:4], strict=True)), line
            [core], [test] = _code(cells[1]), _code(cells[4])
            found.append(Rule(cells[0], core, places, test))
    return found


def _code(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def place(engine: str, name: str) -> Path:
    """The file of an engine that the table calls by this name."""
    folder = SOURCE / "engines" / engine
    if not name.endswith(".sql"):
        return folder / name
    own, shared = folder / "sql" / name, SOURCE / "engines" / "sql" / "sql" / name
    return own if own.exists() else shared


def missing(rule: Rule) -> list[str]:
    """What a rule names and is not there."""
    module, _, name = rule.core.rpartition(".")
    file, _, test = rule.test.partition("::")
    suite = SOURCE / "conformance" / file
    found = [name for engine, names in rule.places.items() for name in names if not place(engine, name).exists()]
    if not hasattr(import_module(f"headrace.{module}"), name):
        found.append(rule.core)
    if not suite.exists() or not re.search(rf"def {test}\(", suite.read_text(encoding="utf-8")):
        found.append(rule.test)
    return found


RULES = rules((ROOT / "docs" / "engines" / "sql.md").read_text(encoding="utf-8"))


def test_the_table_is_read() -> None:
    assert len(RULES) >= 24
    assert {engine for rule in RULES for engine, names in rule.places.items() if names} == {*ENGINES}


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.text)
def test_what_a_rule_names_is_there(rule: Rule) -> None:
    assert missing(rule) == []


@pytest.mark.parametrize("engine", ENGINES)
def test_every_rule_that_a_statement_names_is_in_the_table(engine: str) -> None:
    named = {(rule.core, name) for rule in RULES for name in rule.places[engine]}
    for file in (*(SOURCE / "engines" / engine / "sql").iterdir(), *(SOURCE / "engines" / "sql" / "sql").iterdir()):
        for core in re.findall(r"\bcore(?:\.[a-z_]+)+\.\w+", file.read_text(encoding="utf-8")):
            assert (core, file.name) in named, f"{file.name} repeats {core}"


def test_a_place_or_test_that_is_not_there_is_found() -> None:
    page = (
        "## Rules that SQL repeats\n| x | `core.lifecycle.claim.pickle` | `no.sql` | – | `jobs/claim.py::test_no` |\n"
    )
    [rule] = rules(page)
    assert missing(rule) == ["no.sql", "core.lifecycle.claim.pickle", "jobs/claim.py::test_no"]
