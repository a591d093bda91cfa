"""Running what streams: a generator's items are kept as they come, and parameters that are streams are opened."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from functools import partial
from typing import Any

from headrace.core.codec.stream import StreamRef
from headrace.core.codec.value import decode_value
from headrace.core.entry import Kind
from headrace.core.job import Job
from headrace.errors import HeadraceError, NotSupported
from headrace.handler import Handler
from headrace.stream import Stream
from headrace.worker.context import Context
from headrace.worker.entry_writer import EntryWriter

__all__ = ["invoke"]


async def invoke(handler: Handler, ctx: Context, job: Job) -> Any:
    """Call the function; what it returns, or how many items it yielded."""
    writer = ctx.caller.entry_writer()
    if writer is None:
        raise NotSupported("only a worker and a test harness run tasks with streams")
    kwargs = handler.decode(job.payload_text)
    for name, codec in handler.sources.items():
        if isinstance(ref := kwargs.get(name), StreamRef):
            decode = partial(decode_value, codec, what=f"{handler.name}: {name}")
            kwargs[name] = Stream(lambda: writer.lanes.entry_reader, ref.stream, decode, ref.start)
    args = (ctx,) if handler.takes_context else ()
    if not handler.streams:
        return await handler.fn(*args, **kwargs)
    if writer.streamed:
        raise HeadraceError(f"{handler.name}: an attempt has one stream, which has begun; call_next was called again")
    if writer.attempt > 1:
        last = await writer.lanes.engine.entries.tail(job.id, Kind.ITEM, limit=1, newest=True)
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
