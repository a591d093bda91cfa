"""Moments and lengths of time in words."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from headrace.core.times import length, moment, time_of_day, told_apart, utc

AT = datetime(2026, 1, 31, 7, 0, 5, 678901, tzinfo=UTC)
INDIA = timezone(timedelta(hours=5, minutes=30))


def test_people_are_told_a_moment_in_their_zone_with_its_offset() -> None:
    assert moment(AT, INDIA) == "2026-01-31 12:30:05+05:30"
    assert moment(AT, INDIA, exact=True) == "2026-01-31 12:30:05.678+05:30"
    assert moment(AT, UTC) == "2026-01-31 07:00:05+00:00"
    assert moment(AT.astimezone(INDIA), UTC) == moment(AT, UTC)


def test_what_people_are_told_can_be_read_back() -> None:
    assert datetime.fromisoformat(moment(AT, INDIA)) == AT.replace(microsecond=0)


def test_a_time_of_day_has_its_offset_unless_that_stands_beside_it() -> None:
    assert time_of_day(AT, INDIA) == "12:30:05.678+05:30"
    assert time_of_day(AT, INDIA, offset=False) == "12:30:05.678"


def test_programs_are_told_utc() -> None:
    assert utc(AT.astimezone(INDIA)) == "2026-01-31T07:00:05.678901Z"


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (-3, "0 s"),
        (0.4, "0 s"),
        (119, "119 s"),
        (120, "2 min"),
        (240, "4 min"),
        (7199, "120 min"),
        (7200, "2 h"),
        (172800, "2 d"),
    ],
)
def test_a_length_is_told_in_one_unit(seconds: float, words: str) -> None:
    assert length(seconds) == words


@pytest.mark.parametrize(
    ("seconds", "words"), [(3600.4, "60 min ahead of"), (-90.0, "90 s behind"), (2.4, "2 s ahead of")]
)
def test_a_wrong_clock_is_told_by_how_far_it_is_from_the_stores(seconds: float, words: str) -> None:
    assert told_apart(seconds) == f"{words} the store's"
