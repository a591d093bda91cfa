"""How many handlers began in a window, at most: what rates promise, counted from the moments of the calls."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence

EDGE = 0.05
"""Seconds at the edges of a window that are of both its neighbours: between the last look at the clock and the
handler's own."""


def most_in_windows(kind: str, starts: Sequence[float], per: float, edge: float = EDGE, since: float = 0.0) -> int:
    """The most calls in one window: of a fixed rate those counted from 1970, of a sliding one any.

    A call near the edge of two fixed windows counts in the one that keeps the result lowest, but in none that was over
    before ``since``: when nobody could be allowed to begin yet.
    """
    if kind == "fixed":
        return _most_in_fixed(starts, per, edge, since)
    starts = sorted(starts)
    return max((sum(first <= start < first + per - edge for start in starts) for first in starts), default=0)


def _most_in_fixed(starts: Sequence[float], per: float, edge: float, since: float) -> int:
    certain, either = Counter[int](), Counter[int]()  # ``either``: in this window or in the next
    for start in starts:
        first, last = (int((start + off) // per) for off in (-edge, edge))
        if first == last or first < since // per:
            certain[last] += 1
        else:
            either[first] += 1
    least = max(certain.values(), default=0)
    return next(most for most in itertools.count(least) if _fit(certain, either, most))


def _fit(certain: Counter[int], either: Counter[int], most: int) -> bool:
    """Whether no window needs more than so many, if each takes what it can of those at its end."""
    left: Counter[int] = Counter()
    for window in sorted({*certain, *either, *(window + 1 for window in either)}):
        needed = certain[window] + left[window]
        if needed > most:
            return False
        left[window + 1] = max(0, needed + either[window] - most)
    return True


def most_over_bucket(starts: Sequence[float], limit: int, per: float, edge: float = EDGE) -> float:
    """The most tokens that a bucket must have held when full, for calls to be as close together as these."""
    starts, most = sorted(starts), 0.0
    for index, first in enumerate(starts):
        for count, last in enumerate(starts[index:], 1):
            most = max(most, count - (last - first + edge) * limit / per)
    return most
