"""Event loops of a worker: a loop that handlers cannot end, calls onto it from elsewhere, and the tuning of a process.

A handler in a thread may have a loop of its own; what it requests runs on the worker's.

asyncio lets a SystemExit or a KeyboardInterrupt out of the loop when a task or a callback raises one: the loop stops
where it is, and may be run again. Where the loop is a worker's own, only a signal ends the worker, and no exception
stands for a signal there. Only a process that does nothing but work is tuned.
"""

from __future__ import annotations

import asyncio
import gc
import importlib
import logging
import sys
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from headrace.errors import SyncInAsync
from headrace.worker.execution.errors import message_of

__all__ = ["fast_loop", "on_loop", "run_owned", "tune_process", "wait_on_loop"]


T = TypeVar("T")


async def on_loop(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, T]) -> T:
    """Run the work on this loop, whichever loop the caller is on; its result."""
    if asyncio.get_running_loop() is loop:
        return await work
    return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, loop))


def wait_on_loop(loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, T], instead: str) -> T:
    """Run the work on this loop, and wait for its result on the thread of a plain handler;
    :raises SyncInAsync: the thread has a running loop, which waiting would stop; ``instead`` is what to await there"""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run_coroutine_threadsafe(work, loop).result()
    work.close()
    raise SyncInAsync(f"this thread has a running event loop: use `await {instead}(...)`")


_log = logging.getLogger("headrace.worker")


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


def fast_loop() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """What makes the event loop of a worker process: uvloop where it is installed, else Python's own."""
    try:
        uvloop = importlib.import_module("uvloop")
    except ImportError:
        return None
    make: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return make


def tune_process() -> None:
    """Fit the interpreter to a worker: short-lived objects by the thousand, and a store's thread that wants its turn.

    What was loaded so far is left out of garbage collection, which then scans young objects less often: measured, the
    defaults cost a busy worker nearly half its time. The switch interval is how long a thread that comes back from the
    database waits for the interpreter while handlers compute.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)
    sys.setswitchinterval(0.0005)
