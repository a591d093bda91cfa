"""Where a queued job stands: how many go before it, how fast its queue goes, and when it may start by that."""

from __future__ import annotations

from datetime import datetime

import msgspec

from headrace.core.stats.histogram import Quantiles
from headrace.core.status import Status

__all__ = [
    "BY_WORK",
    "MAX_COUNTED_JOBS",
    "PACE_WINDOW_SECONDS",
    "Position",
    "estimate",
    "expected_pace",
    "pace",
    "starts_at_once",
]

PACE_WINDOW_SECONDS = 300.0
"""Seconds over which the pace of a queue is taken."""

MAX_COUNTED_JOBS = 10_000
"""Jobs that are looked at for a count, at most: beyond that nobody needs to know exactly."""

BY_WORK = (Status.COMPLETED, Status.FAILED)
"""How jobs end that were worked on: a queue that is cancelled empty is not a fast one."""

_MIN_RUN_SECONDS = 0.001
"""Seconds: a run that was measured as shorter costs as much around it."""

_MIN_SPAN_SECONDS = 1.0
"""Seconds: what happened within less says nothing of the pace."""


class Position(msgspec.Struct, frozen=True, kw_only=True):
    """The place of a job in its queue, and what the queue did of late; as exact as a look at so many jobs allows."""

    ahead: int
    """How many jobs of its queue are claimed before it; at least as many, if there is ``more``."""
    keyed: int
    """How many of those have a concurrency key, and so may have to wait for their turn."""
    more: bool
    """Whether counting ended before all were seen."""
    ended: int
    """How many jobs of its queue were claimed, and then completed or failed, after ``since``."""
    since: datetime
    """From when on these are counted."""
    first_claimed_at: datetime | None
    """When the first of them was claimed."""


def pace(position: Position, now: datetime) -> float | None:
    """How many jobs of its queue are done in a second; None if none was of late.

    Counted from the first claim on, if that is later: a worker that has just begun is as fast as it has been since.
    """
    if position.ended == 0:
        return None
    begun = position.first_claimed_at
    since = position.since if begun is None else max(position.since, begun)
    return position.ended / max((now - since).total_seconds(), _MIN_SPAN_SECONDS)


def starts_at_once(position: Position, free: int) -> bool:
    """Whether so many free slots are enough for it and those before it."""
    return position.ahead < free and not position.more


def expected_pace(slots: int, takes: Quantiles | None) -> float | None:
    """How many jobs so many slots do in a second, if they take as long as those before did; None if that is unknown."""
    return None if takes is None or slots <= 0 else slots / max(takes.mean, _MIN_RUN_SECONDS)


def estimate(position: Position, now: datetime, free: int, expected: float | None = None) -> float | None:
    """In how many seconds it may start, with so many slots free now; None if there is nothing to estimate it from.

    ``expected``: the pace to go by if none of its queue was done of late. If there are more jobs before it than were
    counted, it is not before that.
    """
    if starts_at_once(position, free):
        return 0.0
    speed = pace(position, now) or expected
    if speed is None or position.ahead < free:
        return None
    return (position.ahead + 1 - free) / speed
