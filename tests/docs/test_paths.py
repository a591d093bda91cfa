"""The pages about the inside, and the drawings, name files and folders that are there."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import pytest

from docs import drawings
from tests.docs.pages import ROOT, blocks, name, prose

SOURCE = ROOT / "src" / "headrace"
INSIDE = [
    ROOT / "CONTRIBUTING.md",
    ROOT / "docs" / "architecture.md",
    ROOT / "docs" / "glossary.md",
    *sorted((ROOT / "docs" / "engines").glob("*.md")),
    *sorted((ROOT / "docs" / "decisions").glob("*.md")),
]
USERS = frozenset({"headrace.toml", "site/"})
"""Files that a user has, or that make writes; the project has none of them."""

_CODE = re.compile(r"`([^`\n]+)`")
_PATH = re.compile(r"[\w./-]+\.(?:py|sql|svg|md|toml)|(?:[\w-]+/)+|(?:tests|docs|src|examples|bench)/[\w./-]+")
_BY_RULES = re.compile(r"^\|.*::test_.*\|$", re.MULTILINE)
"""Rows of the table of rules that SQL repeats: ``test_rules.py`` knows where the places in them are."""
_IN_EACH = frozenset({"sql/", "jobs/", "store/"})
"""Folders of which each SQL engine has one."""


def paths(text: str) -> set[str]:
    """The files and folders that a page names in backticks."""
    named = _CODE.findall(_BY_RULES.sub("", prose(text)))
    return {code for code in named if _PATH.fullmatch(code)} - USERS - _IN_EACH


def missing(named: set[str]) -> list[str]:
    """Those that are neither in the project nor in the package."""
    return sorted(path for path in named if not any((base / path).exists() for base in (ROOT, SOURCE.parent, SOURCE)))


@pytest.mark.parametrize("page", INSIDE, ids=name)
def test_what_a_page_names_is_there(page: Path) -> None:
    assert missing(paths(page.read_text(encoding="utf-8"))) == []


def test_the_paths_of_architecture_are_read() -> None:
    named = paths((ROOT / "docs" / "architecture.md").read_text(encoding="utf-8"))
    assert {"core/", "engine/", "runtime/store_clock.py", "docs/drawings.py"} <= named


def test_the_paths_of_the_sql_engines_are_read() -> None:
    named = paths((ROOT / "docs" / "engines" / "sql.md").read_text(encoding="utf-8"))
    assert {"core/job.py", "engines/sql/", "engines/sqlite/store/thread.py"} <= named
    assert len(named) > 20


def test_a_path_that_is_not_there_is_found() -> None:
    page = "`core/pickle.py` and `app.py`, `no/`, `tests/nowhere`, `core.claim.pick`, `--url`\n```\n`x.py`\n```\n"
    assert missing(paths(page)) == ["core/pickle.py", "no/", "tests/nowhere"]


@pytest.mark.parametrize("page", INSIDE, ids=name)
def test_what_a_page_names_of_the_core_is_there(page: Path) -> None:
    named = set(re.findall(r"`(core(?:\.\w+)+)`", page.read_text(encoding="utf-8")))
    assert [one for one in sorted(named) if not is_there(one)] == []


def is_there(dotted: str) -> bool:
    """Whether this is a module of the package, or something in one."""
    module, _, last = f"headrace.{dotted}".rpartition(".")
    try:
        return hasattr(import_module(module), last) or import_module(f"{module}.{last}") is not None
    except ModuleNotFoundError:
        return False


def test_a_name_of_the_core_that_is_not_there_is_found() -> None:
    assert is_there("core.lifecycle.liveness")
    assert is_there("core.limits.selection.select_jobs")
    assert not is_there("core.limits.selection.deel")
    assert not is_there("core.limits.pickle")


@pytest.mark.parametrize("drawing", drawings.DRAWINGS)
def test_a_drawing_is_what_the_script_draws_now(drawing: str) -> None:
    made = drawings.DRAWINGS[drawing]().svg()
    assert (drawings.IMAGES / drawing).read_text(encoding="utf-8") == made, "make docs"


@pytest.mark.parametrize("drawing", drawings.DRAWINGS)
def test_what_a_drawing_names_is_there(drawing: str) -> None:
    texts = re.findall(r"<text[^>]*>([^<]*)</text>", drawings.DRAWINGS[drawing]().svg())
    named = {word.strip(",:;") for text in texts for word in text.split()}
    named = {word for word in named if _PATH.fullmatch(word)}
    assert len(named) > 15
    within = [SOURCE, *(SOURCE / package for package in ("core", "engines", "client", "runtime"))]
    assert [path for path in sorted(named) if not any((base / path).exists() for base in within)] == []


def test_the_layers_are_all_of_the_root() -> None:
    drawn = {name for layer in drawings.layers() for name in layer}
    there = {path.stem for path in SOURCE.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert drawn == there - {"__init__"}


def test_a_text_that_does_not_fit_its_box_is_found() -> None:
    for line in (("word", "far too many words for such a box"), ("name", "x")):
        with pytest.raises(drawings.DoesNotFit):
            list(drawings.Box(0, 0, 90, 20, "plain", [line]).svg())


def test_drawings_need_nothing_from_elsewhere() -> None:
    for drawing in drawings.DRAWINGS:
        source = (drawings.IMAGES / drawing).read_text(encoding="utf-8")
        assert re.findall(r"https?://[^\"\s]+", source) == ["http://www.w3.org/2000/svg"]
        assert "prefers-color-scheme: dark" in source


def test_the_layers_of_contributing_are_those_of_the_linter() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    [listed] = [block.body for block in blocks(text) if "errors" in block.body.split()]
    assert [set(line.split(", ")) for line in listed.splitlines()] == [set(layer) for layer in drawings.layers()]
