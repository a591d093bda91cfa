"""Jobs and changes as the rows of the store: what goes in as JSON arrays, and what comes out as them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec

from headrace.core.change import Change, Key
from headrace.core.job import Attempt, ErrorInfo, Job, Progress, Spec, Streak
from headrace.core.status import DEFERRED, HELD, Outcome, Reason, Status
from headrace.errors import Unstorable

__all__ = [
    "STAGES",
    "Micros",
    "Moments",
    "Past",
    "Record",
    "State",
    "attempts_of",
    "encode",
    "job_of",
    "jobs_of",
    "key_of",
    "labels_of",
    "micros",
    "moment",
    "row_of_change",
    "row_of_new",
    "row_of_note",
]

STAGES: dict[Status, int] = {
    **dict.fromkeys(DEFERRED, 1),
    **dict.fromkeys(HELD, 3),
    Status.PENDING: 0,
    Status.WAITING: 0,
    Status.QUEUED: 2,
    Status.COMPLETED: 4,
    Status.FAILED: 5,
    Status.CANCELLED: 5,
}
"""What a status comes to for the indexes: a number they can be cut by, where a list of words is slow and brittle."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICRO = timedelta(microseconds=1)


def micros(moment: datetime) -> int:
    """A moment as it is stored."""
    return (moment - _EPOCH) // _MICRO


def moment(stored: int) -> datetime:
    """A stored moment."""
    return _EPOCH + timedelta(microseconds=stored)


class Micros(dict[datetime | None, int | None]):
    """Moments as they are stored, each worked out once: the jobs of one batch share most of theirs."""

    def __init__(self) -> None:
        super().__init__({None: None})

    def __missing__(self, key: datetime) -> int:
        self[key] = value = micros(key)
        return value


class Moments(dict[int | None, datetime | None]):
    """Stored moments, each worked out once."""

    def __init__(self) -> None:
        super().__init__({None: None})

    def __missing__(self, key: int) -> datetime:
        self[key] = value = moment(key)
        return value


_encode = msgspec.json.Encoder().encode


def encode(document: Any, by: Callable[[Any], bytes] = _encode) -> str:
    """JSON text for the store; refuses text that has no place in a database."""
    try:
        return by(document).decode()
    except UnicodeEncodeError as error:  # half of a surrogate pair
        raise Unstorable(f"text that is not valid Unicode cannot be stored: {error}") from error


class State(msgspec.Struct, array_like=True):
    """What no statement looks at, kept together: taking a row apart costs the store by the column."""

    attempt: int = 0
    charged: int = 0
    redrives: int = 0
    waits: int = 0
    not_after: int | None = None
    started_at: int | None = None
    first_started_at: int | None = None
    reason: Reason | None = None
    streak: Streak | None = None


class Record(msgspec.Struct, array_like=True):
    """A job as the view ``record`` gives it."""

    seq: int
    id: UUID
    status: Status
    available_at: int
    arrived_at: int
    updated_at: int
    rev: int
    epoch: int
    unstarted_losses: int
    worker: UUID | None
    claim: int | None
    act_by: int | None
    assigned_at: int | None
    accepted_at: int | None
    finished_at: int | None
    cancel_requested_at: int | None
    progress: str | None
    state: str | None
    payload: str
    spec: str
    result: str | None
    error: str | None


class Past(msgspec.Struct, array_like=True):
    """An attempt as it is kept; the count and the end come first, because folding looks for them."""

    count: int
    finished_at: int
    epoch: int
    outcome: Outcome
    worker: UUID | None
    assigned_at: int | None
    started_at: int | None
    cause: str | None
    error: ErrorInfo | None


_records = msgspec.json.Decoder(list[Record]).decode
_pasts = msgspec.json.Decoder(list[tuple[int, Past]]).decode
_spec = msgspec.json.Decoder(Spec).decode
_state = msgspec.json.Decoder(State).decode
_progress = msgspec.json.Decoder(Progress).decode
_error = msgspec.json.Decoder(ErrorInfo).decode
_NEW = State()


def jobs_of(document: str) -> list[Job]:
    """The jobs in a JSON array of records."""
    moments = Moments()
    return [job_of(record, moments) for record in _records(document)]


def job_of(row: Record, at: Moments) -> Job:
    """The job a record describes."""
    state = _NEW if row.state is None else _state(row.state)
    return Job(
        id=row.id,
        spec=_spec(row.spec),
        payload_text=row.payload,
        status=row.status,
        available_at=at[row.available_at],  # type: ignore[arg-type]  # not null in the store
        arrived_at=at[row.arrived_at],  # type: ignore[arg-type]
        updated_at=at[row.updated_at],  # type: ignore[arg-type]
        seq=row.seq,
        reason=state.reason,
        rev=row.rev,
        epoch=row.epoch,
        attempt=state.attempt,
        charged=state.charged,
        unstarted_losses=row.unstarted_losses,
        redrives=state.redrives,
        waits=state.waits,
        worker=row.worker,
        claim=row.claim,
        act_by=at[row.act_by],
        not_after=at[state.not_after],
        assigned_at=at[row.assigned_at],
        accepted_at=at[row.accepted_at],
        started_at=at[state.started_at],
        first_started_at=at[state.first_started_at],
        finished_at=at[row.finished_at],
        cancel_requested_at=at[row.cancel_requested_at],
        streak=state.streak,
        progress=None if row.progress is None else _progress(row.progress),
        result_text=row.result,
        error=None if row.error is None else _error(row.error),
    )


def attempts_of(document: str) -> tuple[Attempt, ...]:
    """The attempts in a JSON array of numbers and records."""
    at = Moments()
    return tuple(
        Attempt(
            number=number,
            epoch=past.epoch,
            outcome=past.outcome,
            finished_at=at[past.finished_at],  # type: ignore[arg-type]  # always known
            worker=past.worker,
            assigned_at=at[past.assigned_at],
            started_at=at[past.started_at],
            error=past.error,
            cause=past.cause,
            count=past.count,
        )
        for number, past in _pasts(document)
    )


def key_of(job: Job) -> str | None:
    """The dedup key as the store keeps it: unique over all tasks."""
    return None if job.spec.dedup is None else encode((job.spec.task, job.spec.dedup))


def row_of_new(job: Job, line: int, at: Micros) -> tuple[Any, ...]:
    """A job as ``insert.sql`` takes it."""
    return (
        job.id,
        line,
        job.status,
        STAGES[job.status],
        -job.spec.priority,
        at[job.arrived_at],
        at[job.available_at],
        at[job.updated_at],
        at[job.act_by],
        None if job.waits == 0 and job.not_after is None else _state_of(job, at),
        None if job.spec.dedup is None or job.ended else key_of(job),
        job.payload_text,
        encode(job.spec),
    )


def _state_of(job: Job, at: Micros) -> str:
    return encode(
        (
            job.attempt,
            job.charged,
            job.redrives,
            job.waits,
            at[job.not_after],
            at[job.started_at],
            at[job.first_started_at],
            job.reason,
            job.streak,
        )
    )


def _past_of(attempt: Attempt, at: Micros) -> str:
    return encode(
        (
            attempt.count,
            at[attempt.finished_at],
            attempt.epoch,
            attempt.outcome,
            attempt.worker,
            at[attempt.assigned_at],
            at[attempt.started_at],
            attempt.cause,
            attempt.error,
        )
    )


def labels_of(job: Job) -> Iterable[str]:
    """What the job is found by beside its line and status."""
    labels = {f"t{tag}" for tag in job.spec.tags}
    if job.spec.schedule is not None:
        labels.add(f"s{job.spec.schedule}")
    return labels


def row_of_change(change: Change, at: Micros) -> tuple[Any, ...]:
    """A change as ``apply.sql`` takes it."""
    job, attempt = change.job, change.attempt
    key: int | str | None = 0
    if change.key is not Key.KEEP and job.spec.dedup is not None:
        key = 1 if change.key is Key.RELEASE else key_of(job)
    return (
        job.seq,
        change.rev,
        job.rev,
        job.status,
        STAGES[job.status],
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
        _state_of(job, at),
        key,
        change.id,
        job.result_text,
        None if job.error is None else encode(job.error),
        None if attempt is None else attempt.number,
        None if attempt is None else _past_of(attempt, at),
        None if change.event is None else encode(change.event),
    )


def row_of_note(change: Change, at: Micros) -> tuple[Any, ...]:
    """A progress report as ``apply.sql`` takes it."""
    job = change.job
    progress = None if job.progress is None else encode(job.progress)
    return (job.seq, change.rev, progress, at[job.updated_at])
