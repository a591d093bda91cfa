"""The events of a job, in one vocabulary for server-sent events and for the messages of a socket."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any, Literal
from uuid import UUID

import msgspec

from headrace.core.attempt import Attempt, ErrorInfo
from headrace.core.entry import Entry, LogLine
from headrace.core.job import Job, raw_json
from headrace.core.status import Outcome, Reason, Status
from headrace.core.updates import Place, Update

__all__ = [
    "Kind",
    "RetryTold",
    "StatusTold",
    "changes",
    "end_of",
    "ended_as",
    "item_of",
    "log_of",
    "position_of",
    "status_of",
]

Kind = Literal["status", "progress", "retry", "error", "result"]


class StatusTold(msgspec.Struct, frozen=True, kw_only=True):
    """The status of a job."""

    job_id: UUID
    status: Status
    reason: Reason | None
    task: str
    queue: str
    attempt: int
    max_attempts: int
    rev: int
    at: datetime
    """When it got this status."""
    ended: bool
    """No more events follow."""
    cancel_requested_at: datetime | None = None


class EndTold(StatusTold, frozen=True, kw_only=True):
    """How a job ended, and its result or error."""

    error: ErrorInfo | None = None
    result: msgspec.Raw | None = None
    """Any JSON value."""
    finished_at: datetime | None = None


class ProgressTold(msgspec.Struct, frozen=True, kw_only=True):
    """How far a running job is, by its own report."""

    job_id: UUID
    status: Status
    attempt: int
    progress: float
    """In percent."""
    message: str | None = None
    current_step: str | None = None
    estimated_completion: datetime | None = None
    connector_details: dict[str, Any] | None = None


class RetryTold(msgspec.Struct, frozen=True, kw_only=True):
    """An attempt did not succeed; the next one begins at ``retry_at``."""

    job_id: UUID
    attempt: int
    max_attempts: int
    outcome: Outcome
    error: ErrorInfo | None
    retry_at: datetime


class ErrorTold(msgspec.Struct, frozen=True, kw_only=True):
    """A job failed for good."""

    job_id: UUID
    status: Status
    reason: Reason | None
    attempt: int
    error: ErrorInfo | None


class ResultTold(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a job."""

    job_id: UUID
    status: Status
    attempt: int
    result: msgspec.Raw
    """Any JSON value."""
    finished_at: datetime | None


class PositionTold(msgspec.Struct, frozen=True, kw_only=True):
    """The position of a job in its queue."""

    job_id: UUID
    queue: str
    position: int | None
    """The first is 1; null: too many jobs are before it to count, or it is no longer in its queue."""
    position_approximate: bool | msgspec.UnsetType = msgspec.UNSET
    """true: concurrency keys take turns, so that it may be another; absent: it was counted."""
    estimated_start: datetime | None


class LogTold(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the job's log."""

    attempt: int
    number: int
    at: datetime
    level: str
    logger: str
    message: str


class ItemTold(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One item of the job's stream; ``restarted``: an attempt begins the stream anew, earlier items do not count."""

    attempt: int
    number: int
    at: datetime
    value: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    restarted: bool = False


def status_of(job: Job) -> StatusTold:
    """Return the status of the job."""
    due = job.status is Status.QUEUED and job.arrived_at > job.updated_at
    return StatusTold(
        job_id=job.id,
        status=job.status,
        reason=job.reason,
        task=job.task,
        queue=job.queue,
        attempt=job.attempt,
        max_attempts=job.max_attempts,
        rev=job.rev,
        at=job.arrived_at if due else job.updated_at,
        ended=job.ended,
        cancel_requested_at=job.cancel_requested_at,
    )


def ended_as(job: Job) -> EndTold:
    """Return how the job ended, in one document."""
    return EndTold(
        **msgspec.structs.asdict(status_of(job)),
        error=job.error if job.status is Status.FAILED else None,
        result=_result_of(job) if job.status is Status.COMPLETED else None,
        finished_at=job.finished_at,
    )


def _result_of(job: Job) -> msgspec.Raw:
    return raw_json(job.result_text or "null")


def end_of(job: Job) -> tuple[Kind, msgspec.Struct] | None:
    """Return the event for a job's result or error; None: the job was cancelled and has neither."""
    if job.status is Status.FAILED:
        document = ErrorTold(job_id=job.id, status=job.status, reason=job.reason, attempt=job.attempt, error=job.error)
        return "error", document
    if job.status is Status.COMPLETED:
        return "result", ResultTold(
            job_id=job.id,
            status=job.status,
            attempt=job.attempt,
            result=_result_of(job),
            finished_at=job.finished_at,
        )
    return None


def changes(update: Update) -> Iterator[tuple[Kind, msgspec.Struct]]:
    """Yield what changed in the job since the last update, without its end.

    If the job had ended before the store was first read, its start is taken from the record.
    """
    job, before = update.job, update.before
    if before is None or job == before:
        return
    if _started_unseen(before, job):
        started = status_of(job)
        yield (
            "status",
            msgspec.structs.replace(
                started, status=Status.RUNNING, reason=None, at=job.started_at or started.at, ended=False
            ),
        )
    for attempt in update.history.attempts:
        if attempt.retry_at is not None:
            yield "retry", _retry_of(job, attempt)
    if job.rev != before.rev or job.status is not before.status:
        yield "status", status_of(job)
    if job.progress is not None and job.progress != before.progress and not job.ended:
        yield "progress", _progress_of(job)


def _started_unseen(before: Job, job: Job) -> bool:
    return (
        job.status is not Status.RUNNING
        and job.started_at is not None
        and job.started_at != before.started_at
        and before.status is not Status.RUNNING
    )


def _retry_of(job: Job, attempt: Attempt) -> RetryTold:
    assert attempt.retry_at is not None
    return RetryTold(
        job_id=job.id,
        attempt=attempt.number,
        max_attempts=job.max_attempts,
        outcome=attempt.outcome,
        error=attempt.error,
        retry_at=attempt.retry_at,
    )


def _progress_of(job: Job) -> ProgressTold:
    progress = job.progress
    assert progress is not None
    return ProgressTold(
        job_id=job.id,
        status=job.status,
        attempt=job.attempt,
        progress=progress.percent,
        message=progress.message,
        current_step=progress.step,
        estimated_completion=progress.estimated_completion,
        connector_details=progress.details,
    )


def position_of(job: Job, place: Place | None) -> PositionTold:
    """Return the position of the job."""
    place = place or Place(None)
    return PositionTold(
        job_id=job.id,
        queue=job.queue,
        position=place.position,
        position_approximate=place.approximate or msgspec.UNSET,
        estimated_start=place.estimated_start,
    )


def log_of(entry: Entry) -> LogTold:
    """Return the event for a line of the log."""
    return LogTold(**msgspec.structs.asdict(LogLine.of(entry)))


def item_of(entry: Entry) -> ItemTold:
    """Return the event for an item of the stream; number 0 is no item and means that the stream begins anew."""
    if entry.number == 0:
        return ItemTold(attempt=entry.attempt, number=0, at=entry.at, restarted=True)
    return ItemTold(attempt=entry.attempt, number=entry.number, at=entry.at, value=msgspec.Raw(entry.data.encode()))
