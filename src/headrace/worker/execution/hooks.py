"""The user's callbacks, called after the end of an attempt is stored, and middleware, called around a run.

Both are checked where they are given; ``call`` calls the middleware.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextvars import Context as Variables
from typing import Any, Literal

from headrace.core.job import Job
from headrace.core.status import Status
from headrace.errors import ConfigError
from headrace.logs import labels
from headrace.worker.execution.context import Context
from headrace.worker.execution.errors import is_passing
from headrace.worker.process.threads import ThreadPool

__all__ = [
    "MOMENTS",
    "CallNext",
    "Callback",
    "CallbackQueue",
    "Callbacks",
    "Middleware",
    "Moment",
    "call_callbacks",
    "check_callbacks",
    "check_middleware",
]


_log = logging.getLogger("headrace.worker")

Callback = Callable[[Job], object | Awaitable[object]]
"""Is given the job as it was stored; a coroutine function runs on the worker's loop, a plain one in a thread."""

Moment = Literal["on_success", "on_retry", "on_failed", "on_cancelled"]

MOMENTS: tuple[Moment, ...] = ("on_success", "on_retry", "on_failed", "on_cancelled")

Callbacks = Mapping[Status, tuple[Callback, ...]]
"""What to call when an attempt left its job in a status."""

STATUSES: Mapping[Moment, Status] = {
    "on_success": Status.COMPLETED,
    "on_retry": Status.RETRYING,
    "on_failed": Status.FAILED,
    "on_cancelled": Status.CANCELLED,
}


def check_callbacks(given: Any, name: str) -> list[Callback]:
    """One callback or several; :raises ConfigError: naming the option"""
    found = list(given) if isinstance(given, list | tuple) else [given]
    for one in found:
        try:
            inspect.signature(one).bind(None)
        except ValueError:
            pass  # a builtin that does not say what it takes
        except TypeError:
            raise ConfigError(f"{name} takes a function of one job, or a list of such, not {one!r}") from None
    return found


class CallbackQueue:
    """Runs the callbacks of one worker, beside its jobs."""

    def __init__(self, threads: ThreadPool, variables: Variables, changed: Callable[[], None], *, most: int) -> None:
        """``changed`` is called whenever one is done; ``most``: for how many jobs callbacks may run at once."""
        self._threads, self._variables, self._changed = threads, variables, changed
        self._room = asyncio.Semaphore(most)
        self._tasks: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._tasks)

    def to(self, job: Job, callbacks: Callbacks) -> None:
        """Call the callbacks for what was stored, beside the jobs."""
        if job.status in callbacks:
            calling = self._call(job, callbacks)
            task = asyncio.create_task(calling, name="headrace-callbacks", context=self._variables.copy())
            self._tasks.add(task)
            task.add_done_callback(self._done)

    async def _call(self, job: Job, callbacks: Callbacks) -> None:
        async with self._room:
            await call_callbacks(job, callbacks, self._threads)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # logged already
        self._changed()

    def cancel(self) -> None:
        """Cancel the callbacks that are under way: nothing waits for them any longer."""
        for task in list(self._tasks):
            task.cancel()


async def call_callbacks(job: Job, callbacks: Callbacks, threads: ThreadPool) -> None:
    """Call the callbacks for what was stored, one after the other; their errors are logged."""
    for callback in callbacks.get(job.status, ()):
        try:
            await _call(callback, job, threads)
        except BaseException as error:  # a callback's SystemExit must not end the worker either
            if is_passing(error) and _is_stopped(error):
                _log.warning("job %s: %s was stopped with the worker", job.id, _name(callback), extra=labels(job))
                raise
            what = "job %s: %s raised; the job is %s all the same"
            _log.exception(what, job.id, _name(callback), job.status, extra=labels(job))


def _is_stopped(error: BaseException) -> bool:
    """Whether the callback was cancelled, rather than having raised the error by itself."""
    if not isinstance(error, asyncio.CancelledError):
        return True
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


async def _call(callback: Callback, job: Job, threads: ThreadPool) -> None:
    """Call it where it belongs and wait for it."""
    if inspect.iscoroutinefunction(callback) or inspect.iscoroutinefunction(getattr(callback, "__call__", None)):  # noqa: B004
        answer: Any = callback(job)
    else:
        answer = await threads.run(lambda: callback(job))
    if inspect.isawaitable(answer):
        await answer


def _name(callback: Callback) -> str:
    return str(getattr(callback, "__qualname__", callback))


CallNext = Callable[[], Awaitable[Any]]
"""Goes on with the run: the next middleware, in the end the handler itself; returns its result."""

Middleware = Callable[[Context, CallNext], Awaitable[Any]]
"""Is called around a run, on the worker's loop; what it returns is the result."""


_SHAPE = "a middleware is `async def name(ctx: Context, call_next) -> Any`"


def check_middleware(fn: Any, shape: str = _SHAPE) -> Any:
    """Refuse what cannot be called around something; ``shape`` says what is needed; :raises ConfigError:"""
    is_async = inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(getattr(fn, "__call__", None))  # noqa: B004
    if callable(fn) and is_async:
        try:
            inspect.signature(fn).bind(None, None)
        except TypeError:
            pass
        else:
            return fn
    raise ConfigError(f"{shape}, not {fn!r}")
