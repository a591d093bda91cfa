"""What is spelled out before it reaches a terminal or a log."""

from __future__ import annotations

import json
import unicodedata
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.control_characters import indented, printable, printable_json
from tests.support.hostile import SPELLED, WICKED, raw_in

CONTROLS = [chr(code) for code in range(0x10000) if unicodedata.category(chr(code)) == "Cc"]
BIDI = [
    chr(code)
    for code in range(0x10000)
    if unicodedata.bidirectional(chr(code)) in ("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI")
]
MARKS = ["\u200e", "\u200f", "\u061c", "\u2028", "\u2029"]


@pytest.mark.parametrize("sign", [*CONTROLS, *BIDI, *MARKS], ids=ascii)
def test_every_control_character_is_spelled_out(sign: str) -> None:
    assert printable(f"a{sign}b") == f"a{ascii(sign)[1:-1]}b"
    assert printable(sign, lines=True) == (sign if sign in "\n\t" else ascii(sign)[1:-1])


def test_what_is_harmless_stays() -> None:
    text = "naïve 日本語 \u00a0\u3000 👩‍👩‍👧 عربي עברית ~ \\x1b"
    assert printable(text) == text
    assert printable_json(json.dumps(text, ensure_ascii=False)) == json.dumps(text, ensure_ascii=False)


def test_a_wicked_text_can_be_read() -> None:
    assert printable(WICKED).startswith(SPELLED)
    assert "\n" not in printable(WICKED)
    assert list(raw_in(printable(WICKED, lines=True))) == []


def test_half_of_a_character_can_be_written() -> None:
    assert printable("a\ud83d").encode() == b"a\\ud83d"


@given(st.recursive(st.text() | st.integers() | st.none(), lambda one: st.lists(one) | st.dictionaries(st.text(), one)))
def test_json_says_the_same(value: Any) -> None:
    text = printable_json(json.dumps(value, ensure_ascii=False))
    assert json.loads(text) == value
    assert list(raw_in(text)) == []


def test_only_the_first_line_begins_at_the_margin() -> None:
    assert indented("a\nb\n\nc") == "a\n    b\n    \n    c"
    assert indented("a") == "a"
