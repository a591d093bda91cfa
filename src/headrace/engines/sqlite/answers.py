"""Answers on their way from a thread to the event loop that waits for them."""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from contextvars import Context
from typing import Any

__all__ = ["Answers"]

_Over = Callable[[Any, Exception | None], None]


class Answers:
    """Calls back on a loop, which is woken by an ``eventfd`` where the system has that.

    ``call_soon_threadsafe`` of asyncio sends through one socket and receives from another until there is no more: that
    takes three system calls where one is enough.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        """To be made on the loop."""
        self._loop, self._process = loop, os.getpid()
        self._waiting: deque[tuple[_Over, Any, Exception | None]] = deque()
        self._bell = self._listen()
        """The descriptor of the eventfd; -1: there is none."""

    def _listen(self) -> int:
        try:
            bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        except (AttributeError, OSError):
            return -1
        try:
            # In a context of its own: what is begun by an answer has nothing to do with whoever opened the store.
            Context().run(self._loop.add_reader, bell, self._deliver)
        except (NotImplementedError, OSError):
            os.close(bell)
            return -1
        return bell

    def put(self, over: _Over, answer: Any, error: Exception | None) -> None:
        """Have ``over`` called on the loop, soon, and after those that were put before; on any thread."""
        if self._bell >= 0:
            self._waiting.append((over, answer, error))
            os.eventfd_write(self._bell, 1)
            return
        try:
            self._loop.call_soon_threadsafe(over, answer, error)
        except RuntimeError:  # the loop is closed: nobody waits any more
            pass

    def close(self) -> None:
        """Deliver what was put, on the loop; there must be nobody left who puts more."""
        bell, self._bell = self._bell, -1
        if bell >= 0:
            if self._process == os.getpid():  # a forked process would make the loop of its parent deaf
                self._loop.remove_reader(bell)
            os.close(bell)
            self._call()

    def _deliver(self) -> None:
        with suppress(BlockingIOError):
            os.eventfd_read(self._bell)
        try:
            self._call()
        finally:
            if self._waiting and self._bell >= 0:  # an interrupt came between: the rest is due all the same
                os.eventfd_write(self._bell, 1)

    def _call(self) -> None:
        while self._waiting:
            over, answer, error = self._waiting.popleft()
            try:
                over(answer, error)
            except Exception as failed:  # as the loop does it: those that follow must have theirs
                self._loop.call_exception_handler({"message": f"{over!r} failed", "exception": failed})
