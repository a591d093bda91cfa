"""Time and chance, passed in everywhere: what a test or a simulation replaces."""

from __future__ import annotations

import random
import time
from datetime import UTC, datetime
from typing import Protocol
from uuid import UUID

__all__ = ["Clock", "Dice", "SystemClock", "SystemDice"]


class Clock(Protocol):
    """Tells the time."""

    def now(self) -> datetime:
        """The wall clock: aware, in UTC."""
        ...

    def monotonic(self) -> float:
        """Seconds that never step; only differences mean something."""
        ...


class Dice(Protocol):
    """Makes everything that must differ: jitter, change ids, job ids."""

    def chance(self) -> float:
        """A number in [0, 1)."""
        ...

    def token(self) -> int:
        """A positive 63-bit number that no other call returns."""
        ...

    def new_id(self, now: datetime) -> UUID:
        """A UUIDv7; those made by one Dice sort in the order they were made."""
        ...


class SystemClock:
    """The machine's clock."""

    def now(self) -> datetime:
        """The wall clock: aware, in UTC."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Seconds that never step."""
        return time.monotonic()


class SystemDice:
    """The machine's randomness, or a seeded one."""

    def __init__(self, seed: int | None = None) -> None:
        self._random = random.SystemRandom() if seed is None else random.Random(seed)
        self._fast = random.Random(self._random.getrandbits(128))
        self._last = 0

    def chance(self) -> float:
        """A number in [0, 1)."""
        return self._fast.random()

    def token(self) -> int:
        """A positive 63-bit number."""
        return self._fast.getrandbits(62) + 1

    def new_id(self, now: datetime) -> UUID:
        """A UUIDv7; monotonic, also when the clock steps back."""
        stamp = int(now.timestamp() * 1000) << 12
        # 48 bits of milliseconds and 12 of counter; a busy millisecond borrows from the next.
        self._last = stamp = max(stamp, self._last + 1)
        head = ((stamp >> 12) << 16) | 0x7000 | (stamp & 0xFFF)
        tail = (0b10 << 62) | self._fast.getrandbits(62)
        return UUID(int=(head << 64) | tail)
