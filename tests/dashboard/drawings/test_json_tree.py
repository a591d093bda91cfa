"""JSON as a tree that folds."""

from __future__ import annotations

from typing import Any

from headrace.dashboard.drawings.json_tree import (
    MAX_DOCUMENT_CHARACTERS,
    MAX_LISTED_CHARACTERS,
    MAX_MEMBERS,
    parsed,
    pretty,
    tree,
    tree_of_many,
)


def test_values_are_escaped_wherever_they_stand() -> None:
    html = tree({"<b>": ["</details><script>", {"'\"": None}], "n": 1.5, "t": True})
    assert "<script>" not in html
    assert "<b>" not in html
    assert "&lt;b&gt;" in html
    assert '<span class="number">1.5</span>' in html
    assert '<span class="word">true</span>' in html


def test_what_is_much_is_folded_or_cut() -> None:
    html = tree({"long": "x" * 1000, "many": list(range(MAX_MEMBERS + 5))})
    assert "1,000 characters" in html
    assert "… 5 more" in html
    deep: Any = 1
    for _ in range(200):
        deep = [deep]
    assert tree(deep).count("<details") < 50


def test_a_document_that_is_too_large_is_shown_from_its_beginning() -> None:
    text = '"' + "<" * (MAX_DOCUMENT_CHARACTERS + 10) + '"'
    html = tree(parsed(text))
    assert "&lt;&lt;" in html
    assert f"{len(text):,} characters" in html
    assert parsed(None) is None
    assert tree(parsed("{}")) == '<div class="json"><span class="word">{}</span></div>'


def test_a_text_is_laid_out_to_be_edited() -> None:
    assert pretty('{"a":1}') == '{\n  "a": 1\n}'


def test_one_of_many_takes_little_room() -> None:
    assert tree_of_many({"a": 1}) == tree({"a": 1})
    html = tree_of_many({"<b>": "x" * 1_000_000})
    assert len(html) < 2 * MAX_LISTED_CHARACTERS
    assert "<b>" not in html
