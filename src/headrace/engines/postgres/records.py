"""Reading: jobs by id, by filter, and counted; and forgetting the old."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from headrace.core.job import Event, History, Job
from headrace.core.query import Count, Filter, Ledger, Page, as_seen, cursor_of, matches
from headrace.core.standing import Standing
from headrace.core.status import DEFERRED, LIVE, Status
from headrace.engines.postgres.arrays import literal
from headrace.engines.postgres.connection import askable, sql
from headrace.engines.postgres.pool import Pool
from headrace.engines.postgres.rows import Reader, label
from headrace.engines.record import Past, attempt_of, labels_asked, micros, moment, stages_of
from headrace.engines.standing import standing_asked, standing_of

__all__ = ["Reading"]

_NEWEST = 2**62
_SEEN = "CASE WHEN j.stage = 1 AND j.available_at <= ? THEN 'queued' ELSE j.status END = ANY (?::text[])"
_LABELLED = "j.seq IN (SELECT seq FROM {schema}.labels WHERE label = ?)"
_OF_TASK = (
    "j.line = ANY (ARRAY("
    "SELECT l.id FROM {schema}.lines l JOIN {schema}.profiles p ON p.id = l.profile WHERE p.task = ?))"
)
_OF_QUEUE = "j.line = ANY (ARRAY(SELECT id FROM {schema}.lines WHERE queue = ?))"
_CHUNK = 500
_DELTAS = 1000
"""Rows of the ledger beyond which they are summed up."""

_attempts = msgspec.json.Decoder(list[tuple[int, int, int | None, Past]]).decode
_events = msgspec.json.Decoder(tuple[Event, ...]).decode


class Reading:
    """The verbs that only look, for one session."""

    def __init__(self, hot: Pool, cold: Pool, search: Pool, schema: str) -> None:
        self._hot, self._cold, self._search, self._schema = hot, cold, search, schema

    async def get(self, ids: Sequence[UUID]) -> list[Job | None]:
        rows = await self._hot.fetch(sql("get", self._schema), list(dict.fromkeys(ids)))
        jobs = {job.id: job for job in Reader().jobs(rows)}
        return [jobs.get(id) for id in ids]

    async def standing(self, job: Job, now: datetime, window: float, most: int) -> Standing:
        rows = await self._hot.fetch(sql("standing", self._schema), *standing_asked(job, now, window, most))
        return standing_of(*rows[0])

    async def history(self, id: UUID) -> History:
        rows = await self._search.fetch(sql("history", self._schema), id)
        if not rows:
            return History()
        attempts, events = rows[0]
        return History(
            tuple(attempt_of(number, past, folded, until) for number, folded, until, past in _attempts(attempts)),
            _events(events),
        )

    async def find(self, filter: Filter, now: datetime, limit: int, cursor: str | None) -> Page[Job]:
        """The jobs that match, as seen now, newest first."""
        below = cursor_of(cursor)
        place = _NEWEST if below is None else below
        if not askable(filter.task, filter.queue, filter.tag, filter.schedule):
            return Page(())  # there is none
        text, terms = self._question(filter, now)
        found: list[Job] = []
        while len(found) <= limit:
            # What the server lets through for a text may still not match.
            chunk = limit + 1 - len(found) if filter.text is None else _CHUNK
            rows = await self._search.fetch(text, place, chunk, *terms)
            jobs = Reader().jobs(rows)
            found += [job for job in jobs if matches(job, filter, now)]
            if len(jobs) < chunk:
                break
            place = jobs[-1].seq
        items = tuple(as_seen(job, now) for job in found[:limit])
        if len(found) <= limit:
            return Page(items)
        return Page(items, str(items[-1].seq) if items else cursor)

    def _question(self, filter: Filter, now: datetime) -> tuple[str, list[Any]]:
        """The statement with the terms that are given, and no others, which would keep it from using an index; what is
        given, from the third parameter on."""
        given: list[Any] = []
        terms: list[str] = []

        def add(term: str, *values: Any) -> None:
            for value in values:
                given.append(value)
                term = term.replace("?", f"${len(given) + 2}", 1)
            terms.append(f"\n  AND {term}")

        if filter.status:
            # Also where they are stored: a deferred job that is due is seen as queued.
            among = filter.status | (DEFERRED if Status.QUEUED in filter.status else frozenset())
            add("j.stage = ANY (?::smallint[])", stages_of(among))
            add("j.status = ANY (?::text[])", sorted(among))
            add(_SEEN, micros(now), sorted(filter.status))
        if filter.task is not None:
            add(_OF_TASK, filter.task)
        if filter.queue is not None:
            add(_OF_QUEUE, filter.queue)
        for text in labels_asked(filter):
            add(_LABELLED, label(text))
        if filter.text is not None and askable(filter.text):
            given.append(filter.text.lower())
            add(sql("find_text", self._schema, text=f"${len(given) + 2}::text"))
        elif filter.text is not None:
            add("j.error IS NOT NULL")  # what others said may hold anything
        return sql("find", self._schema, terms="".join(terms)), given

    async def count(self, now: datetime) -> list[Count]:
        rows = await self._search.fetch(sql("count", self._schema), micros(now))
        counts = [
            Count(queue, Status(status), jobs, moment(oldest) if status in LIVE and oldest is not None else None)
            for queue, status, jobs, oldest in rows
        ]
        return sorted(counts, key=lambda count: (count.queue, count.status))

    async def ledger(self) -> Ledger:
        return Ledger(*(await self._search.fetch(sql("ledger", self._schema)))[0])

    async def delete(self, before: Mapping[Status, datetime], limit: int) -> int:
        """Remove up to ``limit`` ended jobs with all that is kept of them."""
        # As the text of an array: for any but one of texts the driver asks the server first, on each connection.
        moments = f"{{{','.join(str(micros(moment)) for moment in before.values())}}}"
        latest = max(map(micros, before.values()), default=0)
        text = sql("delete_old", self._schema) + sql("delete", self._schema, latest="$4::bigint")
        statuses = [str(status) for status in before]
        [(removed, tied)] = await self._hot.fetch(text, statuses, moments, limit, latest)
        count: int = removed
        if tied != "{}":
            async with self._hot.transaction() as connection:
                # Whoever begins to wait for one of these has committed before this, or comes too late.
                held = [seq for (seq,) in await connection.fetch(sql("hold_ended", self._schema), tied)]
                text = sql("delete_tied", self._schema) + sql("delete", self._schema, latest="$2::bigint")
                count += await connection.fetchval(text, literal(held), latest)
        await self._sum_up()
        return count

    async def _sum_up(self) -> None:
        """Keep the ledger short; it has grown by a row for each insert."""
        few = f"SELECT count(*) < {_DELTAS} FROM (SELECT 1 FROM {self._schema}.ledger LIMIT {_DELTAS}) t"
        if (await self._cold.fetch(few))[0][0]:
            return
        while (await self._cold.fetch(sql("sum_up", self._schema), _DELTAS * 10))[0][0] == _DELTAS * 10:
            pass
