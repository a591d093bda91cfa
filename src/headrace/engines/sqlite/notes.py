"""Processing of notes on the writing thread, in one transaction with the changes that follow from them."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import Any
from uuid import UUID

import apsw
import msgspec

from headrace.core.batch import Batch
from headrace.core.change import Change, LeftOut, Note
from headrace.core.defaults import Rules
from headrace.core.job import Job
from headrace.core.lifecycle import family
from headrace.core.status import Status
from headrace.engines.sql.encoding import encode
from headrace.engines.sql.families import batch_of
from headrace.engines.sqlite.jobs.apply import ChangeSet
from headrace.engines.sqlite.jobs.relations import pass_on
from headrace.engines.sqlite.jobs.rows import jobs_of
from headrace.engines.sqlite.store.connection import ask, drive

__all__ = ["NoteProcessor", "batches_by_id"]

_statuses = msgspec.json.Decoder(frozenset[Status | None]).decode


def batches_by_id(connection: apsw.Connection, ids: Collection[UUID]) -> dict[UUID, Batch]:
    """Return the batches with these ids, as far as they are stored."""
    rows: list[Any] = connection.execute(ask("batches"), (encode(list(ids)),)).fetchall() if ids else []
    return {batch.id: batch for batch in map(batch_of, rows)}


class NoteProcessor:
    """Processes notes within the transaction that is open on a connection."""

    def __init__(self, connection: apsw.Connection, rules: Rules, now: datetime) -> None:
        self._connection, self._rules, self._now = connection, rules, now
        self.changes = list[Change]()
        """The changes of other jobs that followed from the notes."""
        self.left_out = list[LeftOut]()
        """What these changes should have inserted, and did not."""

    def process(self, limit: int) -> None:
        """Process notes in rounds, those that one round leaves in the next, as far as ``limit`` jobs that they concern.

        A row is a note and one of the jobs that it concerns.
        """
        while limit > 0:
            # One row more than is processed, to see whether the last note concerns more jobs.
            rows: list[Any] = self._connection.execute(ask("concerned"), (limit + 1,)).fetchall()
            taken = rows[:limit]
            if not taken:
                return
            self._round([(Note(kind), seq) for _, kind, seq in taken if seq is not None])
            self._delete(taken, rows[limit:])
            limit -= len(taken)

    def _delete(self, taken: list[Any], rest: list[Any]) -> None:
        """Delete notes that were processed; of one that concerns more jobs, remember how far it got."""
        last, _, seq = taken[-1]
        cut = bool(rest) and rest[0][0] == last
        self._connection.execute("DELETE FROM notes WHERE id < ?1 + ?2", (last, 0 if cut else 1))
        if cut:
            self._connection.execute("UPDATE notes SET cursor = ?2 WHERE id = ?1", (last, seq))

    def _round(self, concerned: list[tuple[Note, int]]) -> None:
        # All changes are decided before any is written, so that a job that is to be cancelled is not released first.
        orphaned = {seq for note, seq in concerned if note is Note.CANCELLED}
        stopped = {seq for note, seq in concerned if note is Note.STOPPED}
        ending = orphaned | stopped
        parents = self._parents({seq for _, seq in concerned})
        moving = dict.fromkeys(
            seq for _, seq in concerned if seq in ending or family.may_move(parents.get(seq, frozenset()))
        )
        jobs, changes = self._jobs(set(moving)), list[Change]()
        ids = {jobs[seq].spec.batch for seq in stopped if seq in jobs}
        cancelled = batches_by_id(self._connection, {id for id in ids if id is not None})
        for seq in moving:
            job = jobs.get(seq)
            if job is None:
                continue
            batch = cancelled.get(job.spec.batch) if seq in stopped and job.spec.batch is not None else None
            waited_for = parents.get(seq, frozenset())
            change = family.follow(
                job, waited_for, self._now, self._rules, parent_cancelled=seq in orphaned, batch=batch
            )
            if change is not None:
                changes.append(change)
        if changes:
            writing = ChangeSet(changes)
            writing.write(self._connection)
            self.changes += changes
            self.left_out += [one for lost in writing.lost.values() for one in lost]
        drive(self._connection, pass_on([jobs[seq] for seq in moving if seq in orphaned and seq in jobs]))

    def _parents(self, seqs: set[int]) -> dict[int, frozenset[Status | None]]:
        """Return, for each of these jobs, the statuses of those that it waits for."""
        rows: list[Any] = self._connection.execute(ask("parents"), (encode(list(seqs)),)).fetchall()
        return {seq: _statuses(found) for seq, found in rows}

    def _jobs(self, seqs: set[int]) -> dict[int, Job]:
        if not seqs:
            return {}
        found = self._connection.execute(ask("records"), (encode(list(seqs)),)).get
        return {job.seq: job for job in jobs_of(found)}
