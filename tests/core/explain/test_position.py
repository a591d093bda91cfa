"""How fast a queue goes, and when a job may start by that."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from headrace.core.explain.position import PACE_WINDOW_SECONDS, Position, estimate, expected_pace, pace, starts_at_once
from headrace.core.stats.histogram import Quantiles

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


def ago(seconds: float) -> datetime:
    return NOW - timedelta(seconds=seconds)


def position(
    ahead: int = 0,
    ended: int = 0,
    first: float | None = None,
    *,
    more: bool = False,
    window: float = PACE_WINDOW_SECONDS,
) -> Position:
    claimed = None if first is None else ago(first)
    return Position(ahead=ahead, keyed=0, more=more, ended=ended, since=ago(window), first_claimed_at=claimed)


@pytest.mark.parametrize(
    ("found", "per_second"),
    [
        (position(ended=0), None),
        (position(ended=600, first=1000), 2.0),
        (position(ended=1, first=1000), 1 / 300),
        (position(ended=50, first=5), 10.0),  # the worker has only just begun
        (position(ended=30, first=10, window=3), 10.0),  # more ended than were looked at
        (position(ended=5, first=0.001), 5.0),  # too short a time to tell
        (position(ended=5, first=-20), 5.0),  # another clock is ahead
    ],
)
def test_the_pace_of_a_queue(found: Position, per_second: float | None) -> None:
    assert pace(found, NOW) == per_second


@pytest.mark.parametrize(
    ("found", "free", "seconds"),
    [
        (position(ahead=0), 1, 0.0),
        (position(ahead=3), 4, 0.0),
        (position(ahead=3), 3, None),
        (position(ahead=3, ended=600, first=1000), 0, 2.0),
        (position(ahead=3, ended=600, first=1000), 3, 0.5),
        (position(ahead=479, ended=3600, first=400), 0, 40.0),
        (position(ahead=9999, ended=600, first=1000, more=True), 0, 5000.0),
        (position(ahead=3, ended=600, first=1000, more=True), 4, None),
    ],
)
def test_when_it_may_start(found: Position, free: int, seconds: float | None) -> None:
    assert estimate(found, NOW, free) == seconds
    assert starts_at_once(found, free) is (seconds == 0.0)


def test_where_nothing_was_done_of_late_it_goes_by_how_long_runs_take() -> None:
    still = Position(ahead=9, keyed=0, more=False, ended=0, since=NOW, first_claimed_at=None)
    takes = Quantiles(count=3, mean=10.0, p50=9.0, p95=12.0, p99=12.0)
    assert expected_pace(2, takes) == 0.2
    assert estimate(still, NOW, 0, expected_pace(2, takes)) == 50.0
    assert estimate(still, NOW, 0, expected_pace(2, None)) is None
    assert expected_pace(0, takes) is None
