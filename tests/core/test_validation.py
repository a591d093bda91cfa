"""The numbers of the lifecycle page, and the checks that every door shares."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone
from enum import Enum
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core import defaults, validation
from headrace.core.defaults import Rules
from headrace.errors import ConfigError

KIB = 1024


def test_the_numbers_are_those_of_the_lifecycle() -> None:
    assert (
        defaults.MAX_PAYLOAD_BYTES,
        defaults.MAX_RESULT_BYTES,
        defaults.MAX_DOCUMENT_BYTES,
        defaults.MAX_ERROR_BYTES,
    ) == (
        128 * KIB,
        KIB * KIB,
        16 * KIB,
        16 * KIB,
    )
    assert (
        defaults.MAX_TAGS,
        defaults.MAX_TAG_CHARACTERS,
        defaults.MAX_KEY_CHARACTERS,
        defaults.MAX_NAME_CHARACTERS,
        defaults.MAX_NOTE_CHARACTERS,
    ) == (
        32,
        128,
        512,
        128,
        256,
    )
    assert Rules().error_limit == defaults.MAX_ERROR_BYTES


@given(st.text(st.characters(codec=None)))
def test_text_is_what_every_store_keeps(text: str) -> None:
    odd = "\0" in text or any("\ud800" <= char <= "\udfff" for char in text)
    assert validation.is_text("fine", text) is not odd


def _depth(value: Any) -> int:
    if isinstance(value, dict):
        return 1 + max(map(_depth, value.values()), default=0)
    return 1 + max(map(_depth, value), default=0) if isinstance(value, list) else 0


_LEAF = st.none() | st.text(st.sampled_from('[]{}"\\ax'), max_size=8)
_JSON: st.SearchStrategy[Any] = st.recursive(
    _LEAF,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text("[]{}", max_size=4), inner, max_size=5),
)


@given(_JSON, st.integers(90, 101), st.booleans())
def test_depth_is_counted_whatever_strings_hold(value: Any, more: int, beside: bool) -> None:
    for _ in range(more):
        value = [value]
    if beside:
        value = [value, *([[]] * 200)]
    assert validation.is_too_deep(json.dumps(value).encode()) is (_depth(value) > defaults.MAX_JSON_DEPTH)


@pytest.mark.parametrize(
    "check", [validation.checked_name, validation.checked_key, validation.checked_note], ids=["name", "key", "note"]
)
def test_a_refusal_names_its_subject_and_stays_short(check: Any) -> None:
    for odd in ("x" * 1_000_000, "\0" * 100, 5, b"bytes"):
        with pytest.raises(ConfigError, match=r"^whose must") as caught:
            check(odd, "whose")
        assert len(str(caught.value)) < 600


def test_a_key_may_be_made_of_any_text_and_a_name_is_printable() -> None:
    assert validation.checked_key("line\nbreak \u200d 👩‍👩‍👧", "key")
    with pytest.raises(ConfigError, match="printable"):
        validation.checked_name("line\nbreak", "name")
    assert validation.checked_note("", "by") == ""
    assert validation.checked_note(None, "by") is None


class Odd(str):
    """Which stays what it is, as Django's SafeString does."""

    __slots__ = ()

    def __str__(self) -> str:
        return self


class Moment(datetime): ...


class Id(UUID): ...


class Number(int): ...


@pytest.mark.parametrize("text", [Odd("x"), Enum("Word", {"X": "x"}, type=str).X], ids=["odd", "enum"])  # type: ignore[attr-defined]
def test_every_door_gives_plain_values(text: Any) -> None:
    tags = validation.checked_tags([text], "tags")
    for plain in (
        validation.checked_name(text, "a"),
        validation.checked_key(text, "a"),
        validation.checked_note(text, "a"),
        *tags,
    ):
        assert (type(plain), plain) == (str, "x")
    at = validation.checked_moment(Moment(2026, 1, 2, 3, 4, 5, 6, tzinfo=timezone(timedelta(hours=3))), "at")
    assert (type(at), at) == (datetime, datetime(2026, 1, 2, 0, 4, 5, 6, tzinfo=UTC))
    assert type(validation.plain_id(Id(int=7))) is UUID
    assert type(validation.whole(Number(7), "n", 0)) is int
