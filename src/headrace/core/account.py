"""One line about an attempt that did not succeed, for whoever reads the log."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from headrace.core.explain.explanation import span, told
from headrace.core.job import Job
from headrace.core.status import Outcome, Reason, Status

__all__ = ["FIELDS", "account", "labels", "name_of", "short"]

FIELDS = ("job_id", "task", "attempt", "queue", "worker")
"""What a log record says about its job, beside its message."""

_SAYS_NOTHING = frozenset({"Lost", "Timeout"})
"""Types of errors that only repeat the outcome."""
_PRIVATE = frozenset({Reason.INVALID_PAYLOAD, Reason.INVALID_RESULT})
"""What is found wrong with a payload or a result may quote it."""


def short(id: UUID) -> str:
    """The end of an id, which is enough to recognise it; ids begin with the time, so their beginnings are alike."""
    return id.hex[-8:]


def name_of(job: Job) -> str:
    """The job as a log names it."""
    return f"{job.spec.task} {short(job.id)}"


def labels(job: Job, attempt: int | None = None) -> dict[str, Any]:
    """The job as fields of a log record: plain values, as the ``extra`` of a call."""
    number = job.attempt if attempt is None else attempt
    found = {"job_id": str(job.id), "task": job.spec.task, "attempt": number, "queue": job.queue}
    return found if job.worker is None else found | {"worker": str(job.worker)}


def account(job: Job, outcome: Outcome, now: datetime, *, charged: bool = True, began: bool = True) -> str:
    """What became of an attempt, and of its job with it; ``job`` is as stored after that.

    ``began``: its start is on record.

    Payload and result are left out, and what was found wrong with them: logs go where they may not.
    """
    which = f"attempt {job.charged} of {job.max_attempts}"
    if not charged:
        which = f"attempt {job.attempt}" if began else "an attempt that may not have begun"
    what = {Outcome.TIMED_OUT: "timed out", Outcome.LOST: "was lost"}.get(outcome, "failed")
    return f"{name_of(job)}: {which} {what}{_why(job, began=began)}; {_then(job, now)}"


def _why(job: Job, *, began: bool) -> str:
    error = job.error
    if error is None or not began:
        return ""
    if job.reason in _PRIVATE:
        return f": {error.type} (the job says more)"
    return f": {error.message}" if error.type in _SAYS_NOTHING else f": {told(error)}"


def _then(job: Job, now: datetime) -> str:
    match job.status:
        case Status.FAILED:
            return f"dead letter ({str(job.reason).replace('_', ' ')})"
        case Status.CANCELLED:
            return "cancelled, as asked"
        case Status.RETRYING:
            seconds = max(0.0, (job.available_at - now).total_seconds())
            return f"next try {f'in {seconds:.1f} s' if seconds < 10 else span(job.available_at, now)}"
        case _:
            return f"{job.status} again, not charged"
