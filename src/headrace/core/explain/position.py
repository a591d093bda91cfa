"""The position of a queued job: how many jobs go before it, how fast its queue moves, and when it may start by that."""

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
"""Seconds over which the pace of a queue is measured."""

MAX_COUNTED_JOBS = 10_000
"""Maximum jobs that are counted: beyond that the exact number does not matter."""

BY_WORK = (Status.COMPLETED, Status.FAILED)
"""How jobs end that were worked on: a queue that empties because its jobs are cancelled is not fast."""

_MIN_RUN_SECONDS = 0.001
"""Seconds: a shorter run has as much overhead around it."""

_MIN_SPAN_SECONDS = 1.0
"""Seconds: a shorter span says nothing about the pace."""


class Position(msgspec.Struct, frozen=True, kw_only=True):
    """The position of a job in its queue, and the queue's recent pace; as exact as the counted jobs allow."""

    ahead: int
    """How many jobs of its queue are claimed before it; at least as many, if there is ``more``."""
    keyed: int
    """How many of those have a concurrency key, and so may have to wait."""
    more: bool
    """Whether counting ended before all were seen."""
    ended: int
    """How many jobs of its queue were claimed, and then completed or failed, after ``since``."""
    since: datetime
    """From when on these are counted."""
    first_claimed_at: datetime | None
    """When the first of them was claimed."""


def pace(position: Position, now: datetime) -> float | None:
    """Return how many jobs of its queue are done in a second; None if none was recently.

    It counts from the first claim, if that is later: a worker that has just begun is measured from its beginning.
    """
    if position.ended == 0:
        return None
    begun = position.first_claimed_at
    since = position.since if begun is None else max(position.since, begun)
    return position.ended / max((now - since).total_seconds(), _MIN_SPAN_SECONDS)


def starts_at_once(position: Position, free: int) -> bool:
    """Return whether so many free slots are enough for it and those before it."""
    return position.ahead < free and not position.more


def expected_pace(slots: int, takes: Quantiles | None) -> float | None:
    """Return how many jobs so many slots do in a second, if runs take as long as before; None if that is unknown."""
    return None if takes is None or slots <= 0 else slots / max(takes.mean, _MIN_RUN_SECONDS)


def estimate(position: Position, now: datetime, free: int, expected: float | None = None) -> float | None:
    """Return in how many seconds it may start, with so many slots free now; None if that cannot be estimated.

    ``expected``: the pace to use if none of its queue was done recently. If more jobs are before it than were counted,
    the estimate is a lower bound.
    """
    if starts_at_once(position, free):
        return 0.0
    speed = pace(position, now) or expected
    if speed is None or position.ahead < free:
        return None
    return (position.ahead + 1 - free) / speed
