"""Reading: jobs by id, by filter, and counted; on a connection that cannot write, so that no reader delays a writer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from uuid import UUID

import msgspec

from headrace.core.job import Event, History, Job
from headrace.core.query import Count, Ledger
from headrace.core.standing import Standing
from headrace.core.status import LIVE, Status
from headrace.engines.record import attempts_of, encode, micros, moment
from headrace.engines.sqlite.connection import ask
from headrace.engines.sqlite.db_thread import DbThread
from headrace.engines.sqlite.rows import jobs_of
from headrace.engines.standing import standing_asked, standing_of

__all__ = ["Reading", "delete"]

_events = msgspec.json.Decoder(tuple[Event, ...]).decode
_counts = msgspec.json.Decoder(list[tuple[str, Status, int, int | None]]).decode


class Reading:
    """The verbs that only look, for one session."""

    def __init__(self, thread: DbThread, searcher: DbThread) -> None:
        self._thread, self._searcher = thread, searcher

    async def get(self, ids: Sequence[UUID]) -> list[Job | None]:
        wanted = (encode(list(dict.fromkeys(ids))),)
        found = await self._thread.run(lambda connection: connection.execute(ask("get"), wanted).get)
        jobs = {job.id: job for job in jobs_of(found)}
        return [jobs.get(id) for id in ids]

    async def standing(self, job: Job, now: datetime, window: float, most: int) -> Standing:
        *place, statuses, since = standing_asked(job, now, window, most)
        asked = (*place, *statuses, since)
        found = await self._searcher.run(lambda connection: connection.execute(ask("standing"), asked).get)
        return standing_of(*found)

    async def history(self, id: UUID) -> History:
        found = await self._thread.run(lambda connection: connection.execute(ask("history"), (id.bytes,)).get)
        return History() if found is None else History(attempts_of(found[0]), _events(found[1]))

    async def count(self, now: datetime) -> list[Count]:
        found = await self._searcher.run(lambda connection: connection.execute(ask("count"), (micros(now),)).get)
        return [
            Count(queue, status, jobs, moment(oldest) if status in LIVE and oldest is not None else None)
            for queue, status, jobs, oldest in _counts(found)
        ]

    async def ledger(self) -> Ledger:
        return Ledger(*await self._searcher.run(lambda connection: connection.execute(ask("ledger")).get))


async def delete(thread: DbThread, before: Mapping[Status, datetime], limit: int) -> int:
    """Remove up to ``limit`` ended jobs with all that is kept of them."""
    args = (encode([(status, micros(moment)) for status, moment in before.items()]), limit)
    removed: int = await thread.run(lambda connection: connection.execute(ask("delete"), args).get)
    return removed
