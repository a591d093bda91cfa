"""Call a handler where it belongs (this loop, a thread, a child process), inside its middleware; how that ended.

The items of a handler that streams are kept as they come, and parameters that are streams are opened.
"""

from __future__ import annotations

import asyncio
import traceback
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from functools import partial
from typing import TYPE_CHECKING, Any

from headrace.core.attempt import Completed, Ending, ErrorInfo, Failed, Released, Snoozed, TimedOut
from headrace.core.codec.value import StreamRef, decode_value
from headrace.core.defaults import Rules
from headrace.core.entry import Kind
from headrace.core.job import Job
from headrace.core.lifecycle.retry import error_names
from headrace.core.status import Reason
from headrace.errors import (
    GiveUp,
    HandlerFailed,
    HeadraceError,
    InvalidPayload,
    InvalidResult,
    NotSupported,
    RetryLater,
    Snooze,
    Stopped,
)
from headrace.runtime.watch.stream import Stream
from headrace.worker.execution.backoff import timed
from headrace.worker.execution.context import Context
from headrace.worker.execution.errors import is_passing, message_of
from headrace.worker.execution.writers import EntryWriter
from headrace.worker.handler import Described, Handler
from headrace.worker.process.threads import ThreadPool

if TYPE_CHECKING:
    from headrace.worker.process.pool import ProcessPool

__all__ = ["call", "call_async", "invoke", "is_late", "perform", "raised"]


async def invoke(handler: Handler, ctx: Context, job: Job) -> Any:
    """Call the function; what it returns, or how many items it yielded."""
    writer = ctx._caller.entry_writer()
    if writer is None:
        raise NotSupported("only a worker and a test harness run tasks with streams")
    kwargs = handler.decode(job.payload_text)
    for name, codec in handler.sources.items():
        if isinstance(ref := kwargs.get(name), StreamRef):
            decode = partial(decode_value, codec, what=f"{handler.name}: {name}")
            kwargs[name] = Stream(lambda: writer.writer.entry_reader, ref.stream, decode, ref.start)
    args = (ctx,) if handler.takes_context else ()
    if not handler.streams:
        return await handler.fn(*args, **kwargs)
    if writer.streamed:
        raise HeadraceError(f"{handler.name}: an attempt has one stream, which has begun; call_next was called again")
    if writer.attempt > 1:
        last = await writer.writer.engine.entries.tail(job.id, Kind.ITEM, limit=1, newest=True)
        writer.position = last[0].number if last else 0
    return await _consume(handler, handler.fn(*args, **kwargs), writer)


async def _consume(handler: Handler, generator: AsyncGenerator[Any, None], writer: EntryWriter) -> int:
    """Keep what it yields, as fast as the store takes it, until all of it is durable; how many there are."""
    count = 0
    async with aclosing(generator) as items:
        async for item in items:
            if not writer.streamed:
                count = _begin(writer)
            writer.add(Kind.ITEM, handler.encode_item(item))
            count += 1
            await writer.room()
    if not writer.streamed:
        count = _begin(writer)
    await writer.flush()
    return count


def _begin(writer: EntryWriter) -> int:
    """Begin the stream of this attempt; how many items it goes on behind."""
    writer.streamed = True
    if writer.resumes:
        writer.number_from(Kind.ITEM, writer.position)
        return writer.position
    if writer.position:
        writer.begin_anew()
    return 0


def is_late(ctx: Context) -> bool:
    """Whether a rate counts the job, and its handler may not be called any more."""
    left = ctx._caller.begins_within()
    return left is not None and left < 0


async def call(
    handler: Handler,
    ctx: Context,
    job: Job,
    threads: ThreadPool,
    children: ProcessPool | None = None,
    traced: bool = False,
) -> Ending:
    """Run the handler; how that ended. ``traced``: this is within the span of the run, if it has one.

    Cancelling the calling task cancels an async handler; the cancellation passes through. Without ``children``, what
    belongs in a child process runs in a thread.
    """
    if handler.tracing is not None and not traced:
        return await handler.tracing.run(ctx, partial(call, handler, ctx, job, threads, children, True))
    if handler.middleware:
        return await call_async(handler, ctx, job, _wrapped(handler, ctx, job, threads, children))
    if handler.flows:
        return await call_async(handler, ctx, job, partial(invoke, handler, ctx, job))
    if handler.mode == "async":
        return await call_async(handler, ctx, job)
    if handler.mode == "process" and children is not None:
        return await threads.run(lambda: children.run(handler, ctx, job))
    return await threads.run(lambda: perform(handler, ctx, job))


async def call_async(
    handler: Handler, ctx: Context, job: Job, through: Callable[[], Awaitable[Any]] | None = None
) -> Ending:
    """Run an async handler on this loop, or ``through`` what calls it; how that ended. A cancellation passes."""
    entered = ctx._entered()
    try:
        if through is not None:
            value = await through()
        else:
            kwargs = handler.decode(job.payload_text)
            value = await (handler.fn(ctx, **kwargs) if handler.takes_context else handler.fn(**kwargs))
        return Completed(handler.encode_result(value))
    except HandlerFailed as error:
        return error.ending  # as the child said it: its own traceback, its own names
    except BaseException as error:  # a handler's SystemExit must not end the worker
        if is_passing(error):
            raise
        return raised(error, handler, job)
    finally:
        ctx._left(entered)


def perform(handler: Handler, ctx: Context, job: Job) -> Ending:
    """Run a plain handler on this very thread."""
    text, error = _plain(handler, ctx, job, handler.encode_result)
    return Completed(text) if error is None else raised(error, handler, job)


def _plain(
    handler: Handler, ctx: Context, job: Job, encode: Callable[[Any], Any] | None = None
) -> tuple[Any, BaseException | None]:
    """Call a plain function on this very thread. An error is returned: not every kind can pass between threads."""
    if is_late(ctx):
        return None, Stopped("shutdown")
    entered = ctx._entered()
    try:
        kwargs = handler.decode(job.payload_text)
        value: Any = handler.fn(ctx, **kwargs) if handler.takes_context else handler.fn(**kwargs)
        return (value if encode is None else encode(value)), None
    except BaseException as error:  # a handler's SystemExit must not end the worker
        return None, error
    finally:
        ctx._left(entered)


def _wrapped(
    handler: Handler, ctx: Context, job: Job, threads: ThreadPool, children: ProcessPool | None
) -> Callable[[], Awaitable[Any]]:
    """What calls the handler inside its middleware. What the outermost returns is checked like a result, and what it
    raises counts as raised by the handler."""
    before: Counter[str] | None = None

    async def innermost() -> Any:
        nonlocal before
        if before is None:
            before = ctx._places()
            if handler.mode == "async" and is_late(ctx):
                raise Stopped("shutdown")
        else:
            ctx._rewind(before)
            ctx._caller.begun()
        if handler.flows:
            return await invoke(handler, ctx, job)
        if handler.mode == "async":
            kwargs = handler.decode(job.payload_text)
            return await (handler.fn(ctx, **kwargs) if handler.takes_context else handler.fn(**kwargs))
        if handler.mode == "process" and children is not None:
            run, kill = lambda: children.run(handler, ctx, job), lambda: children.kill(ctx)
            return _value(handler, ctx, await _outlive(ctx, threads, run, kill))
        value, error = await _outlive(ctx, threads, lambda: _plain(handler, ctx, job))
        if error is not None:
            raise error
        return value

    call: Callable[[], Awaitable[Any]] = innermost
    for middleware in reversed(handler.middleware):
        call = partial(middleware, ctx, call)
    return call


async def _outlive(
    ctx: Context, threads: ThreadPool, call: Callable[[], Any], kill: Callable[[], None] = lambda: None
) -> Any:
    """Call on a thread. ``kill`` ends the call, if it can be ended. A worker that stops the run cancels the middleware,
    but waits for the call, which has its slot: its result counts."""
    calling = asyncio.ensure_future(threads.run(call))
    try:
        return await asyncio.shield(calling)
    except asyncio.CancelledError:
        if ctx.stopping is None:  # cancelled from elsewhere, where nothing waits for it
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


def raised(error: BaseException, handler: Handler, job: Job) -> Ending:
    """What an error that came out of a handler means for its job."""
    match error:
        case Snooze():
            return Snoozed(error.delay)
        case Stopped(why=why):
            return TimedOut() if why == "timed_out" else Released()
        case RetryLater():
            return Failed(error=_info(error, trace=False), delay=error.delay)
        case GiveUp():
            return Failed(error=_info(error, trace=False, details=error.details), reason=Reason.NON_RETRYABLE)
        case InvalidPayload():
            return Failed(
                error=_info(error, trace=False, details={"field": error.field}), reason=Reason.INVALID_PAYLOAD
            )
        case InvalidResult():
            return Failed(error=_info(error, trace=False), reason=Reason.INVALID_RESULT)
        case _:
            described = _described(error, handler)
            reason = Reason.NON_RETRYABLE if described.final else None
            info = _info(error, details=described.details)
            return timed(Failed(error=info, names=error_names(type(error)), reason=reason), handler, job, error)


def _described(error: BaseException, handler: Handler) -> Described:
    if handler.describe is None:
        return Described()
    try:
        return handler.describe(error)
    except Exception:  # its own attributes may raise: the error is kept without them
        return Described()


def _info(error: BaseException, *, trace: bool = True, details: dict[str, Any] | None = None) -> ErrorInfo:
    text = None
    if trace and error.__traceback__ is not None:
        # The first frame is this module's own call of the handler.
        frames = error.__traceback__.tb_next or error.__traceback__
        try:
            text = "".join(traceback.format_exception(type(error), error, frames))
        except BaseException as unprintable:
            text = f"<the traceback cannot be shown: {type(unprintable).__name__}>"
    return ErrorInfo(type(error).__qualname__, message_of(error), text, details or None).cut(Rules().error_limit)
