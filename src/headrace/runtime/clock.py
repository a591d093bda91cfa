"""Time and chance, passed in everywhere: what a test or a simulation replaces."""

from __future__ import annotations

import os
import random
import time
import weakref
from datetime import UTC, datetime
from functools import partial
from typing import Protocol
from uuid import UUID, SafeUUID

__all__ = ["Clock", "Dice", "SystemClock", "SystemDice"]


class Clock(Protocol):
    """Where time comes from."""

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

    now = staticmethod(partial(datetime.now, UTC))
    """The wall clock: aware, in UTC."""

    monotonic = staticmethod(time.monotonic)
    """Seconds that never step."""

    if hasattr(time, "CLOCK_BOOTTIME"):  # on Linux; elsewhere only the wall clock shows that the machine slept
        uptime = staticmethod(partial(time.clock_gettime, time.CLOCK_BOOTTIME))
        """Seconds that never step, and count on while the machine sleeps."""


class SystemDice:
    """The machine's randomness, or a seeded one."""

    def __init__(self, seed: int | None = None) -> None:
        self._fast = random.Random(seed)
        self._last = self._stamp = 0
        self._now: datetime | None = None
        if seed is None:
            _unseeded.add(self)

    def chance(self) -> float:
        """A number in [0, 1)."""
        return self._fast.random()

    def token(self) -> int:
        """A positive 63-bit number."""
        return self._fast.getrandbits(62) + 1

    def new_id(self, now: datetime) -> UUID:
        """A UUIDv7; monotonic, also when the clock steps back."""
        if now is not self._now:  # those of one batch are made at one moment
            self._now, self._stamp = now, int(now.timestamp() * 1000) << 12
        # 48 bits of milliseconds and 12 of counter; a busy millisecond borrows from the next.
        stamp = self._last + 1
        if stamp < self._stamp:
            stamp = self._stamp
        self._last = stamp
        return _uuid(((stamp >> 12) << 80) | ((stamp & 0xFFF) << 64) | _VERSION | self._fast.getrandbits(62))

    def renew(self) -> None:
        """Go on with fresh randomness."""
        self._fast.seed()


_VERSION = (0x7000 << 64) | (0b10 << 62)
_bare, _set, _UNKNOWN = object.__new__, object.__setattr__, SafeUUID.unknown


def _uuid(number: int) -> UUID:
    """``UUID(int=number)`` in half the time: the constructor checks what it may have been given instead."""
    made = _bare(UUID)
    _set(made, "int", number)
    _set(made, "is_safe", _UNKNOWN)
    return made


_unseeded: weakref.WeakSet[SystemDice] = weakref.WeakSet()


def _after_fork() -> None:
    # A server that forks after loading its App would hand out the same ids in every child, and the store would take
    # the job of one for a repeat of the other's.
    for dice in _unseeded:
        dice.renew()


if hasattr(os, "register_at_fork"):  # not on Windows, where nothing forks
    os.register_at_fork(after_in_child=_after_fork)
