"""What an App has around its submits and runs, and after them: middleware, callbacks and resources."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from headrace.client.submission.middleware import SubmitMiddleware, SubmitNext, check_submit_middleware
from headrace.worker.execution.hooks import (
    MOMENTS,
    STATUSES,
    Callback,
    CallNext,
    Middleware,
    Moment,
    check_callbacks,
    check_middleware,
)
from headrace.worker.execution.resources import Maker, Resource
from headrace.worker.execution.tracing import Tracing
from headrace.worker.handler import Handler

__all__ = [
    "HOOKS",
    "CallNext",
    "Callback",
    "Hooked",
    "Hooks",
    "Middleware",
    "Resource",
    "SubmitMiddleware",
    "SubmitNext",
    "own_hooks",
]

M = TypeVar("M", bound=Middleware)
S = TypeVar("S", bound=SubmitMiddleware)
C = TypeVar("C", bound=Callback)
T = TypeVar("T")

HOOKS = ("middleware", *MOMENTS)
"""Options of a task that name functions."""


class Hooks:
    """The functions around a task, or around all tasks of an App."""

    def __init__(self) -> None:
        self.submit_middleware: list[SubmitMiddleware] = []
        self.middleware: list[Middleware] = []
        self.callbacks: dict[Moment, list[Callback]] = {moment: [] for moment in MOMENTS}
        self.resources: list[Resource[Any]] = []
        self.tracing: Tracing | None = None
        self._attached: dict[Handler, Hooks] = {}

    def attach(self, handler: Handler, own: Hooks) -> None:
        """Let a handler be called through all of these, also those still to come, and inside them through its own."""
        self._attached[handler] = own
        handler.tracing = self.tracing
        handler.surround([*self.middleware, *own.middleware])
        called = {STATUSES[one]: (*self.callbacks[one], *own.callbacks[one]) for one in MOMENTS}
        handler.callbacks = {status: found for status, found in called.items() if found} or None

    def renew(self) -> None:
        """Rebuild what handlers call: hooks were added."""
        for handler, own in self._attached.items():
            self.attach(handler, own)


def own_hooks(options: Mapping[str, Any]) -> Hooks:
    """What the options of a task name; :raises ConfigError: naming the option"""
    hooks = Hooks()
    given = options.get("middleware", ())
    hooks.middleware = [check_middleware(one) for one in (given if isinstance(given, list | tuple) else [given])]
    for moment in MOMENTS:
        hooks.callbacks[moment] = check_callbacks(options[moment], moment) if options.get(moment) else []
    return hooks


class Hooked:
    """The decorators of an App for what is around its tasks."""

    _hooks: Hooks
    _submit_middlewares: Sequence[SubmitMiddleware]
    """What is called around every submit, the outermost first."""

    @property
    def _resources(self) -> Sequence[Resource[Any]]:
        """The resources that a worker of this App opens, in this order."""
        return tuple(self._hooks.resources)

    @property
    def _tracing(self) -> Tracing | None:
        """What makes a span of every run, if anything does."""
        return self._hooks.tracing

    def _trace(self, tracing: Tracing) -> None:
        """Have a span made of every run; ``contrib.otel.instrument`` does that."""
        self._hooks.tracing = tracing
        self._hooks.renew()

    def submit_middleware(self, fn: S) -> S:
        """Call this around every submit: ``async def f(drafts, call_next): return await call_next(drafts)``.

        It may pass on drafts with other options (``draft.with_options(...)``), refuse them by raising, and read the
        handles. The first that was registered is the outermost.

        :raises ConfigError: it is no coroutine function of drafts and ``call_next``
        """
        self._hooks.submit_middleware.append(check_submit_middleware(fn))
        return fn

    def middleware(self, fn: M) -> M:
        """Call this around every run of every task: ``async def timed(ctx, call_next): return await call_next()``.

        The first that was registered is the outermost; those of a task (``@app.task(middleware=[...])``) are inside.

        :raises ConfigError: it is no coroutine function of a Context and ``call_next``
        """
        self._hooks.middleware.append(check_middleware(fn))
        self._hooks.renew()
        return fn

    def on_success(self, fn: C) -> C:
        """Call this with every job that completed in a worker of this App, after the store has accepted it."""
        return self._on("on_success", fn)

    def on_retry(self, fn: C) -> C:
        """Call this with every job that failed an attempt and will be retried: see its error and available_at."""
        return self._on("on_retry", fn)

    def on_failed(self, fn: C) -> C:
        """Call this with every job that failed its last attempt in a worker of this App."""
        return self._on("on_failed", fn)

    def on_cancelled(self, fn: C) -> C:
        """Call this with every job that a worker of this App stopped because of a cancel."""
        return self._on("on_cancelled", fn)

    def _on(self, moment: Moment, fn: C) -> C:
        self._hooks.callbacks[moment] += check_callbacks(fn, moment)
        self._hooks.renew()
        return fn

    def resource(self, fn: Maker[T]) -> Resource[T]:
        """Open this once per worker, before its first claim, and close it when the worker has stopped.

        A generator function that yields once, async or plain, or a function that makes a context manager. Handlers get
        what it yields by ``ctx.resource(db)``.

        :raises ConfigError: it is no such function
        """
        resource: Resource[T] = Resource(fn)
        self._hooks.resources.append(resource)
        return resource
