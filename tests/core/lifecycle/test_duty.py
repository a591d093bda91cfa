"""Who has a duty, and for how long."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID

from headrace.core.lifecycle.duty import CLOCK_SLACK, FREE, DutyLease, given_back, taken

NOW = datetime(2026, 1, 1, tzinfo=UTC)
ONE, TWO = UUID(int=1), UUID(int=2)
LATER = NOW + timedelta(seconds=30)


def test_a_free_duty_is_taken_with_a_new_token() -> None:
    assert taken(FREE, ONE, 30, NOW) == DutyLease(1, ONE, LATER)


def test_its_holder_renews_it_under_the_same_token_even_when_it_is_late() -> None:
    held = DutyLease(4, ONE, NOW - timedelta(seconds=9))
    assert taken(held, ONE, 30, NOW) == DutyLease(4, ONE, LATER)


def test_another_gets_it_only_when_it_has_run_out() -> None:
    assert taken(DutyLease(4, ONE, NOW + timedelta(microseconds=1)), TWO, 30, NOW) is None
    assert taken(DutyLease(4, ONE, NOW), TWO, 30, NOW) == DutyLease(5, TWO, LATER)


def test_one_that_ends_later_than_it_can_have_been_taken_for_is_void() -> None:
    hour = timedelta(hours=1)
    assert taken(DutyLease(4, ONE, LATER + hour), TWO, 30, NOW) == DutyLease(5, TWO, LATER)
    assert taken(DutyLease(4, ONE, LATER + CLOCK_SLACK), TWO, 30, NOW) is None  # two clocks are never quite alike
    assert taken(DutyLease(4, ONE, LATER + CLOCK_SLACK + timedelta(microseconds=1)), TWO, 30, NOW) == DutyLease(
        5, TWO, LATER
    )
    assert taken(DutyLease(4, ONE, LATER + hour), ONE, 30, NOW) == DutyLease(4, ONE, LATER)


def test_only_its_holder_gives_it_back_and_the_token_stays() -> None:
    held = DutyLease(4, ONE, LATER)
    assert given_back(held, TWO) == held
    assert given_back(held, ONE) == DutyLease(4)
    assert taken(given_back(held, ONE), TWO, 30, NOW) == DutyLease(5, TWO, LATER)
