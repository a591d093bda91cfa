"""The relations of new jobs: their parents, the jobs they wait for, and their batches."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from uuid import UUID

import msgspec

from headrace.core.batch import Batch
from headrace.core.change import BatchTally, Change
from headrace.core.job import Job
from headrace.core.lifecycle import family
from headrace.core.lifecycle.decision import tally_of_new
from headrace.core.lifecycle.retention import Kept
from headrace.core.status import Status
from headrace.engine.transactions import Statement, Statements
from headrace.engines.postgres.store.connection import sql
from headrace.engines.postgres.store.drivers import Waiting
from headrace.engines.sql.encoding import Micros, encode, keep_of
from headrace.engines.sql.families import row_of_batch
from headrace.engines.sql.relations import Admission, Stand
from headrace.errors import Unavailable

__all__ = ["Relatives", "hold_relatives", "not_now", "notes_of", "relate", "tally_in"]

_relatives = msgspec.json.Decoder(list[tuple[UUID, Status | None, bool]]).decode

_open = msgspec.json.Decoder(list[tuple[UUID, bool | None]]).decode


def notes_of(change: Change) -> str | None:
    """Return the notes of a change, as a text of their first letters; None if it has none."""
    return "".join(note[0] for note in change.notes) or None


def tally_in(change: Change) -> str | None:
    """Return what a change adds to a batch: the batch, and how many more completed, failed and were cancelled."""
    if (tally := change.tally) is None:
        return None
    return encode((change.job.spec.batch, tally.completed, tally.failed, tally.cancelled))


class Relatives(msgspec.Struct, frozen=True):
    """The jobs and batches that new jobs are related to, locked until the transaction ends."""

    here: Mapping[UUID, Stand]
    held: frozenset[UUID]
    """The jobs and batches that another transaction has locked."""
    cancelled: frozenset[UUID] = frozenset()
    """The batches that were cancelled."""

    def busy(self, jobs: Iterable[Job], busy: Iterable[UUID]) -> set[UUID]:
        """Return the jobs that cannot be stored now: the given ones, and all related to these or to what is locked."""
        found = set(busy)
        for job in jobs:
            ids = _related_ids(job)
            held = job.spec.batch in self.held or not self.held.isdisjoint(ids)
            if held or not found.isdisjoint(ids):
                found.add(job.id)
        return found

    def admit(self) -> Admission:
        """Return a new admission of jobs, given these relatives."""
        return Admission(self.here, self.cancelled)

    def refuse(self, jobs: Iterable[Job]) -> bool:
        """Return whether some of these new jobs must be refused because of their relatives."""
        admission = self.admit()
        return any(admission.refuses(place, job) for place, job in enumerate(jobs))


def _related_ids(job: Job) -> tuple[UUID, ...]:
    spec = job.spec
    return spec.after if spec.parent is None else (spec.parent, *spec.after)


def hold_relatives(schema: str, jobs: Sequence[Job], *, wait: bool) -> Statements[Relatives]:
    """Lock the relatives of these jobs and their batches, so that what is read of them stays true until the commit.

    The batches must be stored. ``wait`` for those that another has locked; otherwise they are among ``held``.
    """
    cancelled, missed = yield from _hold_batches(schema, jobs, wait=wait)
    related = list(dict.fromkeys(id for job in jobs for id in _related_ids(job)))
    if not related:
        return Relatives({}, missed, cancelled)
    # A new child only has to keep its parent from being cancelled meanwhile; several children may do so at once. A job
    # that others wait for is written to.
    lock = "NO KEY UPDATE" if any(job.spec.after for job in jobs) else "SHARE"
    document, trying = encode(related), sql("relatives", schema, lock=f"{lock} SKIP LOCKED")
    waiting = Waiting(sql("relatives", schema, lock=lock), document, trying, lambda answer: not _skipped(answer))
    answer = _relatives((yield waiting if wait else Statement(trying, document)))
    missed |= frozenset() if wait else frozenset(id for id, status, _ in answer if status is None)
    return Relatives({id: (status, asked) for id, status, asked in answer if status is not None}, missed, cancelled)


def _hold_batches(
    schema: str, jobs: Sequence[Job], *, wait: bool
) -> Statements[tuple[frozenset[UUID], frozenset[UUID]]]:
    """Lock the batches of the jobs; return those that were cancelled, and those that another has locked."""
    ids = list(dict.fromkeys(job.spec.batch for job in jobs if job.spec.batch is not None))
    if not ids:
        return frozenset(), frozenset()
    # This lock keeps only a cancel waiting; counts can be added up meanwhile.
    lock = "KEY SHARE"
    document, trying = encode(ids), sql("open_batches", schema, lock=f"{lock} SKIP LOCKED")
    waiting = Waiting(sql("open_batches", schema, lock=lock), document, trying, _all_held)
    answer = _open((yield waiting if wait else Statement(trying, document)))
    missed = frozenset() if wait else frozenset(id for id, is_cancelled in answer if is_cancelled is None)
    return frozenset(id for id, is_cancelled in answer if is_cancelled), missed


def _skipped(answer: str) -> bool:
    return any(status is None for _, status, _ in _relatives(answer))


def _all_held(answer: str) -> bool:
    return all(is_cancelled is not None for _, is_cancelled in _open(answer))


def relate(schema: str, stored: Sequence[Job], batch: Batch | None = None) -> Statements[None]:
    """Store the relations of jobs that were just stored, and the batch unless it is stored already."""
    at = Micros()
    counts = dict[UUID, tuple[BatchTally, int]]()
    for job in stored:
        if job.spec.batch is not None:
            tally, last = counts.get(job.spec.batch, (BatchTally(), 0))
            counts[job.spec.batch] = (tally.plus(tally_of_new(job)), max(last, at[job.updated_at] or 0))
    document = {
        "edges": [(job.seq, job.spec.after) for job in stored if job.spec.after],
        "noted": [job.seq for job in stored if family.note_of_new(job)],
        "batches": [] if batch is None else [row_of_batch(batch, at)],
        "counts": [(id, *msgspec.structs.astuple(tally), last) for id, (tally, last) in counts.items()],
    }
    if any(document.values()):
        yield Statement(sql("relate", schema), encode(document))
    kept = dict[Kept, list[int]]()
    for job in stored:
        if job.spec.retention is not None:
            kept.setdefault(job.spec.retention, []).append(job.seq)
    for retention, seqs in kept.items():
        # By itself: one statement cannot write a row twice, and another new job may wait for this one.
        yield Statement(sql("keep", schema), encode({"keep": keep_of(retention), "seqs": seqs}))


def not_now(job: Job) -> Unavailable:
    """Return why a job is refused for now."""
    key = None if job.spec.dedup is None else f"the dedup key {job.spec.dedup!r} of {job.spec.task}"
    request = None if job.spec.request_key is None else f"the request key {job.spec.request_key!r} of {job.spec.task}"
    related = job.spec.parent is not None or job.spec.batch is not None or job.spec.after
    relatives = f"a job or batch that this {job.spec.task} belongs to or waits for" if related else None
    others = "what a job that goes with it needs"  # where nothing is wrong with the job itself
    held = " or ".join(one for one in (key, request, relatives) if one is not None) or others
    return Unavailable(f"{held} is in a transaction that is still open", ids=[job.id])
