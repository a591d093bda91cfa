"""Jobs of a SQLite store: insert, claim, apply, promote, overdue, delete, get."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from uuid import UUID

import apsw
import msgspec
from msgspec.structs import replace

from headrace.core.batch import Batch
from headrace.core.change import Change, Verdict
from headrace.core.defaults import Rules
from headrace.core.job import Job
from headrace.core.lifecycle.claim import ClaimRequest, grant
from headrace.core.status import Status
from headrace.engine import MAX_BATCH, Claimed, Companions, Dead, InsertAnswer, Inserted, Overdue, OverdueJobs
from headrace.engines.sql.companions import Groups
from headrace.engines.sql.encoding import LOWEST, encode, micros, moment
from headrace.engines.sql.subqueues import Learned, Recounts
from headrace.engines.sqlite.jobs.apply import change_sets
from headrace.engines.sqlite.jobs.claim import Claiming
from headrace.engines.sqlite.jobs.insert import Insertion, LoneInsertion, Numbers, answering, is_one
from headrace.engines.sqlite.jobs.rows import RECORD_TYPE, jobs_of, reader
from headrace.engines.sqlite.jobs.subqueues import Subqueues, by_customer, realigning
from headrace.engines.sqlite.store.connection import ask as statement
from headrace.engines.sqlite.store.connection import drive
from headrace.engines.sqlite.store.thread import DbThread
from headrace.errors import NotOpen, Unstorable

__all__ = ["Jobs"]

_overdue = msgspec.json.Decoder(list[tuple[bool, int, int | None, bool, bool, RECORD_TYPE]], strict=False).decode


class Jobs:
    """The role ``jobs`` of one session. All writes go through one thread, a verb at a time."""

    def __init__(self, writer: DbThread, reader: DbThread, rules: Rules, recounts: Recounts) -> None:
        self._writer, self._reader, self._rules, self._recounts = writer, reader, rules, recounts
        self.forget()

    def forget(self) -> None:
        """Forget what was learned from a connection that is closed; called whenever the session is opened."""
        self.subqueues = Subqueues(self._writer, self._recounts)
        self.numbers = Numbers()
        """The numbers of lone jobs."""
        self._claiming = Claiming(self._rules)

    async def insert(
        self,
        jobs: Sequence[Job],
        now: datetime,
        batch: Batch | None = None,
        *,
        whole: bool = False,
        companions: Companions | None = None,
    ) -> list[InsertAnswer]:
        return await self.subqueues.insert(jobs, now, batch, whole, companions, self._insert, self._look)

    async def _look(self, jobs: list[Job]) -> dict[UUID, InsertAnswer]:
        def read(connection: apsw.Connection) -> dict[UUID, InsertAnswer]:
            connection.execute("BEGIN")
            found = drive(connection, answering(jobs))
            connection.execute("COMMIT")
            return found

        return await self._writer.run(read)

    async def _insert(
        self, jobs: list[Job], learned: Learned, batch: Batch | None, whole: bool, groups: Groups
    ) -> list[InsertAnswer]:
        insertion = Insertion(jobs, learned.subqueues_of(jobs), learned.collected, batch, whole, groups)
        stored = await self._writer.run(insertion.write)
        return stored if isinstance(stored, list) else insertion.inserted(stored)

    def insert_one(self, job: Job, now: datetime, done: Callable[[InsertAnswer | BaseException | None], None]) -> bool:
        known = self.subqueues.recall(job) if is_one(job) else None
        if known is None:
            return False
        try:
            insertion = LoneInsertion(job, *known, self.numbers)

            def over(seq: int | None, error: Exception | None) -> None:
                done(error or (Inserted(replace(job, seq=seq)) if seq else None))

            self._writer.begin(insertion.write_new, over)
        except (Unstorable, NotOpen):
            return False  # and ``insert`` reports it
        return True

    async def claim(self, worker: UUID, ask: ClaimRequest, request: int, now: datetime) -> Claimed | Dead:
        given, claiming = grant(worker, ask, request, now, self._rules), self._claiming
        head, records, limits = await self._writer.run(lambda connection: claiming.claim(connection, ask, given, now))
        if not head.alive:
            return Dead()
        due = min((at for at in (head.next_due, head.next_permit) if at is not None), default=None)
        next_due = None if due is None else moment(due)
        jobs = tuple(jobs_of(records))
        paced = frozenset[UUID]() if limits is None else limits.spending(jobs)
        return Claimed(jobs, head.profiles_rev, head.settings_rev, next_due, head.full, paced, head.over)

    async def apply(self, changes: Sequence[Change], now: datetime) -> list[Verdict]:
        verdicts: list[Verdict] = []
        # Each set has a commit of its own, so that repeating one repeats no other.
        for change_set in change_sets(changes, (self._recounts, now)):
            missed, seen = await self._writer.run(change_set.commit)
            found = change_set.applied()
            if missed:
                for place, judged in change_set.judged(missed, seen):
                    found[place] = (await self.apply([judged], now))[0] if isinstance(judged, Change) else judged
            verdicts += found
        return verdicts

    async def promote(self, now: datetime, limit: int = MAX_BATCH) -> int:
        def write(connection: apsw.Connection) -> int:
            connection.execute(statement("promote"), (micros(now), limit))
            return connection.changes()

        return await self._writer.run(write)

    async def realign(self, limit: int = MAX_BATCH) -> int:
        def write(connection: apsw.Connection) -> int:
            queues = encode(sorted(drive(connection, by_customer())))
            if connection.execute(statement("astray"), (queues, 1)).get is None:
                return 0  # without the lock of a writer, as nearly always
            connection.execute("BEGIN IMMEDIATE")
            queues = encode(sorted(drive(connection, by_customer())))
            found = [seq for (seq,) in connection.execute(statement("astray"), (queues, limit)).fetchall()]
            drive(connection, realigning(jobs_of(connection.execute(statement("records"), (encode(found),)).get)))
            connection.execute("COMMIT")
            return len(found)

        return await self._writer.run(write)

    async def overdue(self, now: datetime, limit: int = MAX_BATCH) -> OverdueJobs:
        records, [(found, next_at)] = reader(), await self._reader.fetch("overdue", micros(now), limit)
        jobs = tuple(
            Overdue(records.job(record), alive, unnamed, None if beat_at is None else moment(beat_at), *of_burial)
            for alive, unnamed, beat_at, *of_burial, record in _overdue(found)
        )
        return OverdueJobs(jobs, None if next_at is None else moment(next_at))

    async def delete(
        self,
        before: Mapping[Status, datetime],
        limit: int = MAX_BATCH,
        *,
        now: datetime | None = None,
        since: Mapping[Status, datetime] | None = None,
    ) -> int:
        if not before:
            return 0
        done = {} if since is None else {status: micros(at) for status, at in since.items()}
        moments = [(status, micros(at), done.get(status, LOWEST)) for status, at in before.items()]
        rows = await self._writer.fetch("delete", moments, limit, LOWEST if now is None else micros(now))
        removed: int = rows[0][0]
        return removed

    async def changed(self, known: Sequence[tuple[UUID, int]]) -> list[UUID]:
        rows = await self._reader.fetch("changed", list(known))
        return [known[place][0] for (place,) in rows]

    async def get(self, ids: Sequence[UUID]) -> list[Job | None]:
        [(found,)] = await self._reader.fetch("get", list(dict.fromkeys(ids)))
        jobs = {job.id: job for job in jobs_of(found)}
        return [jobs.get(id) for id in ids]
