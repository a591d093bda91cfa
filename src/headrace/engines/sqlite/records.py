"""Records of a SQLite store: find, count, history, ledger, usage, position.

They are read on connections that cannot write, so that no reader delays a writer.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

import apsw
import msgspec

from headrace.core.books import Book, ledger_book
from headrace.core.explain.position import MOST, WINDOW, Position
from headrace.core.job import ErrorInfo, History, Job
from headrace.core.query import Filter, Page, cursor_of
from headrace.core.status import DEFERRED, HELD, Status
from headrace.engines.refusing import has_halves
from headrace.engines.sql.attempts import history_of
from headrace.engines.sql.record import encode, labels_asked, micros
from headrace.engines.sql.records import NEWEST, SqlRecords, page_of, position_asked, position_of
from headrace.engines.sql.verifying import book_of, counting, settings_book
from headrace.engines.sqlite.connection import ask
from headrace.engines.sqlite.db_thread import DbThread
from headrace.engines.sqlite.rows import jobs_of

__all__ = ["GROUPS", "Records", "prepare"]

GROUPS: tuple[frozenset[Status], ...] = (
    frozenset({Status.QUEUED}),
    DEFERRED,
    frozenset({Status.PENDING, Status.WAITING}),
    HELD,
    frozenset({Status.FAILED, Status.CANCELLED}),
)
"""Statuses with an index of their own; the completed are too many to be gathered and sorted."""

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


class Records(SqlRecords):
    """The role ``records`` of one session.

    Statements that may look at many jobs run on a thread of their own, so that reads of single jobs need not wait.
    """

    def __init__(self, reader: DbThread, searcher: DbThread) -> None:
        super().__init__(reader.fetch, searcher.fetch)
        self._searcher = searcher

    async def find(self, filter: Filter, now: datetime, limit: int = 50, cursor: str | None = None) -> Page[Job]:
        below = cursor_of(cursor)
        if has_halves(filter.task, filter.queue, filter.tag, filter.schedule, filter.text):
            return Page((), None)
        labels = labels_asked(filter)
        among = filter.status | (DEFERRED if Status.QUEUED in filter.status else frozenset())
        if filter.suspect and not filter.status:
            among = frozenset(Status) - {Status.COMPLETED}
        args = (
            NEWEST if below is None else below,
            limit + 1,
            micros(now),
            encode(sorted(filter.status)) if filter.status else None,
            filter.task,
            filter.queue,
            encode(labels[1:]) if labels[1:] else None,
            labels[0] if labels else None,
            *(not group.isdisjoint(among) for group in GROUPS),
            None if filter.text is None else filter.text.lower(),
            filter.suspect,
        )
        gathered = bool(among) and Status.COMPLETED not in among

        def read(connection: apsw.Connection) -> str:
            found: str = connection.execute(_candidates(connection, args, gathered) + ask("find"), args).get
            return found

        jobs = jobs_of(await self._searcher.run(read))
        return page_of(jobs, limit, now, cursor)

    async def history(self, id: UUID) -> History:
        rows = await self._read("history", id)
        return history_of(*rows[0]) if rows else History()

    async def verify(self, book: str) -> Book:
        if book == "ledger":
            return ledger_book(await self.ledger())
        if book == "settings":
            return settings_book(await self._search("verify_settings"))
        statement = counting(book, ask(f"verify_{book}"))
        return book_of(book, await self._searcher.run(lambda connection: connection.execute(statement).fetchall()))

    async def position(self, job: Job, now: datetime, window: float = WINDOW, most: int = MOST) -> Position:
        *place, statuses, since = position_asked(job, now, window, most)
        return position_of(*(await self._search("position", *place, *statuses, since))[0])


def _candidates(connection: apsw.Connection, args: tuple[Any, ...], gathered: bool) -> str:
    """The shortest list of candidates that is sure to hold the answers, as the beginning of a statement."""
    if args[7] is not None:
        return ask("find_by_label")
    rare = ask("find_by_status")
    if gathered and connection.execute(rare + ask("find_few"), args[:-2]).get:
        return rare
    return ask("find_by_seq")
