"""What SIGINT and SIGTERM mean to a process that works: once, stop in good order; twice, stop at once."""

from __future__ import annotations

import asyncio
import logging
import signal
import threading
from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from types import FrameType
from typing import Any

from headrace.runtime.clock import Clock
from headrace.runtime.host import Host
from headrace.runtime.service import Service

__all__ = ["BOTH", "ECHO", "Foreground", "Signals"]

_log = logging.getLogger("headrace.worker")

BOTH = (signal.SIGINT, signal.SIGTERM)

ECHO = 0.3
"""Seconds within which the same signal again is the same wish. `timeout` signals its child and then the child's whole
group, systemd every process of a unit while their supervisor passes the signal on: nobody has lost patience there."""


class Signals:
    """Which signals have come; called by the interpreter, not by the loop: a blocked loop cannot ignore them."""

    def __init__(self, first: Callable[[], None], second: Callable[[], None], clock: Clock) -> None:
        """``first`` and ``second`` are called on the running loop."""
        self.loop = asyncio.get_running_loop()
        self._steps, self._clock = [first, second], clock
        self._last = (0, float("-inf"))

    def __call__(self, number: int, frame: FrameType | None = None) -> None:
        """One more signal."""
        (before, at), now = self._last, self._clock.monotonic()
        if number == before and now - at < ECHO:
            return
        self._last = number, now
        if not self._steps:
            self.third(number)
            return
        self.loop.call_soon_threadsafe(self._steps.pop(0))
        if not self._steps:
            self.hurry(number)

    def hurry(self, number: int) -> None:
        """The second has come, and its step is on its way."""

    def third(self, number: int) -> None:
        """There is no step left."""


class Foreground(Service):
    """A service that a program may consist of: it runs until it is done, or a signal stops it."""

    host: Host

    @abstractmethod
    def request_stop(self) -> None:
        """Stop gracefully; called a second time, stop at once."""

    async def run(self, *, signals: bool = True) -> None:
        """Start, and return when it has stopped; a caller that is cancelled stops it.

        The first SIGTERM or SIGINT stops it in good order, so that this returns; the second stops it at once, the third
        does what it would have done without headrace. That is so on the main thread, for each of the two signals
        unless the program answers or ignores it itself; ``signals=False`` leaves both alone. What was there before is
        there again afterwards.
        """
        with _answering(self) if signals else _nobody():
            async with self:
                await self.done()


class _Answer(Signals):
    """What a program does at a signal: stop all the services it runs, which may be several."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(self._stop, self._stop_at_once, clock)
        self._services: list[Foreground] = []
        self._stopping = False
        self._before: dict[signal.Signals, Any] = {}

    @contextmanager
    def answering(self, service: Foreground) -> Iterator[None]:
        """Stop this one, too, until the block ends."""
        self._services.append(service)
        if self._stopping:
            service.request_stop()
        if len(self._services) == 1:
            self._before = {number: signal.signal(number, self) for number in BOTH if _is_free(number)}
        try:
            yield
        finally:
            self._services.remove(service)
            if not self._services:
                self._leave()

    def _leave(self) -> None:
        for number, handler in self._before.items():
            if signal.getsignal(number) is self:  # else somebody has taken it over
                signal.signal(number, handler)

    def _stop(self) -> None:
        self._stopping = True
        _log.info("%s: stopping in good order; once more to stop at once", signal.Signals(self._last[0]).name)
        for service in list(self._services):
            if not service.stopping.is_set():
                service.request_stop()

    def _stop_at_once(self) -> None:
        _log.info("%s again: stopping at once", signal.Signals(self._last[0]).name)
        for service in list(self._services):
            service.request_stop()

    def third(self, number: int) -> None:
        """Do what would have been done without us."""
        self._leave()
        signal.raise_signal(number)


def _answering(service: Foreground) -> Any:
    if threading.current_thread() is not threading.main_thread():
        return _nobody()  # the interpreter calls handlers on the main thread, and takes them from nobody else
    loop = asyncio.get_running_loop()
    for number in BOTH:
        here = signal.getsignal(number)
        if isinstance(here, _Answer) and here.loop is loop:  # another worker of this program was first
            return here.answering(service)
    return _Answer(service.host.clock).answering(service)


@contextmanager
def _nobody() -> Iterator[None]:
    yield


def _is_free(number: signal.Signals) -> bool:
    """Whether nobody answers this signal but Python itself, which ends the program, or has asyncio cancel it."""
    here = signal.getsignal(number)
    of_asyncio = isinstance(here, partial) and isinstance(getattr(here.func, "__self__", None), asyncio.Runner)
    return here in (signal.SIG_DFL, signal.default_int_handler) or of_asyncio
