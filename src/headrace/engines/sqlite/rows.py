"""Jobs and changes as the rows of the store: what goes in as JSON arrays, and what comes out as them."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import msgspec

from headrace.core.change import Change, Key, Note
from headrace.core.job import ErrorInfo, Job, Progress, Spec
from headrace.core.status import Status
from headrace.engines.record import Micros, Moments, State, encode, key_of, past_of, stage_of, state_of

__all__ = ["Record", "job_of", "jobs_of", "row_of_change", "row_of_new", "row_of_report"]


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


_records = msgspec.json.Decoder(list[Record]).decode
_spec = msgspec.json.Decoder(Spec).decode
_state = msgspec.json.Decoder(State).decode
_progress = msgspec.json.Decoder(Progress).decode
_error = msgspec.json.Decoder(ErrorInfo).decode
_NEW = State()
_ENDED = Note.ENDED


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


def row_of_new(job: Job, line: int, at: Micros) -> tuple[Any, ...]:
    """A job as ``insert.sql`` takes it."""
    return (
        job.id,
        line,
        job.status,
        stage_of(job),
        -job.spec.priority,
        at[job.arrived_at],
        at[job.available_at],
        at[job.updated_at],
        at[job.act_by],
        None if job.waits == 0 and job.not_after is None else state_of(job, at),
        None if job.spec.dedup is None or job.ended else key_of(job),
        job.payload_text,
        encode(job.spec),
        job.spec.concurrency_key,
    )


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
        _ENDED in change.notes,
    )


def row_of_report(change: Change, at: Micros) -> tuple[Any, ...]:
    """A progress report as ``apply.sql`` takes it."""
    job = change.job
    progress = None if job.progress is None else encode(job.progress)
    return (job.seq, change.rev, progress, at[job.updated_at])
