"""Jobs and changes as the rows of the store: what goes in as JSON arrays, and what comes out as them."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec

from headrace.core.change import Change, Key
from headrace.core.job import ErrorInfo, Job, Progress, Spec, Streak
from headrace.core.status import Reason, Status
from headrace.errors import Unstorable

__all__ = [
    "Micros",
    "Moments",
    "Record",
    "encode",
    "job_of",
    "jobs_of",
    "key_of",
    "labels_of",
    "micros",
    "moment",
    "row_of_change",
    "row_of_new",
    "text",
]

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


def encode(document: Any) -> str:
    """JSON text for the store; refuses text that has no place in a database."""
    try:
        return _encode(document).decode()
    except UnicodeEncodeError as error:  # half of a surrogate pair
        raise Unstorable(f"text that is not valid Unicode cannot be stored: {error}") from error


class Record(msgspec.Struct, array_like=True):
    """A job as the view ``record`` gives it."""

    seq: int
    id: UUID
    status: Status
    available_at: int
    arrived_at: int
    updated_at: int
    reason: Reason | None
    rev: int
    epoch: int
    attempt: int
    charged: int
    unstarted_losses: int
    redrives: int
    waits: int
    worker: UUID | None
    claim: int | None
    act_by: int | None
    not_after: int | None
    assigned_at: int | None
    accepted_at: int | None
    started_at: int | None
    first_started_at: int | None
    finished_at: int | None
    cancel_requested_at: int | None
    streak: str | None
    progress: str | None
    result: str | None
    error: str | None
    payload: str
    spec: str


_records = msgspec.json.Decoder(list[Record]).decode
_spec = msgspec.json.Decoder(Spec).decode
_streak = msgspec.json.Decoder(Streak).decode
_progress = msgspec.json.Decoder(Progress).decode
_error = msgspec.json.Decoder(ErrorInfo).decode


def jobs_of(document: str) -> list[Job]:
    """The jobs in a JSON array of records."""
    moments = Moments()
    return [job_of(record, moments) for record in _records(document)]


def job_of(row: Record, at: Moments) -> Job:
    """The job a record describes."""
    return Job(
        id=row.id,
        spec=_spec(row.spec),
        payload_text=row.payload,
        status=row.status,
        available_at=at[row.available_at],  # type: ignore[arg-type]  # not null in the store
        arrived_at=at[row.arrived_at],  # type: ignore[arg-type]
        updated_at=at[row.updated_at],  # type: ignore[arg-type]
        seq=row.seq,
        reason=row.reason,
        rev=row.rev,
        epoch=row.epoch,
        attempt=row.attempt,
        charged=row.charged,
        unstarted_losses=row.unstarted_losses,
        redrives=row.redrives,
        waits=row.waits,
        worker=row.worker,
        claim=row.claim,
        act_by=at[row.act_by],
        not_after=at[row.not_after],
        assigned_at=at[row.assigned_at],
        accepted_at=at[row.accepted_at],
        started_at=at[row.started_at],
        first_started_at=at[row.first_started_at],
        finished_at=at[row.finished_at],
        cancel_requested_at=at[row.cancel_requested_at],
        streak=None if row.streak is None else _streak(row.streak),
        progress=None if row.progress is None else _progress(row.progress),
        result_text=row.result,
        error=None if row.error is None else _error(row.error),
    )


def key_of(job: Job) -> str | None:
    """The dedup key as the store keeps it: unique over all tasks."""
    return None if job.spec.dedup is None else encode((job.spec.task, job.spec.dedup))


def text(part: Any) -> str | None:
    """A part of a job that is kept as JSON text."""
    return None if part is None else encode(part)


def row_of_new(job: Job, line: int, at: Micros) -> tuple[Any, ...]:
    """A job as ``insert.sql`` takes it."""
    return (
        job.id,
        line,
        job.status,
        -job.spec.priority,
        at[job.arrived_at],
        at[job.available_at],
        at[job.updated_at],
        job.waits,
        at[job.act_by],
        at[job.not_after],
        None if job.spec.dedup is None or job.ended else key_of(job),
        job.payload_text,
        encode(job.spec),
    )


def labels_of(job: Job) -> Iterable[str]:
    """What the job is found by beside its line and status."""
    labels = {f"t{tag}" for tag in job.spec.tags}
    if job.spec.schedule is not None:
        labels.add(f"s{job.spec.schedule}")
    return labels


def row_of_change(change: Change, at: Micros) -> tuple[Any, ...]:
    """A change as ``apply.sql`` takes it."""
    job = change.job
    key: int | str | None = 0
    if change.key is not Key.KEEP and job.spec.dedup is not None:
        key = 1 if change.key is Key.RELEASE else key_of(job)
    return (
        job.seq,
        change.rev,
        job.rev,
        job.status,
        at[job.updated_at],
        job.epoch,
        job.attempt,
        job.charged,
        job.unstarted_losses,
        job.worker,
        job.claim,
        at[job.act_by],
        at[job.assigned_at],
        at[job.accepted_at],
        at[job.started_at],
        at[job.first_started_at],
        at[job.finished_at],
        at[job.available_at],
        at[job.arrived_at],
        at[job.not_after],
        at[job.cancel_requested_at],
        job.reason,
        text(job.streak),
        text(job.progress),
        job.redrives,
        job.waits,
        key,
        change.id,
    )
