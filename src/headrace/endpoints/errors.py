"""Errors of handlers over HTTP: what the worker stores of them, and the problem that a client gets."""

from __future__ import annotations

import sys
from typing import Any

from headrace.core.job import Job
from headrace.core.status import Reason, Status
from headrace.endpoints.documents import Cause, error_of
from headrace.http.problems import PAGE, Problem, ProblemDetails
from headrace.worker.handler import Described

__all__ = ["FailureDetails", "describe", "failure_of"]

_MAX_CAUSES = 10
"""Maximum causes of an error that are kept."""
_LATER = frozenset({408, 423, 425, 429})
"""Statuses of client errors that may succeed the next time."""


class FailureDetails(ProblemDetails, frozen=True, kw_only=True, omit_defaults=True):
    """Why a job has no result (RFC 9457)."""

    code: str = ""
    """The name of the error, or how the job ended."""
    reason: str | None = None
    causes: tuple[Cause, ...] = ()
    """The errors that caused it, the nearest first."""
    data: Any = None
    traceback: str | None = None
    reference: str | None = None
    """Where errors are hidden: the reference by which the operator finds it."""


def describe(error: BaseException) -> Described:
    """Return what a worker stores of an error of such a handler: its HTTP status, its data, and its causes.

    An error has a status if it is an HTTPException of the web framework, or has an attribute ``http_status``. With one
    that says the request is at fault, no further attempt is made.
    """
    details: dict[str, Any] = {}
    status, data = _own(error)
    if status is not None:
        details["status"] = status
    if data is not None:
        details["data"] = data
    if causes := _causes(error):
        details["causes"] = causes
    return Described(details, final=status is not None and 400 <= status < 500 and status not in _LATER)


def _own(error: BaseException) -> tuple[int | None, Any]:
    """Return the status of an error, and its data that is not text."""
    status: Any = getattr(error, "http_status", None)
    data = getattr(error, "http_data", None)
    # The code that raised it has imported it. Errors of HTTP clients have a status, too, but not for callers of this
    # service.
    starlette, werkzeug = sys.modules.get("starlette.exceptions"), sys.modules.get("werkzeug.exceptions")
    if starlette is not None and isinstance(error, starlette.HTTPException):
        status, data = error.status_code, error.detail
    elif werkzeug is not None and isinstance(error, werkzeug.HTTPException):
        status = error.code
    known = isinstance(status, int) and not isinstance(status, bool) and 400 <= status < 600
    return (status if known else None), data


def _causes(error: BaseException) -> list[dict[str, str]]:
    found, seen = list[dict[str, str]](), {id(error)}
    here: BaseException | None = error
    while here is not None and len(found) < _MAX_CAUSES:
        here = here.__cause__ or (None if here.__suppress_context__ else here.__context__)
        if here is None or id(here) in seen:
            break
        seen.add(id(here))
        found.append({"type": type(here).__qualname__, "message": str(here)[:1000]})
    return found


def failure_of(job: Job, tracebacks: bool = False) -> Problem:
    """Return the problem of a job without a result, with the error's own status if it has one."""
    if job.status is Status.CANCELLED:
        text = f"it was cancelled ({job.reason})"
        return Problem(409, "cancelled", "The job was cancelled", text, job_id=str(job.id))
    error = None if job.error is None else error_of(job.error, tracebacks)
    status = 504 if job.reason is Reason.TIMEOUT else 500
    if error is not None and error.status is not None:
        status = error.status
    detail, data = "" if error is None else error.message, None if error is None else error.data
    if isinstance(data, str):  # the detail of an HTTPException, without the number before it
        detail, data = data, None
    problem = Problem(status, "failed", "The job failed", detail, job_id=str(job.id))
    fields = {name: getattr(problem.details, name) for name in ProblemDetails.__struct_fields__}
    problem.details = FailureDetails(
        **fields,
        code="" if error is None else error.code,
        reason=None if job.reason is None else str(job.reason),
        causes=() if error is None else error.causes,
        data=data,
        traceback=None if error is None else error.traceback,
        reference=None if error is None else error.reference,
    )
    return problem


def coded(details: ProblemDetails) -> FailureDetails:
    """Return the details of a problem with a code, as all of them have: the last part of their type."""
    if isinstance(details, FailureDetails) and details.code:
        return details
    fields = {name: getattr(details, name) for name in details.__struct_fields__}
    return FailureDetails(**fields | {"code": details.type.removeprefix(PAGE)})
