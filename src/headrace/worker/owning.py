"""A loop that belongs to a worker: tasks and callbacks that handlers left on it cannot end it.

asyncio lets a SystemExit or a KeyboardInterrupt out of the loop when a task or a callback raises one: the loop stops
where it is, and whoever runs it may run it again. Where the loop is a worker's own, only a signal may mean that the
worker should end, and signals are not told by exceptions there.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from headrace.worker.raising import message_of

__all__ = ["run_owned"]

_log = logging.getLogger("headrace.worker")

T = TypeVar("T")


def run_owned(
    main: Coroutine[Any, Any, T],
    *,
    loop_factory: Callable[[], asyncio.AbstractEventLoop] | None = None,
    goes_on: Callable[[], bool] = lambda: True,
) -> T:
    """Run the coroutine on a loop of its own, as ``asyncio.run`` does.

    An exit that something else on the loop raises does not end it, if ``goes_on`` then returns True; it must return
    False as long as an interrupt may be meant for ``main``.
    """
    with asyncio.Runner(loop_factory=loop_factory) as runner:
        doing = runner.get_loop().create_task(main)
        while True:
            try:
                return runner.run(_end_of(doing))
            except (SystemExit, KeyboardInterrupt) as error:
                if doing.done() or not goes_on():
                    raise
                _log.warning(
                    "%s was raised on the worker's loop, outside of the call of a handler (%s); the worker goes on",
                    f"{type(error).__name__}({message_of(error)})",
                    _origin(error),
                )


async def _end_of(doing: asyncio.Task[T]) -> T:
    """The result of the task; cancelling this cancels the task."""
    return await doing


def _origin(error: BaseException) -> str:
    """Where the error was raised."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return "nobody knows where"
    code = trace.tb_frame.f_code
    return f"{code.co_filename}:{trace.tb_lineno}, in {code.co_qualname}"
