"""Jobs and changes as the rows of the store: what goes in as arrays, and what comes out as records."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any
from uuid import UUID

import msgspec
from msgspec.structs import replace

from headrace.core.change import Change, Key
from headrace.core.claim import Grant
from headrace.core.job import ErrorInfo, Job, Progress, Spec
from headrace.core.lifecycle import DONE
from headrace.core.status import HELD, Status
from headrace.engines.postgres.connection import digest, lock_number
from headrace.engines.postgres.relations import notes_of, tally_in
from headrace.engines.record import Micros, Moments, State, encode, key_of, labels_of, past_of, stage_of, state_of

__all__ = [
    "RECORD",
    "TEXTS_OF_CHANGE",
    "TEXTS_OF_COMPLETE",
    "TEXTS_OF_REPORT",
    "TEXTS_OF_RUN",
    "Reader",
    "held_key",
    "key_lock",
    "label",
    "lines_lock",
    "row_of_change",
    "row_of_complete",
    "row_of_new",
    "row_of_report",
    "runs_of",
]

RECORD = tuple[
    int, UUID, Status, int, int, int, int, int, int, UUID | None, int | None, int | None, int | None, int | None,
    int | None, int | None, str | None, str | None, str, str, str | None, str | None, int | None, int | None,
]  # fmt: skip
"""A record within a document; as ``record.sql`` lists its columns."""

_encode = msgspec.json.Encoder().encode

_LONG = 500
"""Characters; what is longer is kept by its digest, because an index takes no more than about 2,700 bytes."""

_spec = msgspec.json.Decoder(Spec).decode
_state = msgspec.json.Decoder(State).decode
_progress = msgspec.json.Decoder(Progress).decode
_error = msgspec.json.Decoder(ErrorInfo).decode
_NEW = State()
_RELEASE = Key.RELEASE
_STATUS = {status.value: status for status in Status}


class Reader:
    """Makes jobs of records; remembers what those of one answer share."""

    def __init__(self) -> None:
        self._at = Moments()
        self._spec: Spec | None = None
        self._spec_text = ""

    def jobs(self, rows: Iterable[Sequence[Any]], skip: int = 0) -> list[Job]:
        """The jobs of records that begin after so many columns."""
        return [self.job(row, skip) for row in rows]

    def job(self, row: Sequence[Any], skip: int = 0) -> Job:
        """The job of a record."""
        (
            seq, id, status, available_at, arrived_at, updated_at, rev, epoch, losses, worker, claim, act_by,
            assigned_at, accepted_at, finished_at, cancel_at, progress, state_text, payload, spec_text, result, error,
            number, began,
        ) = row[skip:] if skip else row  # fmt: skip
        at = self._at
        held = _STATUS[status] in HELD
        if state_text is not None:
            state = _state(state_text)
        else:
            state = _NEW if number is None else State(number, number, 0, 0, None, began, began)
        return Job(
            id=id,
            spec=self._spec_of(spec_text),
            payload_text=payload,
            status=_STATUS[status],
            available_at=at[available_at],  # type: ignore[arg-type]  # not null in the store
            arrived_at=at[arrived_at],  # type: ignore[arg-type]
            updated_at=at[updated_at],  # type: ignore[arg-type]
            seq=seq,
            reason=state.reason,
            rev=rev,
            epoch=epoch,
            attempt=state.attempt,
            charged=state.charged,
            unstarted_losses=losses,
            redrives=state.redrives,
            waits=state.waits,
            worker=worker if held else None,
            claim=claim if held else None,
            act_by=at[act_by],
            not_after=at[state.not_after],
            assigned_at=at[assigned_at],
            accepted_at=at[accepted_at],
            started_at=at[state.started_at],
            first_started_at=at[state.first_started_at],
            finished_at=at[finished_at],
            cancel_requested_at=at[cancel_at],
            streak=state.streak,
            progress=self._progress_of(progress, number),
            result_text=result,
            error=None if error is None else _error(error),
        )

    def claimed(self, row: Sequence[Any], given: Grant) -> Job:
        """The job of a row that a claim answers."""
        (
            seq, id, available_at, arrived_at, rev, epoch, losses, progress, state_text, payload, spec_text, result,
            error, assigned_at,
        ) = row  # fmt: skip
        at = self._at
        claimed_at = at[assigned_at]
        job = Job(
            id=id,
            spec=self._spec_of(spec_text),
            payload_text=payload,
            status=given.status,
            available_at=at[available_at],  # type: ignore[arg-type]  # not null in the store
            arrived_at=at[arrived_at],  # type: ignore[arg-type]
            updated_at=claimed_at,  # type: ignore[arg-type]
            seq=seq,
            rev=rev,
            epoch=epoch,
            unstarted_losses=losses,
            worker=given.worker,
            claim=given.claim,
            act_by=given.act_by,
            assigned_at=claimed_at,
            accepted_at=None if given.accepted_at is None else claimed_at,
        )
        if state_text is None and progress is None and result is None and error is None:
            return job  # as submitted, which most are
        state = _NEW if state_text is None else _state(state_text)
        return replace(
            job,
            attempt=state.attempt,
            charged=state.charged,
            redrives=state.redrives,
            waits=state.waits,
            not_after=at[state.not_after],
            started_at=at[state.started_at],
            first_started_at=at[state.first_started_at],
            reason=state.reason,
            streak=state.streak,
            progress=None if progress is None else _progress(progress),
            result_text=result,
            error=None if error is None else _error(error),
        )

    @staticmethod
    def _progress_of(text: str | None, number: int | None) -> Progress | None:
        if text is not None:
            return _progress(text)
        return None if number is None else DONE

    def _spec_of(self, text: str) -> Spec:
        """What was asked for; jobs that were submitted together ask for the same."""
        if self._spec is None or text != self._spec_text:
            self._spec, self._spec_text = _spec(text), text
        return self._spec


def held_key(job: Job) -> str | None:
    """The dedup key as the store keeps it: unique over all tasks."""
    key = key_of(job)
    return key if key is None or len(key) <= _LONG else digest(key)


def key_lock(schema: str, job: Job) -> int:
    """The advisory lock that whoever takes or releases the job's key within a transaction of the user's holds."""
    return lock_number(schema, "key", held_key(job) or "")


def lines_lock(schema: str) -> int:
    """The advisory lock that whoever puts a job in line holds shared, and a collection of lines alone."""
    return lock_number(schema, "lines")


def label(text: str) -> str:
    """A label as the store keeps it."""
    return text if len(text) <= _LONG else text[0] + digest(text)


def _labels(job: Job) -> str | None:
    labels = sorted({label(text) for text in labels_of(job)})
    return encode(labels) if labels else None


TEXTS_OF_RUN = frozenset({10, 11, 12, 13})
TEXTS_OF_CHANGE = frozenset({4, 18, 19, 20, 22, 23, 25, 26, 27, 28})
TEXTS_OF_REPORT = frozenset({3})
TEXTS_OF_COMPLETE = frozenset({10, 11, 12, 13})


def row_of_new(job: Job, line: int, at: Micros) -> tuple[Any, ...]:
    """A job as ``insert_document.sql`` takes it."""
    return (
        job.id,
        line,
        job.status.value,
        stage_of(job),
        -job.spec.priority,
        at[job.arrived_at],
        at[job.available_at],
        at[job.updated_at],
        at[job.act_by],
        None if job.waits == 0 and job.not_after is None else state_of(job, at),
        job.payload_text,
        encode(job.spec),
        _labels(job),
        job.spec.concurrency_key,
    )


def runs_of(jobs: Sequence[Job], line: Callable[[Job], int]) -> tuple[list[UUID], list[str], list[tuple[Any, ...]]]:
    """The ids and the payloads of new jobs, and what else there is to say of them, as ``insert.sql`` takes it: once for
    each run of jobs that are otherwise alike, as those are that were submitted together."""
    at, runs, before = Micros(), list[tuple[int, int, Job]](), jobs[0]
    first = 1
    for number, job in enumerate(jobs, 1):
        if not _alike(job, before):
            runs.append((first, number - 1, before))
            first = number
        before = job
    runs.append((first, len(jobs), before))
    rows = []
    for first, last, job in runs:
        _, *kind, _, spec, labels, key = row_of_new(job, line(job), at)
        rows.append((first, last, *kind, spec, labels, key))
    return [job.id for job in jobs], [job.payload_text for job in jobs], rows


def _alike(one: Job, other: Job) -> bool:
    """Whether two new jobs differ in nothing but id and payload; by identity, which is how they share it."""
    return (
        one.spec is other.spec
        and one.status is other.status
        and one.arrived_at is other.arrived_at
        and one.available_at is other.available_at
        and one.updated_at is other.updated_at
        and one.act_by is other.act_by
        and one.not_after is other.not_after
        and one.waits == other.waits
    )


def row_of_change(place: int, change: Change, at: Micros) -> tuple[Any, ...]:
    """A change as ``apply.sql`` takes it."""
    job, attempt = change.job, change.attempt
    key: str | None = None
    if change.key is not Key.KEEP and job.spec.dedup is not None:
        key = "" if change.key is Key.RELEASE else held_key(job)
    return (
        place,
        job.seq,
        change.rev,
        job.rev,
        job.status.value,
        stage_of(job),
        at[job.updated_at],
        job.epoch,
        job.unstarted_losses,
        job.worker,
        job.claim,
        at[job.act_by],
        at[job.assigned_at],
        at[job.accepted_at],
        at[job.finished_at],
        at[job.available_at],
        at[job.arrived_at],
        at[job.cancel_requested_at],
        None if job.progress is None else encode(job.progress),
        state_of(job, at),
        key,
        change.id,
        job.result_text,
        None if job.error is None else encode(job.error),
        None if attempt is None else attempt.number,
        None if attempt is None else past_of(attempt, at),
        None if change.event is None else encode(change.event),
        notes_of(change),
        tally_in(change),
    )


def row_of_complete(place: int, change: Change, at: Micros) -> tuple[Any, ...]:
    """A complete of a worker's as ``complete.sql`` takes it. The state, and a progress of 100 %, are left out where
    they follow from the attempt that completed the job: the first and only one."""
    job = change.job
    follows = (
        job.attempt == job.charged == 1
        and job.first_started_at is job.started_at
        and job.redrives == job.waits == 0
        and job.not_after is None
        and job.streak is None
    )
    return (
        place,
        job.seq,
        change.rev,
        job.rev,
        at[job.finished_at],
        job.epoch,
        change.id,
        job.attempt,
        at[job.started_at],
        change.key is _RELEASE,
        None if job.progress is None or job.progress is DONE else encode(job.progress),
        None if follows else state_of(job, at),
        job.result_text,
        job.spec.batch,
    )


def row_of_report(place: int, change: Change, at: Micros) -> tuple[Any, ...]:
    """A report of progress as ``report.sql`` takes it."""
    job = change.job
    progress = None if job.progress is None else encode(job.progress)
    return (place, job.seq, change.rev, progress, at[job.updated_at])
