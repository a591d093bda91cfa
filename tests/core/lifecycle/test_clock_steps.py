"""Steps of the store's time: which deadlines they put off, and which of them are on record."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from headrace.core.lifecycle.clock_steps import NOTICE_SECONDS, RECORD_SECONDS, ClockStep, Steps, extended, on_record

NOW = datetime(2026, 1, 1, tzinfo=UTC)
HOUR = 3600.0


def at(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


FORWARD = ClockStep(at(HOUR + 5), HOUR)
"""Noticed when the clock would have shown 00:00:05, and showed 01:00:05."""


@pytest.mark.parametrize("began", [-9 * HOUR, -10, 0, 5, NOTICE_SECONDS])
def test_what_was_counted_from_before_a_step_forward_is_put_off_by_it(began: float) -> None:
    assert extended(at(began + 70), at(began), [FORWARD]) == at(began + 70 + HOUR)


@pytest.mark.parametrize("began", [NOTICE_SECONDS + 6, HOUR, HOUR + 5, 2 * HOUR])
def test_what_was_counted_from_after_it_is_not(began: float) -> None:
    assert extended(at(began + 70), at(began), [FORWARD]) == at(began + 70)


def test_steps_add_up_and_steps_back_put_nothing_off() -> None:
    back, again = ClockStep(at(10), -HOUR), ClockStep(at(HOUR + 20), HOUR)
    assert extended(at(60), at(0), [FORWARD, back, again]) == at(60 + 2 * HOUR)
    assert extended(at(60), at(0), [back]) == at(60)


def test_a_deadline_of_which_nobody_knows_since_when_stays() -> None:
    assert extended(at(60), None, [FORWARD]) == at(60)


def test_what_was_seen_is_put_on_record_once_however_many_saw_it() -> None:
    seen_elsewhere = ClockStep(FORWARD.at + timedelta(seconds=9), HOUR - 0.4)
    assert on_record([], [FORWARD], NOW) == (FORWARD,)
    assert on_record([FORWARD], [seen_elsewhere], NOW) == (FORWARD,)
    assert on_record([FORWARD], [FORWARD], NOW) == (FORWARD,)


def test_two_equal_steps_in_a_row_are_two() -> None:
    second = ClockStep(FORWARD.at + timedelta(seconds=30), HOUR)
    assert on_record([], [FORWARD, second], NOW) == (FORWARD, second)
    assert on_record([FORWARD], [FORWARD, second], NOW) == (FORWARD, second)


@pytest.mark.parametrize(
    "other", [ClockStep(at(HOUR + 5), HOUR / 2), ClockStep(at(2 * HOUR), HOUR), ClockStep(at(HOUR + 5), -HOUR)]
)
def test_another_step_is_another(other: ClockStep) -> None:
    assert set(on_record([FORWARD], [other], NOW)) == {FORWARD, other}


def test_they_are_kept_for_a_month() -> None:
    assert on_record([FORWARD], [], FORWARD.at + timedelta(seconds=RECORD_SECONDS)) == (FORWARD,)
    assert on_record([FORWARD], [FORWARD], FORWARD.at + timedelta(seconds=RECORD_SECONDS + 1)) == ()


def test_the_record_is_json() -> None:
    steps = Steps((FORWARD, ClockStep(NOW, -1.5)))
    assert Steps.from_text(steps.to_text()) == steps
