"""Inserting new jobs: in one statement, or as statements that run one by one within a user's transaction.

A lookup comes first only if an id, a dedup key or a request key is stored already.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any
from uuid import UUID

import apsw
import msgspec
from msgspec.structs import replace

from headrace.core.batch import Batch
from headrace.core.change import Change
from headrace.core.job import Job
from headrace.core.status import Status, Verb
from headrace.core.validation import is_text
from headrace.engine import Companions, InsertAnswer, Inserted, Refused
from headrace.engine.transactions import Statement, Statements
from headrace.engines.sql.companions import NO_GROUPS, Groups, Sorted
from headrace.engines.sql.encoding import (
    Micros,
    asked_for,
    encode,
    is_at_once,
    key_of,
    labels_of,
    micros,
    replaced,
    request_of,
    row_of_merge,
    sort_out,
)
from headrace.engines.sql.reader import Stored
from headrace.engines.sql.relations import answers_of_stored, is_related
from headrace.engines.sql.search.finder import BLOCK_SPAN_BITS
from headrace.engines.sql.subqueues import Collected, spot_of, stakes_of
from headrace.engines.sqlite.jobs.columns import PLAIN
from headrace.engines.sqlite.jobs.relations import Relations
from headrace.engines.sqlite.jobs.rows import (
    RECORD_TYPE,
    is_like,
    is_new,
    reader,
    row_like,
    row_of_change,
    row_of_new,
    row_of_one,
    row_of_plain,
)
from headrace.engines.sqlite.jobs.subqueues import Limited, by_customer, interning
from headrace.engines.sqlite.store.connection import ask, drive, reading, unfolded
from headrace.engines.validation import refuse_jobs

__all__ = ["Insertion", "LoneInsertion", "Numbers", "answering", "inserting", "is_one", "merging", "writing"]

_Args = tuple[str, str, str, int, str, int, str | None]
"""What ``insert.sql`` takes."""

_WAITING = Status.WAITING  # looked up once: in Python 3.11 that is a call
_known = msgspec.json.Decoder(list[tuple[str | None, RECORD_TYPE]]).decode
_merged = msgspec.json.Decoder(list[tuple[UUID, RECORD_TYPE]]).decode


class Insertion:
    """Jobs that are to be stored, encoded before they are passed to the thread."""

    def __init__(
        self,
        jobs: list[Job],
        subqueues: list[int],
        collected: int,
        of: Batch | None = None,
        whole: bool = False,
        groups: Groups = NO_GROUPS,
    ) -> None:
        self._jobs, self._subqueues, self._collected = jobs, subqueues, collected
        self._of, self._whole, self._groups = of, whole, groups
        self._new = all(is_new(job) for job in jobs)
        self.is_plain = self._new and of is None and not any(map(is_related, jobs)) and not asked_for(jobs)
        """Whether one statement stores them, unless an id or a key is stored already."""
        self._args = self._encode(range(len(jobs)))

    def _encode(self, chosen: Sequence[int]) -> _Args:
        rows, jobs, subqueues = self._rows(chosen), self._jobs, self._subqueues
        stakes = stakes_of((jobs[index] for index in chosen), (subqueues[index] for index in chosen))
        labels = [
            (place, label)
            for place, index in enumerate(chosen)
            if (spec := self._jobs[index].spec).tags
            or spec.schedule is not None
            or spec.parent is not None
            or spec.batch is not None
            or spec.customer is not None
            or spec.rerun_of is not None
            for label in labels_of(self._jobs[index])
        ]
        return (
            encode(rows),
            encode(labels),
            _requests(self._jobs[index] for index in chosen),
            len(rows),
            encode(_lists([jobs[index] for index in chosen], [subqueues[index] for index in chosen])),
            self._collected,
            encode(list(stakes)) if stakes else None,
        )

    def _rows(self, chosen: Sequence[int]) -> list[tuple[Any, ...]]:
        at, rows = Micros(), list[tuple[Any, ...]]()
        row, before, subqueue_before = (), None, 0
        for index in chosen:
            job, subqueue = self._jobs[index], self._subqueues[index]
            if before is not None and subqueue == subqueue_before and is_like(job, before):
                row = row_like(row, job)
            else:
                row = row_of_new(job, subqueue, at)
            rows.append(row)
            before, subqueue_before = job if self._new else None, subqueue
        return rows

    def write(self, connection: apsw.Connection) -> int | list[InsertAnswer]:
        """Store the jobs; return the order number of the first if all were new, else a reply for each."""
        if self.is_plain:
            try:
                return self._insert(connection, self._args) + 1
            except apsw.ConstraintError:
                pass  # an id or a key is stored already: find out which
        connection.execute("BEGIN IMMEDIATE")
        answers = self._sort_out(connection)
        connection.execute("COMMIT")
        return answers

    def write_new(self, connection: apsw.Connection) -> int:
        """Store plain jobs if all are new and their subqueues valid; return the order number of the first, else 0."""
        try:
            return self._insert(connection, self._args) + 1
        except (apsw.ConstraintError, Collected):
            return 0

    def inserted(self, first: int) -> list[InsertAnswer]:
        """Return the replies when all were new."""
        return [Inserted(replace(job, seq=seq)) for seq, job in enumerate(self._jobs, first)]

    def _insert(self, connection: apsw.Connection, args: _Args) -> int:
        """Write the rows; return the order number before that of the first."""
        try:
            last: int = connection.execute(ask("insert"), args).get
        except apsw.ConstraintError as error:
            if "were collected" in str(error) or "given up" in str(error):
                raise Collected from None
            raise
        return last - args[3]

    def _sort_out(self, connection: apsw.Connection) -> list[InsertAnswer]:
        def insert(chosen: Sequence[int]) -> Statements[int]:
            yield from ()
            return self._insert(connection, self._args if len(chosen) == len(self._jobs) else self._encode(chosen))

        return drive(connection, storing(self._jobs, insert, self._of, whole=self._whole, groups=self._groups))


class Numbers:
    """What the last lone job of a session leaves for the next one: its number, and where it is listed.

    Another session, or a batch of this one, may have taken the number meanwhile: its use fails then. An entry of the
    lists is removed when all jobs have higher numbers than those of its block: not before the last of these.
    """

    __slots__ = ("_listed", "_next")

    def __init__(self) -> None:
        self._next = 0
        self._listed: dict[int, tuple[int, int]] = {}
        """The last block of numbers and span of time with entries, by subqueue."""

    def next(self, subqueue: int, bucket: int) -> int:
        """Return the next number, if its block has this subqueue and this span of time listed; else 0."""
        number = self._next
        return number if self._listed.get(subqueue) == (number >> _SUBQUEUE_BLOCK_BITS, bucket) else 0

    def used(self, number: int) -> None:
        """Note that a job of this subqueue and time got the next number."""
        self._next = number + 1

    def learned(self, number: int, subqueue: int, bucket: int) -> None:
        """Note that a job got this number, and was listed."""
        if len(self._listed) >= _MAX_LISTED_SUBQUEUES:
            self._listed.clear()
        self._next = number + 1
        self._listed[subqueue] = number >> _SUBQUEUE_BLOCK_BITS, bucket


def is_one(job: Job) -> bool:
    """Whether ``LoneInsertion`` stores all there is of a job: it is new, and has no keys, labels or relations.

    If its subqueue is known, it need not be looked whether it has texts that cannot be kept: the others are in the
    subqueue.
    """
    spec = job.spec
    alone = spec.parent is spec.root is spec.batch is spec.rerun_of is None and not spec.after  # see ``is_related``
    unlabelled = spec.customer is spec.schedule is spec.dedup is spec.request_key is None and not spec.tags
    texts = "\0" not in job.payload_text and (spec.concurrency_key is None or is_text(spec.concurrency_key))
    return alone and unlabelled and texts and spec.retention is None and job.status is not _WAITING and is_new(job)


class LoneInsertion:
    """One new job, without keys, labels or relations, and only if the session knows its subqueue."""

    __slots__ = ("_bucket", "_collected", "_job", "_numbers", "_plain", "_row", "_subqueue")

    def __init__(self, job: Job, subqueue: int, collected: int, numbers: Numbers) -> None:
        self._job, self._subqueue, self._collected, self._numbers = job, subqueue, collected, numbers
        self._plain = self._row = None
        if is_at_once(job):
            self._plain = row_of_plain(job, subqueue)
            self._bucket: int = self._plain[_CREATED] >> BLOCK_SPAN_BITS
        else:
            self._row = row_of_one(job, subqueue, collected)
            self._bucket = micros(job.spec.created_at) >> BLOCK_SPAN_BITS

    def write_new(self, connection: apsw.Connection) -> int:
        """Store the job if it is new and its subqueue is valid; return its order number, else 0."""
        subqueue, bucket, numbers = self._subqueue, self._bucket, self._numbers
        if self._plain is not None and (number := numbers.next(subqueue, bucket)):
            try:
                connection.execute(_PLAIN, (number, self._collected, *self._plain))
            except apsw.ConstraintError:
                pass  # another job has the number, if not the id
            else:
                numbers.used(number)
                return number
        try:
            row = self._row or row_of_one(self._job, subqueue, self._collected)
            seq: int = connection.execute(_ONE, row).get
        except apsw.ConstraintError:  # also raised when subqueues were collected
            return 0
        numbers.learned(seq, subqueue, bucket)
        return seq


_ONE, _PLAIN = ask("insert_one"), ask("insert_plain")
_CREATED = [column.name for column in PLAIN].index("created_at")
_SUBQUEUE_BLOCK_BITS = 10
"""By how many bits order numbers are shifted for the list of blocks by subqueue; those by time are larger."""
_MAX_LISTED_SUBQUEUES = 1000
"""For how many subqueues the listed blocks are remembered."""


def _lists(jobs: Iterable[Job], subqueues: Iterable[int]) -> tuple[list[int], list[int]]:
    """Return the subqueues of jobs, and the spans of time in which they were created, for the lists of blocks."""
    specs = {id(job.spec): job.spec for job in jobs}  # jobs that were submitted together share theirs
    return list(set(subqueues)), list({micros(spec.created_at) >> BLOCK_SPAN_BITS for spec in specs.values()})


def _requests(jobs: Iterable[Job]) -> str:
    """Return the indexes of those jobs that have request keys, and these, as ``insert_rows.sql`` takes them."""
    return encode([(place, request_of(job)) for place, job in enumerate(jobs) if job.spec.request_key is not None])


def inserting(
    jobs: Sequence[Job], companions: Companions | None = None, *, limited: Limited | None = None
) -> Statements[list[InsertAnswer]]:
    """Store new jobs in order, each with its companions; only ``limited`` refuses some for lack of a profile."""
    groups = Groups(companions)
    joined = groups.joined(jobs)
    refuse_jobs(joined)
    queues = yield from by_customer()
    spots = {job.id: spot_of(job, queues) for job in joined}
    # Within this transaction, not before it: it may have the lock of the file, and then no other connection can write.
    subqueues, none = yield from interning(dict.fromkeys(spots.values()), limited)
    refused = groups.refusals({job.id: none[spots[job.id]] for job in joined if spots[job.id] in none})
    known: dict[UUID, InsertAnswer] = {id: Refused(why) for id, why in refused.items()}
    if refused:
        known |= yield from answering([job for job in jobs if job.id in refused])
    out = groups.of(refused)
    taken = [(job, subqueues[spots[job.id]]) for job in joined if job.id not in out]

    def insert(chosen: Sequence[int]) -> Statements[int]:
        at = Micros()
        rows = [row_of_new(*taken[index], at) for index in chosen]
        labels = [(place, label) for place, index in enumerate(chosen) for label in labels_of(taken[index][0])]
        before = int((yield Statement(ask("last_number"), "")))
        requests, lists = (
            _requests(taken[index][0] for index in chosen),
            _lists(*zip(*(taken[index] for index in chosen), strict=True)),
        )
        yield Statement(unfolded("insert_rows"), encode((rows, labels, requests, len(rows), lists)))
        return before

    new = [job for job, _ in taken]
    stored = yield from storing(new, insert, groups=groups)
    rest = iter(groups.leaders(zip(new, stored, strict=True)))
    return [known[job.id] if job.id in known else next(rest) for job in jobs]


def storing(
    jobs: Sequence[Job],
    insert: Callable[[Sequence[int]], Statements[int]],
    batch: Batch | None = None,
    *,
    whole: bool = False,
    groups: Groups = NO_GROUPS,
) -> Statements[list[InsertAnswer]]:
    """Store those jobs that are not stored yet, with their relations.

    ``insert`` writes the jobs at some indexes, and returns the order number before theirs; ``whole``: store all that
    are not stored yet, or none.
    """
    known, here, keys, requests = yield from _looking(jobs)
    merged = yield from _looking_for_merged(jobs)
    relations = Relations(jobs)
    looked = yield from relations.looking()

    def sort(jobs: Sequence[Job]) -> Sorted:
        admission = looked.anew()
        return *sort_out(jobs, here, keys, requests, admission.refuses, merged=merged), admission

    fresh, answers, refused = groups.sort_out(jobs, sort)
    if whole and refused:
        return [Refused(refused[0])] * len(jobs)
    before = (yield from insert(fresh)) if fresh else 0
    stored = [replace(jobs[index], seq=seq) for seq, index in enumerate(fresh, before + 1)]
    for job in stored:
        if not is_new(job):  # the insert has written only the fields of a new job
            yield from writing(Change(verb=Verb.SUBMIT, rev=1, job=job))
    yield from relations.storing(stored, batch)
    known |= {job.id: job for job in (*merged.values(), *stored)}
    return replaced(jobs, answers(known), merged)


def answering(jobs: Sequence[Job]) -> Statements[dict[UUID, InsertAnswer]]:
    """Return the replies for those of these jobs that are not new."""
    return answers_of_stored(jobs, (yield from _looking(jobs)), (yield from _looking_for_merged(jobs)))


def _looking(jobs: Sequence[Job]) -> Statements[Stored]:
    """Read which of these jobs are stored already."""
    names = encode([(job.id, key_of(job), request_of(job)) for job in jobs])
    return reader().stored(_known((yield Statement(reading("known"), names))))


def _looking_for_merged(jobs: Sequence[Job]) -> Statements[dict[UUID, Job]]:
    """Return the jobs that took over what was submitted under the ids of these, by these ids."""
    if not (ids := asked_for(jobs)):
        return {}
    rows = _merged((yield Statement(reading("merged"), encode(ids))))
    return {id: reader().job(record) for id, record in rows}


def writing(change: Change) -> Statements[None]:
    """Write the fields of the job of a change."""
    yield Statement(unfolded("apply_row"), encode(row_of_change(change, Micros())))
    if change.merges is not None:
        yield from merging(change)


def merging(change: Change) -> Statements[None]:
    """Write the payload of a submit that is merged into the job of this change, which was just applied."""
    yield Statement(ask("merge"), row_of_merge(change))
