"""Clocks of machines that are wrong, are set while somebody looks at them, or sleep."""

from __future__ import annotations

import mmap
import struct
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path


class WrongClock:
    """A machine's clock whose wall is wrong by ``off`` seconds; it runs in real time otherwise.

    ``sleep`` is what a suspended machine does: its wall clock and its uptime go on, its monotonic clock does not.
    """

    off: float
    slept: float

    def __init__(self, off: float = 0.0) -> None:
        self.off, self.slept = off, 0.0

    def now(self) -> datetime:
        return datetime.now(UTC) + timedelta(seconds=self.off + self.slept)

    def monotonic(self) -> float:
        return time.monotonic()

    def uptime(self) -> float:
        return time.monotonic() + self.slept

    def set(self, seconds: float) -> None:
        """Set the wall clock forward or (negative) back."""
        self.off += seconds

    def sleep(self, seconds: float) -> None:
        """Let the machine sleep, in no time."""
        self.slept += seconds


class PlainClock:
    """The same clock on a machine that has no clock but the one on its wall to show that it slept."""

    def __init__(self, wrong: WrongClock) -> None:
        self.now, self.monotonic = wrong.now, wrong.monotonic


class MovedClock:
    """A clock that runs in real time, and by which a test lets more of it pass."""

    def __init__(self) -> None:
        self._moved = 0.0

    def now(self) -> datetime:
        return datetime.now(UTC) + timedelta(seconds=self._moved)

    def monotonic(self) -> float:
        return time.monotonic() + self._moved

    def advance(self, seconds: float) -> None:
        """Let so much time pass at once."""
        self._moved += seconds


_TWO = struct.Struct("dd")


class SharedClock(WrongClock):
    """The clock of a machine with several processes: what it is wrong by, and how long it slept, are in a file."""

    def __init__(self, path: Path) -> None:
        if not path.exists():
            path.write_bytes(_TWO.pack(0.0, 0.0))
        with path.open("r+b") as file:
            self._file = mmap.mmap(file.fileno(), _TWO.size)

    @property
    def off(self) -> float:
        return float(_TWO.unpack_from(self._file)[0])

    @off.setter
    def off(self, seconds: float) -> None:
        _TWO.pack_into(self._file, 0, seconds, self.slept)

    @property
    def slept(self) -> float:
        return float(_TWO.unpack_from(self._file)[1])

    @slept.setter
    def slept(self, seconds: float) -> None:
        _TWO.pack_into(self._file, 0, self.off, seconds)
