"""Threads for plain handlers: daemons, because a thread cannot be stopped and must not keep the process alive."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, TypeVar

__all__ = ["ThreadPool"]

T = TypeVar("T")

_Work = tuple[asyncio.AbstractEventLoop, "asyncio.Future[Any]", contextvars.Context, Callable[[], Any]]


class ThreadPool:
    """As many threads as there are calls at once; idle ones are used again. Callers bound how many calls there are."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._work: SimpleQueue[_Work | None] = SimpleQueue()
        self._idle = threading.Semaphore(0)
        self._threads = 0

    async def run(self, fn: Callable[[], T]) -> T:
        """Call ``fn`` on a thread. A caller that is cancelled leaves it running: a thread cannot be stopped."""
        loop = asyncio.get_running_loop()
        # An error is a value to the future: not every kind can be set on one.
        future: asyncio.Future[tuple[T, BaseException | None]] = loop.create_future()
        if not self._idle.acquire(blocking=False):
            self._threads += 1
            threading.Thread(target=self._serve, name=f"{self._name}-{self._threads}", daemon=True).start()
        self._work.put((loop, future, contextvars.copy_context(), fn))
        value, error = await future
        if error is not None:
            raise error
        return value

    def close(self) -> None:
        """Let idle threads end; busy ones end with their call."""
        for _ in range(self._threads):
            self._work.put(None)

    def _serve(self) -> None:
        while (work := self._work.get()) is not None:
            loop, future, context, fn = work
            try:
                outcome: tuple[Any, BaseException | None] = (context.run(fn), None)
            except BaseException as raised:
                outcome = None, raised
            # Idle before the result is set, so that the caller finds this thread free.
            self._idle.release()
            try:
                loop.call_soon_threadsafe(_settle, future, outcome)
            except RuntimeError:
                return  # the loop is closed: nothing waits any more
            del work, future, fn, context, outcome


def _settle(future: asyncio.Future[Any], outcome: tuple[Any, BaseException | None]) -> None:
    if not future.done():
        future.set_result(outcome)
