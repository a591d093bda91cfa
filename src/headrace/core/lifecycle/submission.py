"""Decisions before a job is queued: submit it, admit it to its queue, release it when its parents have ended."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from headrace.core.attempt import ErrorInfo
from headrace.core.change import Change
from headrace.core.job import Job, Spec
from headrace.core.lifecycle.decision import change, ended, key_freed, placed
from headrace.core.status import Reason, Status, Verb

__all__ = ["admit", "submit", "unblock"]

_QUEUED = Status.QUEUED


def submit(
    id: UUID,
    spec: Spec,
    payload_text: str,
    now: datetime,
    *,
    available_at: datetime | None = None,
    not_after: datetime | None = None,
    waits: int = 0,
    pending: bool = False,
) -> Job:
    """Return a new job in the status where the submit verb puts it."""
    due, status = now, _QUEUED  # as most jobs are
    if available_at is not None or waits or pending:
        due = now if available_at is None else max(available_at, now)
        status = Status.PENDING if pending else placed(now, due, waits)
    return Job(
        id=id,
        spec=spec,
        payload_text=payload_text,
        status=status,
        available_at=due,
        arrived_at=due,
        updated_at=now,
        not_after=not_after,
        act_by=not_after,
        waits=waits,
    )


def admit(job: Job, now: datetime, error: ErrorInfo | None = None) -> Change:
    """Queue a pending job that was checked, or refuse it for its payload."""
    if error is not None:
        fields = ended(job, Status.FAILED, now, Reason.INVALID_PAYLOAD) | {"error": error}
        return change(job, Verb.ADMIT, now, fields, owner=False, key=key_freed(job))
    fields = {"status": placed(now, job.available_at, job.waits)}
    return change(job, Verb.ADMIT, now, fields, owner=False)


def unblock(
    job: Job, now: datetime, *, as_asked: bool = True, cancel: bool = True, error: ErrorInfo | None = None
) -> Change:
    """Release a job after its last parent ended; if not as requested, ``cancel`` selects cancelled or failed."""
    if not as_asked:
        fields = ended(job, Status.CANCELLED if cancel else Status.FAILED, now, Reason.PARENT)
        fields["error"] = job.error if error is None else error
        return change(job, Verb.UNBLOCK, now, fields, owner=False, key=key_freed(job))
    due = max(job.available_at, now)
    fields = {"status": placed(now, due), "waits": 0, "available_at": due, "arrived_at": due}
    return change(job, Verb.UNBLOCK, now, fields, owner=False)
