"""Jobs and changes as rows of the store: written as arrays, read as records."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any
from uuid import UUID

from msgspec.structs import replace

from headrace.core.change import Change, KeyEffect
from headrace.core.job import Job
from headrace.core.lifecycle.claim import Grant
from headrace.core.lifecycle.execution import DONE
from headrace.core.status import HELD
from headrace.engines.postgres.jobs.columns import (
    ALIKE,
    CHANGE,
    CLAIMED,
    COMPLETE,
    NEW,
    ONE,
    PLAIN,
    RECORD,
    REPORT,
    RUN,
    texts,
)
from headrace.engines.postgres.jobs.relations import notes_of, tally_in
from headrace.engines.postgres.store.connection import digest, lock_number
from headrace.engines.sql.columns import READ_STATE, fields_in, function, job_of, names, row, tuple_type
from headrace.engines.sql.columns import is_new as make_is_new
from headrace.engines.sql.encoding import EachMicros, Micros, Moments, encode, key_of, labels_of, request_of, stage_of
from headrace.engines.sql.reader import RecordReader, past_of

__all__ = [
    "ALIKE_IN_COMPLETE",
    "RECORD_TYPE",
    "TEXTS_OF_CHANGE",
    "TEXTS_OF_COMPLETE",
    "TEXTS_OF_REPORT",
    "TEXTS_OF_RUN",
    "Reader",
    "held_key",
    "is_new",
    "is_one",
    "key_lock",
    "label",
    "request_key",
    "request_lock",
    "row_at_once",
    "row_of_change",
    "row_of_complete",
    "row_of_new",
    "row_of_one",
    "row_of_report",
    "runs_of",
    "subqueues_lock",
]

if TYPE_CHECKING:
    RECORD_TYPE = tuple[Any, ...]
else:
    RECORD_TYPE = tuple_type(RECORD)
"""The type of a record within a document."""

_MAX_TEXT_CHARACTERS = 500
"""How many characters of a text are stored; longer ones by their digest: an index takes at most about 2,700 bytes."""

_NAMES = [column.name for column in RECORD]
_STATE = "state = read_state(state) if state is not None else "
_job: Callable[..., Job] = function(
    "job",
    f"at, specs, {names(RECORD)}",
    [
        "held = STATUS[status] in HELD",
        # The state of a job is not stored if its only attempt is charged, completed it, and has a stored start.
        f"{_STATE}NEW if number is None else State(number, 1, 0, 0, None, began, began)",
        job_of(column.read for column in RECORD),
    ],
    HELD=HELD,
    DONE=DONE,
)


_LATER = ("progress", "state", "unstarted_losses", "result", "error")
_FIRST = job_of(one.read if one.given is None else one.given for one in RECORD if one.name not in _LATER)
_claimed: Callable[..., Job] = function(
    "claimed",
    f"at, specs, pasts, given, {names(CLAIMED)}",
    [
        # Most jobs are as submitted, with none of these set. More than 15 keywords would take twice as long.
        f"job = {_FIRST}",
        "if progress is state is result is error is None and unstarted_losses == 0: return job",
        "job = replace(job, unstarted_losses=unstarted_losses, **pasts[state])",
        "if progress is result is error is None: return job",
        "progress, error = progress and read_progress(progress), error and read_error(error)",
        "replace(job, progress=progress, result_text=result, error=error)",
    ],
    replace=replace,
)

_past: Callable[[Moments, str], dict[str, Any]] = function(
    "past", "at, text", ["state = read_state(text)", f"dict({READ_STATE})"]
)
_NEW = _past(Moments(), "[]")


class _Pasts(dict[str | None, dict[str, Any]]):
    """What states have beyond those of new jobs, each read once: jobs lost together before they began have the same."""

    def __init__(self, at: Moments) -> None:
        super().__init__({None: {}})
        self._at = at

    def __missing__(self, text: str) -> dict[str, Any]:
        self[text] = past = {name: value for name, value in _past(self._at, text).items() if value != _NEW[name]}
        return past


class Reader(RecordReader):
    """Makes jobs from records, or from rows that a claim returned."""

    def __init__(self) -> None:
        super().__init__(_job, _NAMES)

    def claimed(self, rows: Iterable[Sequence[Any]], given: Grant) -> list[Job]:
        """Return the jobs in the rows that a claim returned."""
        at, specs = self._at, self._specs
        pasts = _Pasts(at)
        return [_claimed(at, specs, pasts, given, *row) for row in rows]


def held_key(job: Job) -> str | None:
    """Return the dedup key of a job as it is stored: unique over all tasks."""
    return _short(key_of(job))


def request_key(job: Job) -> str | None:
    """Return the request key of a job as it is stored: unique over all tasks and customers."""
    return _short(request_of(job))


def _short(key: str | None) -> str | None:
    return key if key is None or len(key) <= _MAX_TEXT_CHARACTERS else digest(key)


def request_lock(schema: str, job: Job) -> int:
    """Return the number of the advisory lock for the job's request key, for the transactions that use it."""
    return lock_number(schema, "request", request_key(job) or "")


def key_lock(schema: str, job: Job) -> int:
    """Return the number of the advisory lock for the job's dedup key, for those that take it, or free it for a user."""
    return lock_number(schema, "key", held_key(job) or "")


def subqueues_lock(schema: str) -> int:
    """Return the number of the advisory lock that is shared by all that put a job into a subqueue, and exclusive to a
    collection."""
    return lock_number(schema, "subqueues")


def label(text: str) -> str:
    """Return a label as it is stored."""
    return text if len(text) <= _MAX_TEXT_CHARACTERS else text[0] + digest(text)


def labels(job: Job) -> str | None:
    """Return the labels of a job as ``insert.sql`` takes them."""
    found = sorted({label(text) for text in labels_of(job)})
    return encode(found) if found else None


TEXTS_OF_RUN, TEXTS_OF_CHANGE = texts(RUN), texts(CHANGE)
TEXTS_OF_REPORT, TEXTS_OF_COMPLETE = texts(REPORT), texts(COMPLETE)
ALIKE_IN_COMPLETE = frozenset(place for place, column in enumerate(COMPLETE) if column.name in ALIKE)

is_new = make_is_new(NEW)

row_of_new: Callable[[Job, int, Micros], tuple[Any, ...]] = function(
    "row_of_new",
    "job, subqueue, at",
    [row(column.new for column in NEW)],
    stage_of=stage_of,
    held_key=held_key,
    request_key=request_key,
    labels=labels,
)
"""A job as ``insert_document.sql`` takes it."""

row_of_one: Callable[[Job, int, Micros], tuple[Any, ...]] = function(
    "row_of_one", "job, subqueue, at", [row(column.new for column in ONE)], stage_of=stage_of
)
"""A job as ``insert_one.sql`` takes it."""

row_at_once: Callable[[Job, int], tuple[Any, ...]] = function(
    "row_at_once", "job, subqueue", [row(column.new for column in PLAIN)], at=EachMicros()
)
"""A job that is queued at once as ``insert_one.sql`` takes it with the words ``OF_PLAIN``."""


def is_one(job: Job) -> bool:
    """Return whether ``insert_one.sql`` stores all of this job: no keys, no relatives, no labels, no retention."""
    spec = job.spec
    alone = spec.parent is spec.root is spec.batch is spec.rerun_of is None and not spec.after
    unkeyed = spec.dedup is spec.request_key is spec.concurrency_key is None
    unlabelled = spec.customer is spec.schedule is None and not spec.tags
    return alone and unkeyed and unlabelled and spec.retention is None and is_new(job)


_row_of_run: Callable[[int, int, Job, int, Micros], tuple[Any, ...]] = function(
    "row_of_run",
    "first, last, job, subqueue, at",
    [row(column.new or column.name for column in RUN)],
    stage_of=stage_of,
    labels=labels,
)

_alike: Callable[[Job, Job], bool] = function(
    "alike", "one, other", [" and ".join(f"one.{name} is other.{name}" for name in fields_in(RUN))]
)
"""Whether two new jobs differ only in id and payload; by identity, since jobs submitted together share the objects."""


def runs_of(jobs: Sequence[Job], subqueue: Callable[[Job], int]) -> tuple[list[UUID], list[str], list[tuple[Any, ...]]]:
    """Return the ids and payloads of new jobs, and their other columns once for each run, as ``insert.sql`` takes them.

    The jobs of a run are otherwise alike, like those that were submitted together.
    """
    at, runs, before = Micros(), list[tuple[Any, ...]](), jobs[0]
    first = 1
    for number, job in enumerate(jobs, 1):
        if not _alike(job, before):
            runs.append(_row_of_run(first, number - 1, before, subqueue(before), at))
            first = number
        before = job
    runs.append(_row_of_run(first, len(jobs), before, subqueue(before), at))
    return [job.id for job in jobs], [job.payload_text for job in jobs], runs


row_of_change: Callable[[int, Change, Micros], tuple[Any, ...]] = function(
    "row_of_change",
    "place, change, at",
    ["job, attempt = change.job, change.attempt", row(column.changed for column in CHANGE)],
    stage_of=stage_of,
    held_key=held_key,
    past_of=past_of,
    notes_of=notes_of,
    tally_in=tally_in,
    KEEP=KeyEffect.KEEP,
    RELEASE=KeyEffect.RELEASE,
)
"""A change as ``apply.sql`` takes it."""


_FOLLOWS = (
    "job.charged == 1 and job.first_started_at is job.started_at"
    " and job.redrives == job.waits == 0 and job.not_after is None and job.streak is None"
    " and job.moved_to is None and job.reprioritised_to is None and job.told is None"
)

row_of_complete: Callable[[int, Change, Micros], tuple[Any, ...]] = function(
    "row_of_complete",
    "place, change, at",
    [
        "job = change.job; progress = job.progress",
        "took = None if change.attempt is None else change.attempt.processing_time",
        # The state is left out where it follows from this attempt: those before it were lost before they began.
        f"follows = {_FOLLOWS}",
        row(column.changed for column in COMPLETE),
    ],
    RELEASE=KeyEffect.RELEASE,
    DONE=DONE,
)
"""The completion of a job by its worker, as ``complete.sql`` takes it."""

row_of_report: Callable[[int, Change, Micros], tuple[Any, ...]] = function(
    "row_of_report", "place, change, at", ["job = change.job", row(column.changed for column in REPORT)]
)
"""A report of progress as ``report.sql`` takes it."""
