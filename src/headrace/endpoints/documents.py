"""Jobs as clients of a service see them: their status, and nothing of how they are run."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from functools import partial
from typing import Any, Literal, get_args
from uuid import UUID

import msgspec

from headrace.core.attempt import ErrorInfo, Progress
from headrace.core.codec.record import Record
from headrace.core.hidden_errors import hidden_job
from headrace.core.job import Job, raw_json
from headrace.core.status import Reason, Status
from headrace.errors import ConfigError, shown

__all__ = ["Cause", "ErrorDocument", "Errors", "JobDocument", "Links", "document_of", "error_of", "links_to", "shows"]


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
    links: Links | None = None


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
