"""What SIGINT and SIGTERM mean to a process that works: once, stop in good order; twice, stop at once."""

from __future__ import annotations

import asyncio
import logging
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from types import FrameType
from typing import TYPE_CHECKING, Any

from headrace.runtime.clock import Clock

if TYPE_CHECKING:
    from headrace.worker.worker import Worker

__all__ = ["BOTH", "ECHO_SECONDS", "Signals", "answering"]

_log = logging.getLogger("headrace.worker")

BOTH = (signal.SIGINT, signal.SIGTERM)

ECHO_SECONDS = 0.3
"""Seconds within which the same signal again is the same request. `timeout` signals its child and then the child's
whole group, systemd every process of a unit while their supervisor passes the signal on."""


class Signals:
    """The signals that have come; called by the interpreter, not by the loop: a blocked loop cannot ignore them."""

    def __init__(self, first: Callable[[], None], second: Callable[[], None], clock: Clock) -> None:
        """``first`` and ``second`` are called on the running loop."""
        self.loop = asyncio.get_running_loop()
        self._steps, self._clock = [first, second], clock
        self._last = (0, float("-inf"))

    def __call__(self, number: int, frame: FrameType | None = None) -> None:
        """One more signal."""
        (before, at), now = self._last, self._clock.monotonic()
        if number == before and now - at < ECHO_SECONDS:
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


class _Answer(Signals):
    """What a program does at a signal: stop all the workers it runs."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(self._stop, self._stop_at_once, clock)
        self._workers: list[Worker] = []
        self._stopping = False
        self._before: dict[signal.Signals, Any] = {}

    @contextmanager
    def answering(self, worker: Worker) -> Iterator[None]:
        """Stop this one, too, until the block ends."""
        self._workers.append(worker)
        if self._stopping:
            worker.request_stop()
        if len(self._workers) == 1:
            self._before = {number: signal.signal(number, self) for number in BOTH if _is_free(number)}
        try:
            yield
        finally:
            self._workers.remove(worker)
            if not self._workers:
                self._leave()

    def _leave(self) -> None:
        for number, handler in self._before.items():
            if signal.getsignal(number) is self:  # else the program has taken it over
                signal.signal(number, handler)

    def _stop(self) -> None:
        self._stopping = True
        _log.info("%s: stopping in good order; once more to stop at once", signal.Signals(self._last[0]).name)
        for worker in list(self._workers):
            if not worker.stopping.is_set():
                worker.request_stop()

    def _stop_at_once(self) -> None:
        _log.info("%s again: stopping at once", signal.Signals(self._last[0]).name)
        for worker in list(self._workers):
            worker.request_stop()

    def third(self, number: int) -> None:
        """Do what would have been done without us."""
        self._leave()
        signal.raise_signal(number)


def answering(worker: Worker) -> AbstractContextManager[None]:
    """Stop this worker at a signal until the block ends."""
    if threading.current_thread() is not threading.main_thread():
        return nullcontext()  # the interpreter sets and calls handlers only on the main thread
    loop = asyncio.get_running_loop()
    for number in BOTH:
        here = signal.getsignal(number)
        if isinstance(here, _Answer) and here.loop is loop:  # another worker of this program was first
            return here.answering(worker)
    return _Answer(worker.host.clock).answering(worker)


def _is_free(number: signal.Signals) -> bool:
    """Whether only Python itself handles this signal: it ends the program, or has asyncio cancel it."""
    here = signal.getsignal(number)
    of_asyncio = isinstance(here, partial) and isinstance(getattr(here.func, "__self__", None), asyncio.Runner)
    return here in (signal.SIG_DFL, signal.default_int_handler) or of_asyncio
