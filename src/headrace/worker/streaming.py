"""Running what streams: a generator's items are kept as they come, and parameters that are streams are opened."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from functools import partial
from typing import Any

from headrace.core.entry import Kind
from headrace.core.job import Job
from headrace.core.outcome import Completed, Ending
from headrace.core.stream import StreamRef
from headrace.core.value import decode_value
from headrace.errors import HeadraceError, NotSupported
from headrace.handler import Handler
from headrace.stream import Stream
from headrace.worker.context import Context
from headrace.worker.perform import raised
from headrace.worker.raising import is_passing
from headrace.worker.scribe import Scribe

__all__ = ["call_flowing", "invoke"]


async def call_flowing(handler: Handler, ctx: Context, job: Job) -> Ending:
    """Run a handler that yields a stream or reads one, on this loop."""
    entered = ctx.entered()
    try:
        return Completed(handler.encode_result(await invoke(handler, ctx, job)))
    except BaseException as error:  # a handler's SystemExit must not end the worker
        if is_passing(error):
            raise
        return raised(error)
    finally:
        ctx.left(entered)


async def invoke(handler: Handler, ctx: Context, job: Job) -> Any:
    """Call the function; what it returns, or how many items it yielded."""
    scribe = ctx.voice.scribe()
    if scribe is None:
        raise NotSupported("only a worker and a test harness run tasks with streams")
    kwargs = handler.decode(job.payload_text)
    for name, codec in handler.sources.items():
        if isinstance(ref := kwargs.get(name), StreamRef):
            decode = partial(decode_value, codec, what=f"{handler.name}: {name}")
            kwargs[name] = Stream(lambda: scribe.lanes.tails, ref.stream, decode, ref.start)
    args = (ctx,) if handler.takes_context else ()
    if not handler.streams:
        return await handler.fn(*args, **kwargs)
    if scribe.streamed:
        raise HeadraceError(f"{handler.name}: an attempt has one stream, which has begun; call_next was called again")
    if scribe.attempt > 1:
        last = await scribe.lanes.engine.entries.tail(job.id, Kind.ITEM, limit=1, newest=True)
        scribe.position = last[0].number if last else 0
    return await _consume(handler, handler.fn(*args, **kwargs), scribe)


async def _consume(handler: Handler, generator: AsyncGenerator[Any, None], scribe: Scribe) -> int:
    """Keep what it yields, as fast as the store takes it, until all of it is durable; how many there are."""
    count, begun = 0, False

    def begin() -> None:
        nonlocal count, begun
        begun = scribe.streamed = True
        if scribe.resumes:
            count = scribe.position
            scribe.number_from(Kind.ITEM, count)
        elif scribe.position:
            scribe.begin_anew()

    async with aclosing(generator) as items:
        async for item in items:
            if not begun:
                begin()
            scribe.add(Kind.ITEM, handler.encode_item(item))
            count += 1
            await scribe.room()
    if not begun:
        begin()
    await scribe.flush()
    return count
