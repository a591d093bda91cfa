"""The glossary: its words are in order, and those of the inside are words of the code."""

from __future__ import annotations

import re

import pytest

from tests.docs.pages import ROOT

SOURCE = ROOT / "src" / "headrace"


def words(heading: str) -> list[str]:
    """The words that are explained under a heading."""
    page = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
    section = page.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    rows = [line.split("|")[1].strip() for line in section.splitlines() if line.startswith("| ")]
    return rows[1:]


INSIDE = words("Words of the inside")
CODE = "\n".join(
    f"{file.stem}\n{file.read_text(encoding='utf-8')}"
    for file in sorted(SOURCE.rglob("*"))
    if file.suffix in {".py", ".sql"}
).lower()


def test_the_words_are_read_and_none_is_there_twice() -> None:
    users = words("Words you meet as a user")
    assert len(users) > 50
    assert len(INSIDE) > 70
    assert len({*users, *INSIDE}) == len(users) + len(INSIDE)


def test_the_words_of_the_inside_are_in_order() -> None:
    assert sorted(INSIDE, key=str.lower) == INSIDE


@pytest.mark.parametrize("word", [one for cell in INSIDE for one in cell.split(", ")])
def test_a_word_of_the_inside_is_one_of_the_code(word: str) -> None:
    assert re.search(rf"{word.lower()}".replace(" ", "[ _]?"), CODE)


@pytest.mark.parametrize(
    "gone", ["teller", "kin", "lend", "floor", "hold", "ruling", "rulebook", "standing", "twin", "tell"]
)
def test_a_word_that_is_gone_is_not_explained(gone: str) -> None:
    assert gone not in [one for cell in INSIDE for one in cell.split(", ")]
