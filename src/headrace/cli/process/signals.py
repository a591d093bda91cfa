"""What SIGINT and SIGTERM mean to a command: once, stop in good order; twice, stop at once; thrice, be gone."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from headrace.cli.exit_codes import DONE
from headrace.runtime.clock import SystemClock
from headrace.worker.process import signals

__all__ = ["Signals", "are_ours", "on_signals"]

STOP_TIMEOUT_SECONDS = 5.0
"""Seconds that stopping at once may take; a blocked loop takes longer, and is not waited for."""


class Signals(signals.Signals):
    """The signals that have come, and the exit code that they lead to."""

    def __init__(self, first: Callable[[], None], second: Callable[[], None]) -> None:
        super().__init__(first, second, SystemClock())
        self._timer: threading.Timer | None = None
        self.code = DONE
        """A stop in good order is no failure."""

    def hurry(self, number: int) -> None:
        """Stop at once, after at most ``STOP_TIMEOUT_SECONDS``."""
        self.code = 128 + number
        self._timer = threading.Timer(STOP_TIMEOUT_SECONDS, os._exit, (self.code,))
        self._timer.daemon = True
        self._timer.start()

    def third(self, number: int) -> None:
        """Exit the process."""
        os._exit(128 + number)

    def rest(self) -> None:
        """Forget the signals: all is over, and no stop needs to be forced any more."""
        if self._timer is not None:
            self._timer.cancel()


@contextmanager
def on_signals(first: Callable[[], None], second: Callable[[], None]) -> Iterator[Signals]:
    """Call ``first`` on the loop at the first SIGINT or SIGTERM, ``second`` at the second."""
    heard = Signals(first, second)
    before = {number: signal.signal(number, heard) for number in signals.BOTH}
    try:
        yield heard
    finally:
        heard.rest()
        for number, handler in before.items():
            signal.signal(number, handler)


def are_ours() -> bool:
    """Return whether signals are handled here now: then an interrupt that is raised was not sent as a signal."""
    return isinstance(signal.getsignal(signal.SIGINT), Signals)
