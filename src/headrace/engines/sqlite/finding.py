"""Find: the shortest list of candidates that is sure to hold the answers, then one filter for all."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import apsw
import msgspec

from headrace.core.job import ErrorInfo, Job
from headrace.core.query import Filter, Page, as_seen, cursor_of
from headrace.core.status import DEFERRED, HELD, Status
from headrace.engines.record import encode, labels_asked, micros
from headrace.engines.refusing import has_halves
from headrace.engines.sqlite.connection import ask
from headrace.engines.sqlite.db_thread import DbThread
from headrace.engines.sqlite.rows import jobs_of

__all__ = ["GROUPS", "find", "prepare"]

GROUPS: tuple[frozenset[Status], ...] = (
    frozenset({Status.QUEUED}),
    DEFERRED,
    frozenset({Status.PENDING, Status.WAITING}),
    HELD,
    frozenset({Status.FAILED, Status.CANCELLED}),
)
"""Statuses with an index of their own; the completed are too many to be gathered and sorted."""

_NEWEST = 2**62

_error = msgspec.json.Decoder(ErrorInfo).decode


def prepare(connection: apsw.Connection) -> None:
    """Teach a reading connection to search text as ``core.query.matches`` does."""

    def mentions(*args: Any) -> bool:
        place, text = args
        return text in place.lower()

    def mentions_error(*args: Any) -> bool:
        document, text = args
        error = _error(document)
        return text in error.type.lower() or text in error.message.lower()

    connection.create_scalar_function("mentions", mentions, 2, deterministic=True)
    connection.create_scalar_function("mentions_error", mentions_error, 2, deterministic=True)


async def find(searcher: DbThread, filter: Filter, now: datetime, limit: int, cursor: str | None) -> Page[Job]:
    """The jobs that match, as seen now, newest first."""
    below = cursor_of(cursor)
    if has_halves(filter.task, filter.queue, filter.tag, filter.schedule, filter.text):
        return Page((), None)
    labels = labels_asked(filter)
    among = filter.status | (DEFERRED if Status.QUEUED in filter.status else frozenset())
    args = (
        _NEWEST if below is None else below,
        limit + 1,
        micros(now),
        encode(sorted(filter.status)) if filter.status else None,
        filter.task,
        filter.queue,
        encode(labels[1:]) if labels[1:] else None,
        labels[0] if labels else None,
        *(not group.isdisjoint(among) for group in GROUPS),
        None if filter.text is None else filter.text.lower(),
    )
    gathered = bool(filter.status) and Status.COMPLETED not in filter.status

    def read(connection: apsw.Connection) -> str:
        found: str = connection.execute(_source(connection, args, gathered) + ask("find"), args).get
        return found

    jobs = jobs_of(await searcher.run(read))
    items = tuple(as_seen(job, now) for job in jobs[:limit])
    if len(jobs) <= limit:
        return Page(items)
    return Page(items, str(items[-1].seq) if items else cursor)


def _source(connection: apsw.Connection, args: tuple[Any, ...], gathered: bool) -> str:
    """Where to look for candidates."""
    if args[7] is not None:
        return ask("find_by_label")
    rare = ask("find_by_status")
    if gathered and connection.execute(rare + ask("find_few"), args[:-1]).get:
        return rare
    return ask("find_by_seq")
