"""The role ``records``: find and count jobs, their histories, and their positions."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from headrace.core.books import Book, ledger_book
from headrace.core.explain.position import MOST, WINDOW, Position
from headrace.core.job import History, Job
from headrace.core.query import Filter, Page, cursor_of, matches
from headrace.core.status import DEFERRED, Status
from headrace.engines.postgres.columns import WORDS
from headrace.engines.postgres.connection import askable, sql
from headrace.engines.postgres.pool import Pool, fetching
from headrace.engines.postgres.rows import Reader, label
from headrace.engines.sql.attempts import history_of
from headrace.engines.sql.record import labels_asked, micros, stages_of
from headrace.engines.sql.records import NEWEST, SqlRecords, page_of, position_asked, position_of
from headrace.engines.sql.verifying import book_of, counting, settings_book

__all__ = ["Records"]

_SEEN = "CASE WHEN j.stage = 1 AND j.available_at <= ? THEN 'queued' ELSE j.status END = ANY (?::text[])"
_LABELLED = "j.seq IN (SELECT seq FROM {schema}.labels WHERE label = ?)"
_OF_TASK = (
    "j.line = ANY (ARRAY("
    "SELECT l.id FROM {schema}.lines l JOIN {schema}.profiles p ON p.id = l.profile WHERE p.task = ?))"
)
_OF_QUEUE = "j.line = ANY (ARRAY(SELECT id FROM {schema}.lines WHERE queue = ?))"
_CHUNK = 500


class Records(SqlRecords):
    """The role ``records`` of one session."""

    def __init__(self, hot: Pool, search: Pool, schema: str) -> None:
        super().__init__(fetching(hot, schema), fetching(search, schema))
        self._pool, self._schema = search, schema

    async def history(self, id: UUID) -> History:
        rows = await self._search("history", id)
        return history_of(*rows[0]) if rows else History()

    async def find(self, filter: Filter, now: datetime, limit: int = 50, cursor: str | None = None) -> Page[Job]:
        below = cursor_of(cursor)
        place = NEWEST if below is None else below
        if not askable(filter.task, filter.queue, filter.tag, filter.schedule):
            return Page(())  # the store can contain no such text
        text, terms = self._question(filter, now)
        found: list[Job] = []
        while len(found) <= limit:
            # Of the jobs that the server finds by text, some may not match, so more are read at once.
            chunk = limit + 1 - len(found) if filter.text is None else _CHUNK
            rows = await self._pool.fetch(text, place, chunk, *terms)
            jobs = Reader().jobs(rows)
            found += [job for job in jobs if matches(job, filter, now)]
            if len(jobs) < chunk:
                break
            place = jobs[-1].seq
        return page_of(found, limit, now, cursor)

    def _question(self, filter: Filter, now: datetime) -> tuple[str, list[Any]]:
        """The statement for a filter, and its parameters from the third on.

        It has only the terms that were given: others would keep it from using an index.
        """
        given: list[Any] = []
        terms: list[str] = []

        def add(term: str, *values: Any) -> None:
            for value in values:
                given.append(value)
                term = term.replace("?", f"${len(given) + 2}", 1)
            terms.append(f"\n  AND {term}")

        if filter.status:
            # A deferred job that is due is seen as queued, but stored as deferred.
            among = filter.status | (DEFERRED if Status.QUEUED in filter.status else frozenset())
            add("j.stage = ANY (?::smallint[])", stages_of(among))
            add("j.status = ANY (?::text[])", sorted(among))
            add(_SEEN, micros(now), sorted(filter.status))
        if filter.task is not None:
            add(_OF_TASK, filter.task)
        if filter.queue is not None:
            add(_OF_QUEUE, filter.queue)
        if filter.suspect:
            add("j.stage <> 4")  # what has completed is not suspect
            add(WORDS["suspect"])
        for text in labels_asked(filter):
            add(_LABELLED, label(text))
        if filter.text is not None and askable(filter.text):
            given.append(filter.text.lower())
            add(sql("find_text", self._schema, text=f"${len(given) + 2}::text"))
        elif filter.text is not None:
            add("j.error IS NOT NULL")  # what others said may hold anything
        return sql("find", self._schema, terms="".join(terms)), given

    async def verify(self, book: str) -> Book:
        if book == "ledger":
            return ledger_book(await self.ledger())
        if book == "settings":
            return settings_book(await self._search("verify_settings"))
        statement = sql(f"verify_{book}", self._schema)
        return book_of(book, await self._pool.fetch(counting(book, statement, f"{self._schema}.")))

    async def position(self, job: Job, now: datetime, window: float = WINDOW, most: int = MOST) -> Position:
        return position_of(*(await self._read("position", *position_asked(job, now, window, most)))[0])
