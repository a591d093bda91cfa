"""Calling a handler through what is wrapped around it."""

from __future__ import annotations

import asyncio
import inspect
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

from headrace.core.job import Job
from headrace.core.outcome import Completed, Ending, Failed, Snoozed
from headrace.errors import ConfigError, HandlerFailed, Snooze, Stopped
from headrace.handler import Handler
from headrace.worker.children import Children
from headrace.worker.context import Context
from headrace.worker.perform import ending_of, is_late
from headrace.worker.pools import ThreadPool
from headrace.worker.streaming import invoke

__all__ = ["CallNext", "Middleware", "call_wrapped", "check_middleware"]

CallNext = Callable[[], Awaitable[Any]]
"""Goes on with the run: the next middleware, in the end the handler itself; gives its result."""

Middleware = Callable[[Context, CallNext], Awaitable[Any]]
"""Is called around a run, on the worker's loop; what it returns is the result."""


def check_middleware(fn: Any) -> Middleware:
    """Refuse what could not be called around a run; :raises ConfigError: saying what is needed"""
    is_async = inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(getattr(fn, "__call__", None))  # noqa: B004
    if callable(fn) and is_async:
        try:
            inspect.signature(fn).bind(None, None)
        except TypeError:
            pass
        else:
            good: Middleware = fn
            return good
    raise ConfigError(f"a middleware is `async def name(ctx: Context, call_next) -> Any`, not {fn!r}")


async def call_wrapped(
    handler: Handler, ctx: Context, job: Job, threads: ThreadPool | None, children: Children | None
) -> Ending:
    """Run the handler inside its middleware; the ending that follows from what the outermost one returned or raised.

    Whatever it returns is checked like a result, whatever it raises counts as raised by the handler.
    """

    before: Counter[str] | None = None

    async def innermost() -> Any:
        nonlocal before
        if before is None:
            before = ctx.places()
            if handler.mode == "async" and is_late(ctx):
                raise Stopped("shutdown")
        else:
            ctx.rewind(before)
            ctx.caller.begun()
        if handler.flows:
            return await invoke(handler, ctx, job)
        if handler.mode == "async":
            kwargs = handler.decode(job.payload_text)
            return await (handler.fn(ctx, **kwargs) if handler.takes_context else handler.fn(**kwargs))
        if handler.mode == "process" and threads is not None and children is not None:
            run, kill = lambda: children.run(handler, ctx, job), lambda: children.kill(ctx)
            return _value(handler, ctx, await _outlive(ctx, threads, run, kill))
        value, error = (
            _plain(handler, ctx, job)
            if threads is None
            else await _outlive(ctx, threads, lambda: _plain(handler, ctx, job))
        )
        if error is not None:
            raise error
        return value

    call: CallNext = innermost
    for one in reversed(handler.middleware):
        call = _around(one, ctx, call)
    return await ending_of(handler, ctx, call())


def _around(middleware: Callable[..., Awaitable[Any]], ctx: Context, call_next: CallNext) -> CallNext:
    async def call() -> Any:
        return await middleware(ctx, call_next)

    return call


def _plain(handler: Handler, ctx: Context, job: Job) -> tuple[Any, BaseException | None]:
    """Call a plain function on this very thread. An error is returned: not every kind can pass between threads."""
    if is_late(ctx):
        return None, Stopped("shutdown")
    entered = ctx.entered()
    try:
        kwargs = handler.decode(job.payload_text)
        return (handler.fn(ctx, **kwargs) if handler.takes_context else handler.fn(**kwargs)), None
    except BaseException as error:
        return None, error
    finally:
        ctx.left(entered)


async def _outlive(
    ctx: Context, threads: ThreadPool, call: Callable[[], Any], kill: Callable[[], None] = lambda: None
) -> Any:
    """Call on a thread. ``kill`` ends the call, if it can be ended.

    A worker that stops the run cancels the middleware, but waits for the call: its result counts, and its slot is taken
    until then.
    """
    calling = asyncio.ensure_future(threads.run(call))
    try:
        return await asyncio.shield(calling)
    except asyncio.CancelledError:
        if ctx.stopping is None:  # by somebody else, who does not want to wait
            calling.cancel()
            kill()
            raise
    return await calling


def _value(handler: Handler, ctx: Context, ending: Ending) -> Any:
    """The result or the error of a child, as if the function had been called here."""
    match ending:
        case Completed():
            return handler.decode_result(ending.result_text)
        case Snoozed():
            raise Snooze(ending.delay)
        case Failed():
            raise HandlerFailed(ending, ending.error)
        case _:
            raise Stopped(ctx.stopping or "shutdown")
