"""Histograms of durations: fixed buckets, so that any two can be added, and quantiles read from them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator

import msgspec

from headrace.core.codec.record import Record

__all__ = ["BOUNDS", "Histogram", "Quantiles"]

_MIN_SECONDS = 0.001
_BUCKETS_PER_DECADE = 8
_MAX_DECADES = 9

BOUNDS: tuple[float, ...] = tuple(
    _MIN_SECONDS * 10 ** (n / _BUCKETS_PER_DECADE) for n in range(_MAX_DECADES * _BUCKETS_PER_DECADE + 1)
)
"""The upper ends of the buckets, in seconds: from a millisecond to eleven days, each a third more than the one before.
They must never change: stores keep counts by the index of a bucket."""


class Quantiles(msgspec.Struct, Record, frozen=True, kw_only=True):
    """How long something took, read from a histogram: right to about a sixth of the value."""

    count: int
    """How many were measured."""
    mean: float
    """Seconds, exact."""
    p50: float
    """Seconds; half took less."""
    p95: float
    p99: float


class Histogram(msgspec.Struct, array_like=True):
    """How often a duration fell into each bucket; as JSON, only the buckets that are not empty."""

    counts: dict[int, int] = {}
    seconds: float = 0.0
    """The sum of all."""

    def add(self, seconds: float) -> None:
        """Count one."""
        place = bisect_left(BOUNDS, seconds)
        self.counts[place] = self.counts.get(place, 0) + 1
        self.seconds += seconds

    def merge(self, other: Histogram) -> None:
        """Count all that the other has counted."""
        if self.counts:
            counts, get = self.counts, self.counts.get
            for place, count in other.counts.items():
                counts[place] = get(place, 0) + count
        else:
            self.counts = other.counts.copy()
        self.seconds += other.seconds

    @property
    def count(self) -> int:
        """How many were counted."""
        return sum(self.counts.values())

    def quantile(self, share: float) -> float | None:
        """Return the maximum seconds of this share of all, as exact as buckets are; None if nothing was counted."""
        return None if not self.counts else next(self._walk((share,)))

    def quantiles(self) -> Quantiles | None:
        """Return the usual quantiles; None if nothing was counted."""
        if not self.counts:
            return None
        p50, p95, p99 = self._walk((0.5, 0.95, 0.99))
        count = self.count
        return Quantiles(count=count, mean=self.seconds / count, p50=p50, p95=p95, p99=p99)

    def _walk(self, shares: Iterable[float]) -> Iterator[float]:
        """Yield the quantiles of these shares, in rising order."""
        total, before = self.count, 0
        places = iter(sorted(self.counts.items()))
        place, count = next(places)
        for share in shares:
            while before + count < share * total:
                before += count
                place, count = next(places)
            yield _within(place, (share * total - before) / count)


def _within(place: int, share: float) -> float:
    """Return the value at this share of a bucket, interpolated by equal ratios, since buckets are wide."""
    if place >= len(BOUNDS):
        return BOUNDS[-1]
    if place == 0:
        return BOUNDS[0] * share
    lower, upper = BOUNDS[place - 1], BOUNDS[place]
    value: float = lower * (upper / lower) ** share
    return value
