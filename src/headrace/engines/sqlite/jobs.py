"""Jobs of a SQLite store: insert, claim, apply, promote, overdue, delete, get."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from uuid import UUID

import apsw
import msgspec

from headrace.core.batch import Batch
from headrace.core.change import Change, Verdict
from headrace.core.claim import Ask, grant
from headrace.core.defaults import Rules
from headrace.core.job import Job
from headrace.core.status import Status
from headrace.engine import MAX_BATCH, Claimed, Dead, InsertAnswer, Overdue, Refused
from headrace.engines.record import Place, encode, micros, moment, place_of, too_many
from headrace.engines.refusing import refuse_jobs
from headrace.engines.sqlite.applying import change_sets
from headrace.engines.sqlite.claiming import Claiming
from headrace.engines.sqlite.connection import ask as statement
from headrace.engines.sqlite.db_thread import DbThread
from headrace.engines.sqlite.inserting import Collected, Insertion
from headrace.engines.sqlite.lines import intern
from headrace.engines.sqlite.rows import RECORD_TYPE, Reader, jobs_of

__all__ = ["Jobs"]

_overdue = msgspec.json.Decoder(list[tuple[bool, int, int | None, bool, RECORD_TYPE]], strict=False).decode


class Jobs:
    """The role ``jobs`` of one session. All that is written goes through one thread, a verb at a time."""

    def __init__(self, writer: DbThread, reader: DbThread, rules: Rules) -> None:
        self._writer, self._reader, self._rules = writer, reader, rules
        self.forget()

    def forget(self) -> None:
        """Forget what was learned from a connection that is closed; called whenever the session is opened."""
        self._lines: dict[Place, int] = {}
        self._collected = -1
        """The count of collections for which the remembered lines are valid."""
        self._claiming = Claiming(self._rules)

    async def insert(
        self, jobs: Sequence[Job], now: datetime, batch: Batch | None = None, *, whole: bool = False
    ) -> list[InsertAnswer]:
        refuse_jobs(jobs)
        whole = whole or batch is not None
        places = [place_of(job) for job in jobs]
        while True:
            refused = await self._learn(places)
            if refused and whole:
                return [Refused(too_many())] * len(jobs)
            taken = [at for at, place in enumerate(places) if place not in refused]
            lines = [self._lines[places[at]] for at in taken]
            insertion = Insertion([jobs[at] for at in taken], lines, self._collected, batch, whole)
            try:
                stored = await self._writer.run(insertion.write) if taken or batch is not None else []
            except Collected:
                self._lines.clear()
                continue
            found = stored if isinstance(stored, list) else insertion.inserted(stored)
            if len(taken) == len(jobs):
                return found
            answers: list[InsertAnswer] = [Refused(too_many())] * len(jobs)
            for at, answer in zip(taken, found, strict=True):
                answers[at] = answer
            return answers

    async def _learn(self, places: Sequence[Place]) -> set[Place]:
        """Intern the places whose lines this session does not know; the places that there is no room for."""
        refused: set[Place] = set()
        while missing := {place for place in places if place not in self._lines} - refused:
            collected, lines = await self._writer.run(lambda connection: intern(connection, missing))
            if collected != self._collected:
                self._lines.clear()
                refused.clear()
                self._collected = collected
            self._lines |= {place: line for place, line in lines.items() if line is not None}
            refused |= {place for place, line in lines.items() if line is None}
        return refused

    async def claim(self, worker: UUID, ask: Ask, request: int, now: datetime) -> Claimed | Dead:
        given, claiming = grant(worker, ask, request, now, self._rules), self._claiming
        head, jobs = await self._writer.run(lambda connection: claiming.claim(connection, ask, given, now))
        if not head.alive:
            return Dead()
        due = min((at for at in (head.next_due, head.next_permit) if at is not None), default=None)
        next_due = None if due is None else moment(due)
        return Claimed(tuple(jobs_of(jobs)), head.profiles_rev, head.settings_rev, next_due, head.full)

    async def apply(self, changes: Sequence[Change], now: datetime) -> list[Verdict]:
        verdicts: list[Verdict] = []
        # Each set has a commit of its own, so that repeating one repeats no other.
        for change_set in change_sets(changes):
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

    async def overdue(self, now: datetime, limit: int = MAX_BATCH) -> list[Overdue]:
        args, reader = (micros(now), limit), Reader()
        found = await self._reader.run(lambda connection: connection.execute(statement("overdue"), args).get)
        return [
            Overdue(reader.job(record), alive, unnamed, None if beat_at is None else moment(beat_at), beside_suspect)
            for alive, unnamed, beat_at, beside_suspect, record in _overdue(found)
        ]

    async def delete(self, before: Mapping[Status, datetime], limit: int = MAX_BATCH) -> int:
        args = (encode([(status, micros(at)) for status, at in before.items()]), limit)
        removed: int = await self._writer.run(lambda connection: connection.execute(statement("delete"), args).get)
        return removed

    async def get(self, ids: Sequence[UUID]) -> list[Job | None]:
        wanted = (encode(list(dict.fromkeys(ids))),)
        found = await self._reader.run(lambda connection: connection.execute(statement("get"), wanted).get)
        jobs = {job.id: job for job in jobs_of(found)}
        return [jobs.get(id) for id in ids]
