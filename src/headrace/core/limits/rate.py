"""Rates: how many jobs may begin in a span of time, and when the next one may.

A claim gives a permit, and the handler is called a little later. So a permit comes with a *lead*: the handler is called
within [claim, claim + lead], or not at all. The permit is spent as of the end of that span, and whether there is one is
judged as of its beginning. Wherever the calls fall within their spans, the promise of each kind then holds:

- ``fixed``: at most ``limit`` calls in each window. A permit counts in every window that its span touches.
- ``sliding``: at most ``limit`` calls in any ``per`` seconds.
- ``bucket``: at most ``limit * (1 + T / per)`` calls in any ``T`` seconds.

Why: let p be the last permit given of those with calls in one window. Each other one of them still counts at the moment
p was given, since it counts until its call is out of every window that p's call can be in. (A bucket: k permits before
p have postponed the moment when it is full again to at least k steps after the first call.)
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal

from headrace.core.times import Seconds, seconds
from headrace.core.validation import plain, whole
from headrace.errors import ConfigError, shown

__all__ = ["MAX_LEAD_SECONDS", "Rate", "Spent", "micros", "next_permit", "permits", "spend", "trimmed"]

MAX_LEAD_SECONDS = 30.0
"""Maximum seconds between a claim and the call of a handler that spent a permit."""

Spent = tuple[tuple[datetime, int], ...]
"""Used permits: until when, and how many. Of a bucket: when it will be full again."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICRO = timedelta(microseconds=1)
_WINDOW_PARTS = 60
"""A sliding window remembers what was used in so many parts."""
_CLAIM_SPREAD_MICROSECONDS = 2 * round(MAX_LEAD_SECONDS * 1_000_000)
"""By how much later another claim may have spent its permits: leads differ, and claims overtake each other."""


@dataclass(frozen=True, slots=True, init=False)
class Rate:
    """A rate limit: at most ``limit`` jobs start in ``per`` seconds.

    ``fixed``: in each span, counted from 1970-01-01 UTC. ``sliding``: in any span. ``bucket``: a token bucket.
    """

    limit: int
    per: float
    kind: Literal["fixed", "sliding", "bucket"]
    keyed: bool
    """Whether each concurrency key has a rate of its own."""

    def __init__(
        self,
        limit: int,
        *,
        per: Seconds,
        kind: Literal["fixed", "sliding", "bucket"] = "fixed",
        keyed: bool = False,
    ) -> None:
        """
        :raises ConfigError: naming the argument
        """
        count = whole(limit, "Rate: limit", 1)
        span = seconds(per, "Rate: per")
        if span < 0.001:
            raise ConfigError(f"Rate: per must be at least a millisecond, not {shown(per)}")
        if kind not in ("fixed", "sliding", "bucket"):
            raise ConfigError(f"Rate: kind must be 'fixed', 'sliding' or 'bucket', not {shown(kind)}")
        for name, value in (("limit", count), ("per", span), ("kind", plain(kind)), ("keyed", bool(keyed))):
            object.__setattr__(self, name, value)


def micros(moment: datetime) -> int:
    """Return the microseconds since 1970."""
    return (moment - _EPOCH) // _MICRO


def _moment(micros: int) -> datetime:
    return _EPOCH + timedelta(microseconds=micros)


def _span(rate: Rate) -> int:
    return max(round(rate.per * 1_000_000), _WINDOW_PARTS)


def _freed(rate: Rate, at: int, lead: int = 0) -> int:
    """Return until when a permit counts that is used between this moment and the end of the lead."""
    span, end = _span(rate), at + lead
    # A long lead is counted in larger parts, so that there are never many to remember.
    if rate.kind == "fixed":
        windows = span * (1 + lead // (span * _WINDOW_PARTS))
        return (end // windows + 1) * windows
    grain = span // _WINDOW_PARTS * (1 + lead // span)
    return -(-(end + span) // grain) * grain  # up to the next grain: a little later, never too early


def _last(rate: Rate, at: int) -> int:
    """Return the latest moment until which anything spent by now can count. What counts for longer was spent before the
    clock was set back, or when the window was longer."""
    return (
        at + _CLAIM_SPREAD_MICROSECONDS + _span(rate)
        if rate.kind == "bucket"
        else _freed(rate, at + _CLAIM_SPREAD_MICROSECONDS)
    )


def _kept(rate: Rate, spent: Spent, at: int) -> list[tuple[int, int]]:
    """Return what still counts of what was spent; what counts for too long, as if it were spent now."""
    last = _last(rate, at)
    found = ((micros(until), count) for until, count in spent)
    return [(until if until <= last else _freed(rate, at), count) for until, count in found if until > at]


def _full(rate: Rate, spent: Spent, at: int) -> int:
    """Return when a bucket is full again."""
    full = micros(spent[0][0]) if spent else at
    return max(full, at) if full <= _last(rate, at) else at + _span(rate)


def permits(rate: Rate, spent: Spent, now: datetime) -> int:
    """Return how many jobs may begin from now on."""
    at = micros(now)
    if rate.kind == "bucket":
        span = _span(rate)
        return max(0, (at + span - _full(rate, spent, at)) * rate.limit // span)
    return max(0, rate.limit - sum(count for _, count in _kept(rate, spent, at)))


def spend(rate: Rate, spent: Spent, now: datetime, count: int = 1, lead: float = 0.0) -> Spent:
    """Return what is used after so many were allowed to begin within ``lead`` seconds from now."""
    at, ahead = micros(now), math.ceil(lead * 1_000_000)
    if rate.kind == "bucket":
        step = -(-count * _span(rate) // rate.limit)
        return ((_moment(max(_full(rate, spent, at), at + ahead) + step), 0),)
    return _summed((*_kept(rate, spent, at), (_freed(rate, at, ahead), count)))


def trimmed(rate: Rate, spent: Spent, now: datetime) -> Spent | None:
    """Return what was spent, with what counts for longer than it can as if spent now; None if nothing does.

    The finder stores this, so that it lapses: read again later, it would count from then on.
    """
    at = micros(now)
    last = _last(rate, at)
    if all(micros(until) <= last for until, _ in spent):
        return None
    return ((_moment(_full(rate, spent, at)), 0),) if rate.kind == "bucket" else _summed(_kept(rate, spent, at))


def _summed(used: Iterable[tuple[int, int]]) -> Spent:
    counts = dict[int, int]()
    for until, count in used:
        counts[until] = counts.get(until, 0) + count
    return tuple((_moment(until), counts[until]) for until in sorted(counts))


def next_permit(rate: Rate, spent: Spent, now: datetime) -> datetime:
    """Return when a job may begin, if no other does: now, or the moment when there is a permit."""
    at = micros(now)
    if permits(rate, spent, now) > 0:
        return now
    if rate.kind == "bucket":
        span = _span(rate)
        return _moment(_full(rate, spent, at) - span - (-span // rate.limit))
    kept = sorted(_kept(rate, spent, at))
    missing = sum(count for _, count in kept) - rate.limit + 1
    for until, count in kept:
        missing -= count
        if missing <= 0:
            return _moment(until)
    raise AssertionError("without a permit something counts")
