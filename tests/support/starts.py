"""How many handlers began in a window, at most: what rates promise, counted from the moments of the calls."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

EDGE = 0.05
"""Seconds at the edges of a window that do not count: between the last look at the clock and the handler's own."""


def most_in_windows(kind: str, starts: Sequence[float], per: float, edge: float = EDGE) -> int:
    """The most calls in one window: of a fixed rate those counted from 1970, of a sliding one any."""
    if kind == "fixed":
        inner = [start for start in starts if edge <= start % per < per - edge] if edge else starts
        return max(Counter(start // per for start in inner).values(), default=0)
    starts = sorted(starts)
    return max((sum(first <= start < first + per - edge for start in starts) for first in starts), default=0)


def most_over_bucket(starts: Sequence[float], limit: int, per: float, edge: float = EDGE) -> float:
    """The most tokens that a bucket must have held when full, for calls to be as close together as these."""
    starts, most = sorted(starts), 0.0
    for index, first in enumerate(starts):
        for count, last in enumerate(starts[index:], 1):
            most = max(most, count - (last - first + edge) * limit / per)
    return most
