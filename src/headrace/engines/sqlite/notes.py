"""Tell: notes are worked off on the thread that writes, in one transaction with what follows from them."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import apsw
import msgspec

from headrace.core import family
from headrace.core.batch import Batch, stop
from headrace.core.change import Change, Note
from headrace.core.job import Job
from headrace.core.rules import Rules
from headrace.core.status import Status
from headrace.engine import Processed
from headrace.engines.record import encode, micros
from headrace.engines.sqlite import batches
from headrace.engines.sqlite.applying import ChangeSet
from headrace.engines.sqlite.connection import ask, drive
from headrace.engines.sqlite.db_thread import DbThread
from headrace.engines.sqlite.relations import pass_on
from headrace.engines.sqlite.rows import jobs_of

__all__ = ["process_notes"]

_statuses = msgspec.json.Decoder(frozenset[Status | None]).decode

_NOTES = "SELECT EXISTS (SELECT 1 FROM notes)"


async def process_notes(thread: DbThread, rules: Rules, now: datetime, limit: int) -> Processed:
    """Work off notes, as far as ``limit`` other jobs."""
    silent = micros(now - timedelta(seconds=rules.batch_silence))

    def write(connection: apsw.Connection) -> Processed:
        if not connection.execute(ask("to_tell"), (silent,)).get:
            return Processed()
        connection.execute("BEGIN IMMEDIATE")
        processing = _Processing(connection, rules, now)
        processing.go(limit)
        over: list[Batch] = batches.over(connection, silent, micros(now))
        more = bool(connection.execute(_NOTES).get)
        connection.execute("COMMIT")
        return Processed(tuple(processing.changes), tuple(over), more)

    return await thread.run(write)


class _Processing:
    """One transaction's work."""

    def __init__(self, connection: apsw.Connection, rules: Rules, now: datetime) -> None:
        self._connection, self._rules, self._now = connection, rules, now
        self.changes = list[Change]()

    def go(self, limit: int) -> None:
        """Tell notes in rounds, those that come of one in the next, until enough jobs have heard one."""
        while limit > 0:
            # One more than is told, to see whether the last note is told to its end.
            rows: list[Any] = self._connection.execute(ask("concerned"), (limit + 1,)).fetchall()
            heard = rows[:limit]
            if not heard:
                return
            self._hear([(Note(kind), seq) for _, kind, seq in heard if seq is not None])
            self._strike(heard, rows[limit:])
            limit -= len(heard)

    def _strike(self, heard: list[Any], rest: list[Any]) -> None:
        """Delete what was told; of a note with more jobs to hear it, remember how far it got."""
        last, _, seq = heard[-1]
        cut = bool(rest) and rest[0][0] == last
        self._connection.execute("DELETE FROM notes WHERE id < ?1 + ?2", (last, 0 if cut else 1))
        if cut:
            self._connection.execute("UPDATE notes SET cursor = ?2 WHERE id = ?1", (last, seq))

    def _hear(self, heard: list[tuple[Note, int]]) -> None:
        # All is decided before any of it is done, and who is doomed is not released first.
        doomed = {seq for note, seq in heard if note is Note.CANCELLED}
        stopped = {seq for note, seq in heard if note is Note.STOPPED} - doomed
        told = doomed | stopped
        parents = self._parents({seq for _, seq in heard} - told)
        moving = dict.fromkeys(seq for _, seq in heard if seq in told or family.may_move(parents.get(seq, frozenset())))
        jobs, changes = self._jobs(set(moving)), list[Change]()
        ids = {jobs[seq].spec.batch for seq in stopped if seq in jobs}
        cancelled = batches.by_id(self._connection, {id for id in ids if id is not None})
        for seq in moving:
            job = jobs.get(seq)
            if job is None:
                continue
            if seq in doomed:
                change = family.cancel_child(job, self._now, self._rules)
            elif seq in stopped and job.spec.batch is not None:
                change = stop(job, cancelled.get(job.spec.batch), self._now, self._rules)
            else:
                change = family.release(job, parents.get(seq, frozenset()), self._now)
            if change is not None:
                changes.append(change)
        if changes:
            ChangeSet(changes).write(self._connection)
            self.changes += changes
        drive(self._connection, pass_on([jobs[seq] for seq in moving if seq in doomed and seq in jobs]))

    def _parents(self, seqs: set[int]) -> dict[int, frozenset[Status | None]]:
        """In which statuses those are that a job waits for."""
        rows: list[Any] = self._connection.execute(ask("parents"), (encode(list(seqs)),)).fetchall()
        return {seq: _statuses(found) for seq, found in rows}

    def _jobs(self, seqs: set[int]) -> dict[int, Job]:
        if not seqs:
            return {}
        found = self._connection.execute(ask("records"), (encode(list(seqs)),)).get
        return {job.seq: job for job in jobs_of(found)}
