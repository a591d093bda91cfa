"""Jobs as clients of a service see them: their status, their attempts, and nothing of how they are run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from typing import Any, Literal, get_args
from uuid import UUID

import msgspec

from headrace.core.attempt import Attempt, ErrorInfo, Progress
from headrace.core.codec.record import Record
from headrace.core.hidden_errors import hidden_job
from headrace.core.job import Job, raw_json
from headrace.core.status import Outcome, Reason, Status
from headrace.errors import ConfigError, shown

__all__ = [
    "AttemptDocument",
    "Cause",
    "ErrorDocument",
    "Errors",
    "JobDocument",
    "Links",
    "OnDelete",
    "attempts_of",
    "document_of",
    "error_of",
    "links_to",
    "shows",
]


class Cause(msgspec.Struct, frozen=True):
    """An error that caused another."""

    code: str
    message: str


class ErrorDocument(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The error of a job."""

    code: str
    """The name of the error."""
    message: str
    status: int | None = None
    """The HTTP status of the error, if it has one."""
    causes: tuple[Cause, ...] = ()
    """The errors that caused it, the nearest first."""
    data: Any = None
    """Data of the error, besides its message."""
    traceback: str | None = None
    """Only if the service shows tracebacks."""
    reference: str | None = None
    """Where errors are hidden: the reference by which the operator finds it."""


class Links(msgspec.Struct, frozen=True, kw_only=True, rename={"job": "self"}):
    """Addresses of a job's pages."""

    job: str
    result: str
    events: str


class AttemptDocument(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt of a job, or a run of equal ones that cost none of its retries."""

    number: int
    count: int = 1
    """How many attempts this is; the times are the start of the first and the end of the last."""
    outcome: Outcome | None = None
    """How it ended; null: it is under way."""
    worker: UUID | None = None
    """The worker that made it."""
    started_at: datetime | None = None
    finished_at: datetime | None = None
    retry_at: datetime | None = None
    """When the next attempt follows, if one does."""
    error: ErrorDocument | None = None


class JobDocument(msgspec.Struct, Record, frozen=True, kw_only=True):
    """A job as it is now."""

    id: UUID
    task: str
    status: Status
    reason: Reason | None = None
    """Why it failed or was cancelled."""
    progress: Progress | None = None
    attempt: int
    """The number of its last attempt; 0: none was made yet."""
    max_attempts: int
    retry_count: int = 0
    """How many of its retries it has used, the one that it waits for included."""
    max_retries: int = 0
    worker: UUID | None = None
    """The worker that has it now."""
    created_at: datetime
    available_at: datetime
    """When it may start, or be tried again."""
    started_at: datetime | None = None
    finished_at: datetime | None = None
    cancel_requested_at: datetime | None = None
    updated_at: datetime
    error: ErrorDocument | None = None
    """The error of its last attempt."""
    result: Any = None
    """Its result, once it has completed."""
    attempts: tuple[AttemptDocument, ...] = ()
    """Its attempts, the first one first; where events are resumed, those since then."""
    links: Links | None = None


OnDelete = Literal["cancel", "discard"]
"""What DELETE does to a job that has ended; ``cancel``: nothing, it is refused; ``discard``: it discards the job."""

Errors = Literal["shown", "hidden"]
"""Whether clients see the text of errors; ``hidden``: they see a reference that the operator can look up."""


def shows(errors: Errors) -> Callable[[Job], Job]:
    """Return a function that makes a job what clients see; :raises ConfigError:"""
    if errors not in get_args(Errors):
        raise ConfigError(f"errors must be 'shown' or 'hidden', not {shown(errors)}")
    return partial(hidden_job, meant=True) if errors == "hidden" else lambda job: job


def error_of(error: ErrorInfo, tracebacks: bool = False) -> ErrorDocument:
    """Return an error of a job as clients see it."""
    details = error.details or {}
    causes = details.get("causes") or ()
    status = details.get("status")
    return ErrorDocument(
        code=error.type,
        message=error.message,
        status=status if isinstance(status, int) else None,
        causes=tuple(Cause(str(one.get("type")), str(one.get("message"))) for one in causes if isinstance(one, dict)),
        data=details.get("data"),
        traceback=error.traceback if tracebacks else None,
        reference=details.get("reference"),
    )


def links_to(address: str | None) -> Links | None:
    """Return the links of a job with this status page; None: it has none."""
    if address is None:
        return None
    path, mark, query = address.partition("?")
    rest = mark + query
    return Links(job=address, result=f"{path}/result{rest}", events=f"{path}/events{rest}")


def retries_of(job: Job) -> int:
    """Return how many of its retries a job has used: one for each charged attempt that another follows."""
    return max(0, min(job.charged - job.ended, job.spec.retry.max_retries))


def attempts_of(job: Job, history: Sequence[Attempt], *, tracebacks: bool = False) -> tuple[AttemptDocument, ...]:
    """Return the attempts of a job as clients see them: those that ended (``history``), and the one under way."""
    found = [
        AttemptDocument(
            number=one.number,
            count=one.count,
            outcome=one.outcome,
            worker=one.worker,
            started_at=one.started_at,
            finished_at=one.finished_at,
            retry_at=one.retry_at,
            error=None if one.error is None else error_of(one.error, tracebacks),
        )
        for one in history
    ]
    if job.status is Status.RUNNING:
        found.append(AttemptDocument(number=job.attempt, worker=job.worker, started_at=job.started_at))
    return tuple(found)


def document_of(job: Job, address: str | None, *, tracebacks: bool = False) -> JobDocument:
    """Return the job as clients see it; ``address``: of its status page."""
    return JobDocument(
        id=job.id,
        task=job.task,
        status=job.status,
        reason=job.reason,
        progress=job.progress,
        attempt=job.attempt,
        max_attempts=job.max_attempts,
        retry_count=retries_of(job),
        max_retries=job.spec.retry.max_retries,
        worker=job.worker,
        created_at=job.created_at,
        available_at=job.available_at,
        started_at=job.started_at,
        finished_at=job.finished_at,
        cancel_requested_at=job.cancel_requested_at,
        updated_at=job.updated_at,
        error=None if job.error is None else error_of(job.error, tracebacks),
        result=None if job.result_text is None else raw_json(job.result_text),
        links=links_to(address),
    )
