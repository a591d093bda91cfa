"""What SIGINT and SIGTERM mean: once, stop in good order; twice, stop at once; thrice, be gone."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from headrace.cli.failures import DONE

__all__ = ["Signals", "are_ours", "on_signals"]

PATIENCE = 5.0
"""Seconds that stopping at once may take; a blocked loop takes longer, and is not waited for."""

ECHO = 0.3
"""Seconds within which the same signal again is the same wish. `timeout` signals its child and then the child's whole
group, systemd every process of a unit while their supervisor passes the signal on: nobody has lost patience there."""


class Signals:
    """Which signals have come; called by the interpreter, not by the loop: a blocked loop cannot ignore them."""

    def __init__(self, first: Callable[[], None], second: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._steps = [first, second]
        self._timer: threading.Timer | None = None
        self._last = (0, float("-inf"))
        self.code = DONE
        """The exit code they ask for: a stop in good order is no failure."""

    def __call__(self, number: int, frame: FrameType | None = None) -> None:
        """One more signal."""
        (before, at), now = self._last, time.monotonic()
        if number == before and now - at < ECHO:
            return
        self._last = number, now
        if not self._steps:
            os._exit(128 + number)
        step = self._steps.pop(0)
        self._loop.call_soon_threadsafe(step)
        if not self._steps:
            self.code = 128 + number
            self._timer = threading.Timer(PATIENCE, os._exit, (self.code,))
            self._timer.daemon = True
            self._timer.start()

    def rest(self) -> None:
        """All is over; nobody needs to be forced any more."""
        if self._timer is not None:
            self._timer.cancel()


@contextmanager
def on_signals(first: Callable[[], None], second: Callable[[], None]) -> Iterator[Signals]:
    """Call ``first`` on the loop at the first SIGINT or SIGTERM, ``second`` at the second."""
    signals = Signals(first, second)
    before = {number: signal.signal(number, signals) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield signals
    finally:
        signals.rest()
        for number, handler in before.items():
            signal.signal(number, handler)


def are_ours() -> bool:
    """Whether signals are heard here now: an interrupt that is raised all the same was not sent by anybody."""
    return isinstance(signal.getsignal(signal.SIGINT), Signals)
