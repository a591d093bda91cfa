"""Problem details (RFC 9457): every error of headrace has its status here, once.

A job that does not exist and a job of another customer get the same response.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING
from uuid import UUID

import msgspec

from headrace import errors
from headrace.core.lifecycle.retention import may_be_pruned
from headrace.errors import shown

if TYPE_CHECKING:
    from headrace.app import App

__all__ = ["PAGE", "Fault", "Problem", "ProblemDetails", "absent", "id_of", "problem_of"]


_log = logging.getLogger("headrace.web")

PAGE = "https://headrace.dev/problems/"
"""The documentation of each type is here, but the URL is an identifier first."""


class Fault(msgspec.Struct, frozen=True):
    """One field that cannot be used, and why."""

    field: str
    message: str


class ProblemDetails(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What went wrong, and what to do about it (RFC 9457)."""

    type: str
    title: str
    status: int
    detail: str
    errors: tuple[Fault, ...] = ()
    job_id: str | None = None
    """The job that causes the conflict, if there is one and the caller may see it."""


class Problem(Exception):
    """Raised to reply to a request with a problem."""

    def __init__(
        self,
        status: int,
        kind: str,
        title: str,
        detail: str,
        *,
        faults: Sequence[Fault] = (),
        headers: Mapping[str, str] | None = None,
        job_id: str | None = None,
    ) -> None:
        """``kind`` is the last part of the problem's type, as in ``not-found``."""
        super().__init__(detail)
        self.status, self.headers = status, dict(headers or {})
        self.details = ProblemDetails(
            type=PAGE + kind, title=title, status=status, detail=detail, errors=tuple(faults), job_id=job_id
        )


_AGAIN = {"Retry-After": "1"}

_KINDS: tuple[tuple[type[Exception], int, str, str], ...] = (
    (errors.KeyReused, 422, "key-reused", "The key was used before with another payload"),
    (errors.PayloadTooLarge, 413, "too-large", "The payload is too large"),
    (errors.InvalidPayload, 422, "invalid-payload", "The payload does not fit the task"),
    (errors.InvalidResult, 422, "invalid-result", "The result cannot be stored"),
    (errors.Unstorable, 422, "unstorable", "The store refuses these data"),
    (errors.Unreadable, 500, "unreadable", "The job is stored in a way that cannot be read"),
    (errors.Duplicate, 409, "duplicate", "A live job holds the dedup key"),
    (errors.TransitionRefused, 409, "refused", "The lifecycle refuses this"),
    (errors.Stale, 409, "stale", "The job is no longer held"),
    (errors.JobNotFound, 404, "not-found", "There is no such job"),
    (errors.UnknownTask, 404, "not-found", "There is no such task"),
    (errors.UnknownSchedule, 404, "not-found", "There is no such schedule"),
    (errors.UnknownSetting, 404, "not-found", "There is no such setting"),
    (errors.UnknownWebhook, 404, "not-found", "There is no such webhook"),
    (errors.UnknownKey, 404, "not-found", "There is no such key"),
    (errors.UnknownWorker, 404, "not-found", "There is no such worker"),
    (errors.Overloaded, 503, "overloaded", "Too much waits for the store"),
    (errors.SecretMismatch, 503, "secret-mismatch", "This process has not the secret of the others"),
    (errors.Unavailable, 503, "unavailable", "The store cannot be reached"),
    (errors.KeyTaken, 409, "name-taken", "A key has this name"),
    (errors.NotGranted, 403, "not-granted", "Nobody gives what they lack"),
    (errors.TooManyProfiles, 400, "too-many-profiles", "Too many pairs of task and requirements have live jobs"),
    (errors.ConfigError, 400, "malformed", "The request cannot be understood"),
)
"""The first entry that matches counts."""


def problem_of(error: Exception) -> Problem | None:
    """Return the problem for an error of headrace; None: the error has no entry here."""
    if isinstance(error, Problem):
        return error
    for kind, status, name, title in _KINDS:
        if isinstance(error, kind):
            headers = _AGAIN if status == 503 else None
            field, job = getattr(error, "field", None), getattr(error, "job", None)
            of = "" if isinstance(error, errors.ConfigError) else "payload."
            faults = (Fault(f"{of}{field}", str(error)),) if field else ()
            id = None if job is None else str(job.id)
            return Problem(status, name, title, _detail(error), faults=faults, headers=headers, job_id=id)
    return None


def _detail(error: Exception) -> str:
    """Return the detail for an error. Where a store is and what its driver says goes to the log, not to callers."""
    if not isinstance(error, errors.Unavailable):
        return str(error)
    _log.info("answered 503: %s", error)
    if isinstance(error, errors.SecretMismatch):
        return (
            "this process has another HEADRACE_SECRET than the store's hubs, or none, and can neither sign nor test"
            " what they signed: ask another one, or again when it was started with the same"
        )
    if error.outcome == "unknown":
        return "the store did not answer, and may have stored it: ask again, with the same idempotency key"
    return "the store cannot be reached for now, and nothing was stored: ask again"


def id_of(text: str) -> UUID:
    """Return the id in a path; :raises Problem: 404, no job can have it"""
    try:
        return UUID(text)
    except ValueError:
        raise Problem(404, "not-found", "There is no such job", f"{shown(text)} is no id: ids are UUIDs") from None


def absent(id: UUID, app: App) -> Problem:
    """Return the problem for a missing job, by the age of its id alone: so it never reveals another's job."""
    if may_be_pruned(id, app.settings.retention(), app.host.clock.now()):
        return Problem(410, "gone", "The job is gone", f"no job {id}: ended jobs are not kept for as long as that")
    return Problem(404, "not-found", "There is no such job", f"no job {id}")
