"""What runs added to a job, a page at a time: lines of its log and items of its stream."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import aclosing
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import UUID

import msgspec

from headrace.core.codec.record import Record
from headrace.core.entry import BEGIN, Cursor, Entry, Kind, LogLine
from headrace.core.query import Page
from headrace.core.validation import whole
from headrace.engine import MAX_BATCH
from headrace.errors import ConfigError, shown
from headrace.runtime.watch.stream import StreamItem, newest

if TYPE_CHECKING:
    from headrace.client.session import Session

__all__ = ["StepResult", "item_page", "log_page", "log_tail", "steps"]

T = TypeVar("T")

ENTRY_PAGE_BYTES = 4 * 1024 * 1024
"""A page ends when it has so much, however few its entries are."""

_CURSOR = re.compile(r"([0-9]{1,9})\.([0-9]{1,9})", re.ASCII)


async def log_page(
    session: Session, id: UUID, limit: int, cursor: str | None, attempt: int | None = None
) -> Page[LogLine]:
    """Lines of a job's log behind a cursor, of one attempt or of all."""
    after = _place(cursor)
    if attempt is not None:
        after = max(after, (whole(attempt, "attempt", 0), BEGIN[1]))
    return await _page(session, id, Kind.LOG, after, limit, LogLine.of, attempt)


async def log_tail(session: Session, id: UUID, limit: int) -> tuple[list[LogLine], bool]:
    """The last lines of a job's log, the oldest of them first, and whether there are earlier ones."""
    entries = await session.engine.entries.tail(id, Kind.LOG, BEGIN, limit + 1, newest=True)
    found, size = list[LogLine](), 0
    for entry in reversed(entries[-limit:]):
        size += len(entry.data)
        if found and size > ENTRY_PAGE_BYTES:
            break
        found.append(LogLine.of(entry))
    return found[::-1], len(entries) > len(found)


async def item_page(session: Session, id: UUID, limit: int, cursor: str | None) -> Page[StreamItem[Any]]:
    """Items of a job's stream behind a cursor; without one, from where the stream last began anew."""
    after = _place(cursor) if cursor is not None else await newest(session.engine, id)
    # Behind a cursor where the stream began anew, and where that is met, what was read before counts no more.
    position, anew = max(after[1], 0), cursor is not None and after[0] > 0 and after[1] == 0

    def item(entry: Entry) -> StreamItem[Any] | None:
        nonlocal position, anew
        if entry.number == 0:
            position, anew = 0, anew or position > 0
        if entry.number <= position:
            return None
        made = StreamItem(msgspec.json.decode(entry.data), entry.attempt, entry.number, anew)
        position, anew = entry.number, False
        return made

    return await _page(session, id, Kind.ITEM, after, limit, item)


class StepResult(msgspec.Struct, Record, frozen=True):
    """What a durable step of a job returned."""

    name: str
    attempt: int
    """In which it was run."""
    at: datetime
    value: Any
    """As plain JSON values."""


async def steps(session: Session, id: UUID) -> list[StepResult]:
    """What the durable steps of a job returned, in their order."""
    found = await session.engine.entries.tail(id, Kind.STEP, BEGIN, MAX_BATCH)
    return [StepResult(one.name or "", one.attempt, one.at, msgspec.json.decode(one.data)) for one in found]


async def _page(
    session: Session,
    id: UUID,
    kind: Kind,
    after: Cursor,
    limit: int,
    read: Callable[[Entry], T | None],
    attempt: int | None = None,
) -> Page[T]:
    """What ``read`` makes of the entries behind a cursor; without a cursor of its own if nothing more can come."""
    found, size = list[T](), 0
    async with aclosing(session.writer.entry_reader.follow(id, kind, after, wait=False)) as chunks:
        async for entries, job in chunks:
            for entry in entries:
                if attempt is not None and entry.attempt != attempt:
                    return Page(tuple(found))
                if len(found) >= limit or size >= ENTRY_PAGE_BYTES:
                    return Page(tuple(found), _text(after))
                made = read(entry)
                found += () if made is None else (made,)
                after, size = entry.cursor, size + len(entry.data)
            if job is not None and (job.ended or (attempt is not None and job.attempt > attempt)):
                return Page(tuple(found))
    return Page(tuple(found), _text(after))


def _text(place: Cursor) -> str:
    return f"{place[0]}.{max(place[1], 0)}"


def _place(cursor: str | None) -> Cursor:
    if cursor is None:
        return BEGIN
    found = _CURSOR.fullmatch(cursor) if isinstance(cursor, str) else None
    if found is None:
        raise ConfigError(f"not a cursor of an earlier page: {shown(cursor)}")
    return int(found[1]), int(found[2])
