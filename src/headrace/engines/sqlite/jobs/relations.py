"""Relations of new jobs, and the notes and counts that are written in the same commit as a change."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from uuid import UUID

import msgspec

from headrace.core.batch import Batch
from headrace.core.change import BatchTally, Change, Note
from headrace.core.job import Job
from headrace.core.lifecycle import family
from headrace.core.lifecycle.decision import ENDS, tally_of_new
from headrace.core.status import Status
from headrace.engine.transactions import Statement, Statements
from headrace.engines.sql.encoding import Micros, encode, keep_of, micros
from headrace.engines.sql.families import row_of_batch
from headrace.engines.sql.relations import Admission, Stand
from headrace.engines.sqlite.store.connection import ask

__all__ = ["Relations", "follow", "following", "pass_on"]

_Told = tuple[str, int, str | None]
"""A note as it is stored: its kind, the order number of its job, and the label of the jobs that it concerns."""

_Counts = tuple[UUID, BatchTally, datetime | None]
"""A batch, what is added to its counts, and when its submitter added to it."""

_ids = msgspec.json.Decoder(frozenset[UUID], strict=False).decode
_relatives = msgspec.json.Decoder(list[tuple[UUID, int, Status, bool]], strict=False).decode


def _notes_of(job: Job, notes: Iterable[Note]) -> list[_Told]:
    """Return the notes of a job except that of its end, which the change itself writes if others wait for the job."""
    return [
        (note, job.seq, f"p{job.id}" if note is Note.CANCELLED else None) for note in notes if note is not Note.ENDED
    ]


def _keeping(notes: Sequence[_Told], counts: Sequence[_Counts]) -> Statements[None]:
    """Write notes and add to batches, within the transaction of the changes that they belong to."""
    if notes:
        yield Statement(ask("note"), encode(notes))
    if counts:
        sums = dict[UUID, tuple[BatchTally, datetime | None]]()
        for batch, tally, at in counts:
            before, last = sums.get(batch, (BatchTally(), None))
            sums[batch] = (before.plus(tally), at if last is None or (at is not None and at > last) else last)
        rows = [
            (batch, tally.total, tally.completed, tally.failed, tally.cancelled, None if at is None else micros(at))
            for batch, (tally, at) in sums.items()
        ]
        yield Statement(ask("tally"), encode(rows))


class Relations:
    """The relations of new jobs."""

    def __init__(self, jobs: Sequence[Job]) -> None:
        self._jobs = jobs
        self._seqs = dict[UUID, int]()
        """The order numbers of the jobs that they name."""

    def looking(self) -> Statements[Admission]:
        """Read the jobs and batches that the new jobs name; the first step of the transaction that stores them."""
        ids = {id for job in self._jobs for id in (*job.spec.after, job.spec.parent) if id is not None}
        here, cancelled = dict[UUID, Stand](), frozenset[UUID]()
        if ids:
            for id, seq, status, asked in _relatives((yield Statement(ask("relatives"), encode(list(ids))))):
                self._seqs[id], here[id] = seq, (status, asked)
        if batches := {job.spec.batch for job in self._jobs if job.spec.batch is not None}:
            cancelled = _ids((yield Statement(ask("cancelled_batches"), encode(list(batches)))))
        return Admission(here, cancelled)

    def storing(self, stored: Sequence[Job], batch: Batch | None) -> Statements[None]:
        """Write the relations of these jobs, which were just stored, and the batch if there is one."""
        if batch is not None:
            yield Statement(ask("add_batch"), encode(row_of_batch(batch, Micros())))
        seqs = self._seqs | {job.id: job.seq for job in stored}
        edges = encode([(job.seq, seqs[id]) for job in stored for id in job.spec.after])
        if edges != "[]":
            yield Statement(ask("wait"), edges)
            yield Statement(ask("tie"), edges)
        if kept := [(job.seq, keep_of(job.spec.retention)) for job in stored if job.spec.retention is not None]:
            yield Statement(ask("keep"), encode(kept))
        notes = [note for job in stored for note in _notes_of(job, family.note_of_new(job))]
        counts: list[_Counts] = [
            (job.spec.batch, tally_of_new(job), job.updated_at) for job in stored if job.spec.batch is not None
        ]
        yield from _keeping(notes, counts)


def following(changes: Sequence[Change]) -> list[int]:
    """Return the indexes of those changes that leave a note other than ``ENDED``, or add to a batch."""
    return [
        place
        for place, change in enumerate(changes)
        if change.tally is not None or (change.notes and change.notes != ENDS)
    ]


def follow(changes: Iterable[Change]) -> Statements[None]:
    """Write the notes of changes that were applied, and what they add to batches."""
    notes, counts = list[_Told](), list[_Counts]()
    for change in changes:
        batch = change.job.spec.batch
        if batch is not None and change.tally is not None:
            counts.append((batch, change.tally, None))
        notes += _notes_of(change.job, change.notes)
    yield from _keeping(notes, counts)


def pass_on(cancelled: Iterable[Job]) -> Statements[None]:
    """Leave a note of cancel for the children of those jobs that had ended before their own parent was cancelled."""
    notes = [note for job in cancelled if family.passes_on(job) for note in _notes_of(job, (Note.CANCELLED,))]
    yield from _keeping(notes, ())
