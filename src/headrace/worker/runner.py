"""Running one job's handler where it belongs: on this loop, in a thread, or in a child process."""

from __future__ import annotations

from headrace.core.job import Job
from headrace.core.outcome import Completed, Ending
from headrace.handler import Handler
from headrace.worker.children import Children
from headrace.worker.context import Context
from headrace.worker.middleware import call_wrapped
from headrace.worker.perform import ending_of, perform, raised
from headrace.worker.pools import ThreadPool
from headrace.worker.raising import is_passing
from headrace.worker.streaming import invoke

__all__ = ["call", "call_async"]


async def call(
    handler: Handler, ctx: Context, job: Job, threads: ThreadPool | None = None, children: Children | None = None
) -> Ending:
    """Run the handler; how that ended.

    Cancelling the calling task cancels an async handler; the cancellation passes through. Without ``threads`` and
    ``children`` everything runs right here.
    """
    if handler.middleware:
        return await call_wrapped(handler, ctx, job, threads, children)
    if handler.flows:
        return await ending_of(handler, ctx, invoke(handler, ctx, job))
    if handler.mode == "async":
        return await call_async(handler, ctx, job)
    if threads is None:
        return perform(handler, ctx, job)
    if handler.mode == "process" and children is not None:
        return await threads.run(lambda: children.run(handler, ctx, job))
    return await threads.run(lambda: perform(handler, ctx, job))


async def call_async(handler: Handler, ctx: Context, job: Job) -> Ending:
    """Run an async handler on this loop: ``ending_of`` without one more coroutine for each of many short jobs."""
    entered = ctx.entered()
    try:
        kwargs = handler.decode(job.payload_text)
        value = await (handler.fn(ctx, **kwargs) if handler.takes_context else handler.fn(**kwargs))
        return Completed(handler.encode_result(value))
    except BaseException as error:  # a handler's SystemExit must not end the worker
        if is_passing(error):
            raise
        return raised(error)
    finally:
        ctx.left(entered)
