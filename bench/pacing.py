"""Arrivals of a light load, the same for every side."""

from __future__ import annotations

import random
from collections.abc import Iterator

__all__ = ["gaps"]


def gaps(count: int, per_second: float) -> Iterator[float]:
    """Seconds between submits: random, because an even beat would fall into step with somebody's polling."""
    chance = random.Random(50)
    for _ in range(count):
        yield chance.expovariate(per_second)
