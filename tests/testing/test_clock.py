"""The clock that stands still until it is told to move."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from headrace.testing import FakeClock

START = datetime(2026, 1, 1, tzinfo=UTC)


def test_it_stands_still() -> None:
    clock = FakeClock()
    assert (clock.now(), clock.monotonic()) == (clock.now(), clock.monotonic())


def test_time_passes_on_both_clocks() -> None:
    clock = FakeClock(START)
    before = clock.monotonic()
    clock.advance(1.5, minutes=1, hours=1, days=1)
    assert clock.now() == START + timedelta(days=1, hours=1, minutes=1, seconds=1.5)
    assert clock.monotonic() - before == 86400 + 3600 + 60 + 1.5


def test_a_step_moves_the_wall_clock_alone() -> None:
    clock = FakeClock(START)
    before = clock.monotonic()
    clock.step(-3600)
    assert clock.now() == START - timedelta(hours=1)
    assert clock.monotonic() == before


def test_it_goes_to_a_moment_exactly_and_never_back() -> None:
    clock = FakeClock(START)
    moment = START + timedelta(days=400, microseconds=1)
    clock.advance_to(moment)
    assert clock.now() == moment
    clock.advance_to(START)
    assert clock.now() == moment


def test_it_shows_utc() -> None:
    clock = FakeClock(datetime(2026, 1, 1, 1, tzinfo=ZoneInfo("Europe/Berlin")))
    assert clock.now() == START
    assert clock.now().utcoffset() == timedelta(0)


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(ValueError, match="aware"):
        FakeClock(datetime(2026, 1, 1))  # noqa: DTZ001
    with pytest.raises(ValueError, match="one direction"):
        FakeClock().advance(-1)
