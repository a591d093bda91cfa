"""The stream of a job: its items as they come, read by the owner of the job or by any observer."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Generic, TypeVar
from uuid import UUID

import msgspec

from headrace.core.codec.value import StreamRef
from headrace.core.entry import BEGIN, Cursor, Kind
from headrace.core.status import Status
from headrace.errors import ConfigError, JobCancelled, JobFailed, StreamRestarted

if TYPE_CHECKING:
    from headrace.engine import Engine
    from headrace.runtime.watch.entries import EntryReader

__all__ = ["Stream", "StreamItem", "newest"]

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class StreamItem(msgspec.Struct, Generic[T_co], frozen=True):
    """One item of a stream, and where it stands."""

    value: T_co
    attempt: int
    """Which attempt of the job yielded it."""
    number: int
    """Its place in the stream, from 1."""
    restarted: bool = False
    """Whether a new attempt began the stream again with this item: items read before no longer count."""


class Stream(Generic[T_co]):
    """The items of a job, from the first or behind ``start``, and those still to come until the job has ended.

    ``async for value in stream`` gives the values; ``stream.items()`` also gives the position of each. Each
    iteration reads by itself. A failed job raises ``JobFailed`` behind its items, a cancelled one ``JobCancelled``.
    """

    __headrace_stream__ = True

    def __init__(
        self,
        reader: Callable[[], EntryReader],
        id: UUID,
        decode: Callable[[str], Any],
        start: int | StreamItem[Any] = 0,
    ) -> None:
        if isinstance(start, bool) or not (isinstance(start, StreamItem) or (isinstance(start, int) and start >= 0)):
            raise ConfigError(f"start must be how many items to leave out, or the last item read, not {start!r}")
        self.id = id
        """The job."""
        self.start = start
        """How many items are left out, or the item it goes on behind."""
        self._reader, self._decode = reader, decode

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of job {self.id}>"

    def __aiter__(self) -> AsyncIterator[T_co]:
        """The values;
        :raises StreamRestarted: a new attempt began the stream anew: what was read before came from another"""
        return self._values()

    def items(self) -> AsyncGenerator[StreamItem[T_co], None]:
        """The values with their attempt and number; one that begins the stream anew is marked ``restarted``;
        :raises StreamRestarted: a new attempt began the stream anew, and yielded nothing that could be marked"""
        return self._items()

    def reference(self) -> StreamRef:
        """What represents it in the payload of a job that reads it."""
        return StreamRef(self.id, self.start if isinstance(self.start, int) else self.start.number)

    async def _values(self) -> AsyncGenerator[T_co, None]:
        async with aclosing(self._read()) as found:
            async for item in found:
                if isinstance(item, int):
                    raise StreamRestarted(self.id, item)
                yield item.value

    async def _items(self) -> AsyncGenerator[StreamItem[T_co], None]:
        anew: int | None = None
        async with aclosing(self._read()) as found:
            async for item in found:
                if isinstance(item, int):
                    anew = item
                else:
                    yield item if anew is None else msgspec.structs.replace(item, restarted=True)
                    anew = None
        if anew is not None:
            raise StreamRestarted(self.id, anew)

    async def _read(self) -> AsyncGenerator[StreamItem[T_co] | int, None]:
        """The items; the number of an attempt that begins anew comes before its first."""
        reader = self._reader()
        if isinstance(self.start, StreamItem):
            position, after = self.start.number, (self.start.attempt, self.start.number)
        else:
            position, after = self.start, await newest(reader.engine, self.id)
            # Within the attempt that is read first, what is left out need not even be fetched.
            after = (after[0], max(after[1], position))
        async with aclosing(reader.follow(self.id, Kind.ITEM, after)) as following:
            async for entries, job in following:
                for entry in entries:
                    if entry.number == 0:
                        if position > 0:
                            yield entry.attempt
                        position = 0
                    elif entry.number > position:
                        position = entry.number
                        yield StreamItem(self._decode(entry.data), entry.attempt, entry.number)
                if job is not None and job.status is Status.FAILED:
                    raise JobFailed(job, job.error)
                if job is not None and job.status is Status.CANCELLED:
                    raise JobCancelled(job)


async def newest(engine: Engine, id: UUID) -> Cursor:
    """Where the stream last began anew: what earlier attempts kept does not count any more."""
    last = await engine.entries.tail(id, Kind.ITEM, limit=1, newest=True)
    attempt = last[0].attempt if last else 0
    while attempt > 1:
        found = await engine.entries.tail(id, Kind.ITEM, (attempt, -1), 1)
        if not found:
            break  # the job and all it had are gone
        if found[0].number == 0:
            return found[0].cursor
        attempt -= 1
    return (attempt, BEGIN[1])
