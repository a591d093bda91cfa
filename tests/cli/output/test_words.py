"""Small values as words."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from headrace.cli.output.words import ago, compact, cut, short, span

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "0 ms"),
        (0.0123, "12 ms"),
        (0.9996, "1.0 s"),
        (2.14, "2.1 s"),
        (59.97, "1 m"),
        (75, "1 m 15 s"),
        (3600, "1 h"),
        (7505, "2 h 5 m"),
        (90000, "1 d 1 h"),
        (-2, "-2.0 s"),
    ],
)
def test_a_span_has_at_most_two_units(seconds: float, words: str) -> None:
    assert span(seconds) == words


@pytest.mark.parametrize(
    ("seconds", "words"), [(0.2, "now"), (5, "5 s ago"), (-90, "in 2 m"), (7200, "2 h ago"), (86400 * 3, "3 d ago")]
)
def test_how_far_away_a_moment_is(seconds: float, words: str) -> None:
    assert ago(NOW - timedelta(seconds=seconds), NOW) == words


def test_an_id_is_told_by_its_end() -> None:
    assert short(UUID("01990000-0000-7000-8000-0000deadbeef")) == "deadbeef"
    assert short(None) == ""


def test_texts_are_cut_to_one_line() -> None:
    assert cut("a\n  b", 10) == "a b"
    assert cut("abcdef", 4) == "abc…"
    assert compact({"ö": [1, None]}) == '{"ö": [1, null]}'
