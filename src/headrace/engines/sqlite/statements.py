"""Writes as statements: they run one by one on a user's connection, within the user's transaction."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from uuid import UUID

import msgspec
from msgspec.structs import replace

from headrace.core.batch import Batch
from headrace.core.change import Applied, Change, Key, Note, Verdict, WasStale, judge
from headrace.core.job import Job
from headrace.core.status import Verb
from headrace.engine import InsertAnswer, Refused
from headrace.engine.statements import Statement, Statements
from headrace.engines.record import Micros, encode, key_of, labels_of, place_of, sort_out
from headrace.engines.record import too_many as too_many_profiles
from headrace.engines.refusing import refuse_jobs
from headrace.engines.sqlite.connection import reading, unfolded
from headrace.engines.sqlite.lines import interning, moving
from headrace.engines.sqlite.relations import Relations, follow
from headrace.engines.sqlite.rows import RECORD_TYPE, Reader, is_new, row_of_change, row_of_new

__all__ = ["applying", "inserting", "storing"]

_known = msgspec.json.Decoder(list[tuple[int, str, RECORD_TYPE]]).decode


def inserting(jobs: Sequence[Job]) -> Statements[list[InsertAnswer]]:
    """Store new jobs, in the order given."""
    refuse_jobs(jobs)
    places = [place_of(job) for job in jobs]
    # Within this transaction, not before it: it may have the lock of the file, and then no other connection can write.
    lines = yield from interning(dict.fromkeys(places))
    taken = [(job, line) for job, place in zip(jobs, places, strict=True) if (line := lines[place]) is not None]

    def insert(chosen: Sequence[int]) -> Statements[int]:
        at = Micros()
        rows = [row_of_new(*taken[index], at) for index in chosen]
        labels = [(place, label) for place, index in enumerate(chosen) for label in labels_of(taken[index][0])]
        before = int((yield Statement("SELECT last_seq FROM books", "")))
        yield Statement(unfolded("insert_rows"), encode((rows, labels, len(rows))))
        return before

    stored = iter((yield from storing([job for job, _ in taken], insert)))
    return [Refused(too_many_profiles()) if lines[place] is None else next(stored) for place in places]


def storing(
    jobs: Sequence[Job],
    insert: Callable[[Sequence[int]], Statements[int]],
    batch: Batch | None = None,
    *,
    whole: bool = False,
) -> Statements[list[InsertAnswer]]:
    """Store those jobs that are not stored yet, with their relations.

    ``insert`` writes the jobs at some places, and returns the order number before theirs; ``whole``: store all that are
    not stored yet, or none.
    """
    ids, keys, here, reader = dict[UUID, Job](), dict[str, UUID](), list[UUID](), Reader()
    names = encode([(job.id, key_of(job)) for job in jobs])
    for _, by, record in _known((yield Statement(reading("known"), names))):
        job = reader.job(record)
        ids[job.id] = job
        if by == "id":
            here.append(job.id)
        elif (key := key_of(job)) is not None:
            keys[key] = job.id
    relations = Relations(jobs)
    admission = yield from relations.looking()
    fresh, told = sort_out(jobs, here, keys, admission.refuses)
    if whole and admission.refused:
        return [Refused(next(iter(admission.refused.values())))] * len(jobs)
    before = (yield from insert(fresh)) if fresh else 0
    stored = [replace(jobs[index], seq=seq) for seq, index in enumerate(fresh, before + 1)]
    for job in stored:
        if not is_new(job):  # the insert has written only the fields of a new job
            yield from _write(Change(verb=Verb.SUBMIT, rev=1, job=job))
    yield from relations.storing(stored, batch)
    return admission.answers(told, ids | {job.id: job for job in stored})


def applying(change: Change) -> Statements[Verdict]:
    """Apply one change, if the job is still at its rev and has its owner."""
    here = encode((change.job.seq, change.rev))
    tied = yield Statement("SELECT tied FROM jobs WHERE seq = $1 ->> 0 AND rev = $1 ->> 1", here)
    if tied:
        if change.moves:
            yield from moving([change])
        yield from _write(change)
        yield from follow([change])
        if change.inserts:
            yield from inserting(change.inserts)
        return Applied(change.job, tied == "1" and Note.ENDED in change.notes)
    wanted = encode([(change.job.id, key_of(change.job) if change.key is Key.TAKE else None)])
    last, job, holder = Reader().sights((yield Statement(reading("second_look"), wanted)))[0]
    verdict = judge(change, last, job, holder)
    if verdict is None and job is not None:  # the order number of the job was not known
        verdict = yield from applying(replace(change, job=replace(change.job, seq=job.seq)))
    return verdict or WasStale(None)


def _write(change: Change) -> Statements[None]:
    yield Statement(unfolded("apply_row"), encode(row_of_change(change, Micros())))
