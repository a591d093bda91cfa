"""A coroutine of the driver without a task around it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

__all__ = ["step_through"]


def step_through(coroutine: Coroutine[Any, Any, Any], done: Callable[[Any, BaseException | None], None]) -> None:
    """Run a coroutine step by step, each as soon as what it waits for is there; ``done`` gets its result, or its error.

    A task would do the same, one round of the loop later. And there would be somebody to cancel: this runs to its end
    whoever gives up waiting for it. For coroutines that wait for nothing but futures, such as a statement on a
    connection; in one that asks which task it runs in, as ``asyncio.timeout`` does, it would be nobody's or another's.
    """
    _Steps(coroutine, done).step()


class _Steps:
    """Where a coroutine is. Not a function that names itself: that is a circle, which only the garbage collector
    breaks, and what a statement needed would be kept in memory until some hundreds of others have come."""

    __slots__ = ("_coroutine", "_done")

    def __init__(self, coroutine: Coroutine[Any, Any, Any], done: Callable[[Any, BaseException | None], None]) -> None:
        self._coroutine, self._done = coroutine, done

    def step(self, _: object = None) -> None:
        result, error = None, None
        try:
            waited: asyncio.Future[Any] = self._coroutine.send(None)
        except StopIteration as end:
            result = end.value
        except BaseException as raised:
            error = raised
        else:
            waited.add_done_callback(self.step)
            return
        try:
            self._done(result, error)
        finally:
            if isinstance(error, KeyboardInterrupt | SystemExit):  # for the loop; but whoever waits hears of it first
                raise error
