"""What people and programs do to a job from outside: cancel, retry, discard, resolve, rerun, expire, prune."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from msgspec.structs import replace

from headrace.core.bounds import checked_note
from headrace.core.change import Change, Key
from headrace.core.decide import LOOSE, change, dated, ended, expired, key_freed, placed, soonest
from headrace.core.defaults import Retention, Rules
from headrace.core.job import ErrorInfo, Event, Job
from headrace.core.lifecycle import submit
from headrace.core.status import Reason, Status, Verb
from headrace.core.table import check
from headrace.errors import TransitionRefused

__all__ = ["cancel", "discard", "expire", "prunable", "rerun", "resolve", "retry"]


def _event(job: Job, verb: Verb, now: datetime, by: str | None, note: str | None = None) -> Event:
    return Event(verb, dated(job, now), checked_note(by, "by"), checked_note(note, "note"))


def expire(job: Job, now: datetime) -> Change:
    """End a job that missed its last moment to start."""
    if not expired(job, now):
        raise TransitionRefused(job, Verb.EXPIRE, "its time has not passed")
    fields = ended(job, Status.CANCELLED, now, Reason.EXPIRED)
    return change(job, Verb.EXPIRE, now, fields, owner=False, key=key_freed(job))


def cancel(
    job: Job, now: datetime, rules: Rules, *, by: str | None = None, reason: Reason = Reason.USER
) -> Change | None:
    """End a job that has not begun, or ask its worker to stop it; None when that was done before."""
    event = _event(job, Verb.CANCEL, now, by)
    if job.status is Status.CANCELLED or (job.held and job.cancel_requested_at is not None):
        return None
    if job.status in (Status.ACCEPTED, Status.RUNNING):
        asked = replace(job, cancel_requested_at=now)
        fields: dict[str, Any] = {
            "status": job.status,
            "cancel_requested_at": now,
            "act_by": soonest(asked, job.act_by, rules),
        }
        return change(job, Verb.CANCEL, now, fields, owner=False, event=event)
    fields = ended(job, Status.CANCELLED, now, reason)
    return change(job, Verb.CANCEL, now, fields, owner=False, key=key_freed(job), event=event)


def retry(job: Job, now: datetime, *, by: str | None = None) -> Change:
    """Give an ended job a new budget under its own id."""
    if job.reason is Reason.DISCARDED:
        raise TransitionRefused(job, Verb.RETRY, "it was discarded; a discarded job can only be rerun")
    due = max(job.available_at, now)
    not_after = None if job.not_after is not None and job.not_after <= now else job.not_after
    fields = LOOSE | {
        "status": placed(now, due, job.waits),
        "reason": None,
        "available_at": due,
        "arrived_at": due,
        "not_after": not_after,
        "act_by": not_after if job.first_started_at is None else None,
        "charged": 0,
        "unstarted_losses": 0,
        "suspect": 0,
        "spared": False,
        "redrives": job.redrives + 1,
        "cancel_requested_at": None,
        "finished_at": None,
        "streak": None,
    }
    key = Key.KEEP if job.spec.dedup is None else Key.TAKE
    return change(job, Verb.RETRY, now, fields, owner=False, key=key, event=_event(job, Verb.RETRY, now, by))


def discard(job: Job, now: datetime, *, by: str | None = None, note: str | None = None) -> Change:
    """Put an ended job away: it no longer counts as done or as a dead letter."""
    fields = {"status": Status.CANCELLED, "reason": Reason.DISCARDED}
    return change(job, Verb.DISCARD, now, fields, owner=False, event=_event(job, Verb.DISCARD, now, by, note))


def resolve(
    job: Job,
    now: datetime,
    *,
    result_text: str | None = None,
    error: ErrorInfo | None = None,
    by: str | None = None,
    note: str | None = None,
) -> Change:
    """Set the end by hand: a result completes the job, an error fails it."""
    if error is None:
        fields = ended(job, Status.COMPLETED, now) | {"result_text": result_text or "null", "error": None}
        fields |= {"suspect": 0, "spared": False}
    else:
        fields = ended(job, Status.FAILED, now, Reason.NON_RETRYABLE) | {"error": error}
    key = Key.KEEP if job.ended else key_freed(job)
    return change(job, Verb.RESOLVE, now, fields, owner=False, key=key, event=_event(job, Verb.RESOLVE, now, by, note))


def rerun(job: Job, id: UUID, now: datetime) -> Job:
    """A new job that does the same work again, outside the family of the old one."""
    check(job, Verb.RERUN)
    spec = replace(
        job.spec,
        created_at=now,
        rerun_of=job.id,
        parent=None,
        root=None,
        batch=None,
        after=(),
        schedule=None,
        fire_at=None,
        request_key=None,
        request_hash=None,
    )
    not_after = job.not_after if job.not_after is not None and job.not_after > now else None
    return submit(id, spec, job.payload_text, now, not_after=not_after)


def prunable(job: Job, now: datetime, retention: Retention) -> bool:
    """Whether its retention is over; live jobs never are."""
    if not job.ended or job.finished_at is None:
        return False
    return job.finished_at + retention.of(job.status) <= now
