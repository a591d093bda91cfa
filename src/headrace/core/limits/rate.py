"""Rates: how many may be begun in a span of time, and when the next one may."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal

from headrace.core.bounds import whole
from headrace.core.retry import Seconds, seconds
from headrace.errors import ConfigError

__all__ = ["Rate", "Spent", "micros", "next_permit", "permits", "spend"]

Spent = tuple[tuple[datetime, int], ...]
"""Permits that were used: until when, and how many. Of a bucket: when it will be full again."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICRO = timedelta(microseconds=1)
_GRAINS = 60
"""A sliding window remembers what was used in so many parts of it."""


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
        whole(limit, "Rate: limit", 1)
        span = seconds(per, "Rate: per")
        if span < 0.001:
            raise ConfigError(f"Rate: per must be at least a millisecond, not {per!r}")
        if kind not in ("fixed", "sliding", "bucket"):
            raise ConfigError(f"Rate: kind must be 'fixed', 'sliding' or 'bucket', not {kind!r}")
        for name, value in (("limit", limit), ("per", span), ("kind", kind), ("keyed", bool(keyed))):
            object.__setattr__(self, name, value)


def micros(moment: datetime) -> int:
    """Microseconds since 1970."""
    return (moment - _EPOCH) // _MICRO


def _moment(micros: int) -> datetime:
    return _EPOCH + timedelta(microseconds=micros)


def _span(rate: Rate) -> int:
    return max(round(rate.per * 1_000_000), _GRAINS)


def _freed(rate: Rate, now: int) -> int:
    """Until when a permit used now counts."""
    span = _span(rate)
    if rate.kind == "fixed":
        return (now // span + 1) * span
    grain = span // _GRAINS
    return -(-(now + span) // grain) * grain  # up to the next grain: a little later, never too early


def _kept(rate: Rate, spent: Spent, now: int) -> list[tuple[int, int]]:
    """What still counts of what was spent, for no longer than if it were spent now: the clock may be set back."""
    last = _freed(rate, now)
    return [(min(micros(until), last), count) for until, count in spent if micros(until) > now]


def _full(rate: Rate, spent: Spent, now: int) -> int:
    """When a bucket is full again."""
    at = micros(spent[0][0]) if spent else now
    return min(max(at, now), now + _span(rate))


def permits(rate: Rate, spent: Spent, now: datetime) -> int:
    """How many may be begun now."""
    at = micros(now)
    if rate.kind == "bucket":
        span = _span(rate)
        return (at + span - _full(rate, spent, at)) * rate.limit // span
    return max(0, rate.limit - sum(count for _, count in _kept(rate, spent, at)))


def spend(rate: Rate, spent: Spent, now: datetime, count: int = 1) -> Spent:
    """What is used after so many were begun."""
    at = micros(now)
    if rate.kind == "bucket":
        step = -(-count * _span(rate) // rate.limit)
        return ((_moment(_full(rate, spent, at) + step), 0),)
    until, kept = _freed(rate, at), dict[int, int]()
    for moment, used in (*_kept(rate, spent, at), (until, count)):
        kept[moment] = kept.get(moment, 0) + used
    return tuple((_moment(moment), kept[moment]) for moment in sorted(kept))


def next_permit(rate: Rate, spent: Spent, now: datetime) -> datetime:
    """When one may be begun, if nobody else does: now, or the moment from which on there is a permit."""
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
