"""What people and programs do to a job from outside, each act with an event for the audit; and expiry and pruning."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from msgspec.structs import replace

from headrace.core.attempt import ErrorInfo, Event
from headrace.core.change import Change, KeyEffect
from headrace.core.defaults import Retention, Rules
from headrace.core.job import Job
from headrace.core.lifecycle.decision import LOOSE, change, dated, ended, expired, key_freed, key_kept, placed, soonest
from headrace.core.lifecycle.retention import is_past
from headrace.core.lifecycle.submission import submit
from headrace.core.lifecycle.transitions import TRANSITIONS, check
from headrace.core.status import Reason, Status, Verb
from headrace.core.times import utc
from headrace.core.validation import checked_note
from headrace.errors import TransitionRefused

__all__ = [
    "cancel",
    "discard",
    "expire",
    "move",
    "note_rerun",
    "postpone",
    "prunable",
    "reprioritise",
    "rerun",
    "resolve",
    "retry",
    "run_now",
]


_RUN_NOW = "to run it at once: headrace run-now, or run_now()"


def _event(
    job: Job,
    verb: Verb,
    now: datetime,
    by: str | None,
    note: str | None = None,
    details: dict[str, Any] | None = None,
) -> Event:
    """The entry for the audit trail; ``details``: what the act said."""
    return Event(verb, dated(job, now), checked_note(by, "by"), checked_note(note, "note"), details)


def _check_idle(job: Job, verb: Verb) -> None:
    """Refuse an act on a job in whose status it means nothing, and say what would help."""
    if job.status in TRANSITIONS[verb]:
        return
    why = f"it is {job.status}"
    if job.held:
        why += ": a worker has it, and what is held stays as it is"
    elif job.ended:
        why += "; rerun makes a new job of it, also with other options"
    elif job.status is Status.QUEUED:
        why += " already; explain says what it waits for"
    elif job.status is Status.WAITING:
        why += " for other jobs to end"
    raise TransitionRefused(job, verb, why)


def _check_last_moment(job: Job, verb: Verb, due: datetime, now: datetime) -> None:
    """Refuse a time at which the job, which was never started, would have expired."""
    last = job.not_after
    if last is not None and job.first_started_at is None and now < last <= due:
        raise TransitionRefused(job, verb, f"it must start before {utc(last)}, or it expires; choose an earlier time")


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


def retry(job: Job, now: datetime, *, delay: float = 0.0, by: str | None = None) -> Change:
    """Give an ended job a new budget under its own id; ``delay``: seconds before it can start."""
    if job.reason is Reason.DISCARDED:
        raise TransitionRefused(job, Verb.RETRY, "it was discarded; a discarded job can only be rerun")
    due = max(job.available_at, now + timedelta(seconds=delay))
    _check_last_moment(job, Verb.RETRY, due, now)
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
    key = KeyEffect.KEEP if job.spec.dedup is None else KeyEffect.TAKE
    event = _event(job, Verb.RETRY, now, by, details={"delay": delay} if delay else None)
    return change(job, Verb.RETRY, now, fields, owner=False, key=key, event=event)


def postpone(job: Job, until: datetime, now: datetime, *, by: str | None = None) -> Change:
    """Let a job that nobody holds wait for another time, later or earlier than its own."""
    _check_idle(job, Verb.POSTPONE)
    if until <= now:
        raise TransitionRefused(job, Verb.POSTPONE, f"{utc(until)} is not in the future; {_RUN_NOW}")
    _check_last_moment(job, Verb.POSTPONE, until, now)
    fields = {"status": Status.SCHEDULED, "available_at": until}
    event = _event(job, Verb.POSTPONE, now, by, details={"until": utc(until)})
    return change(job, Verb.POSTPONE, now, fields, owner=False, event=event)


def run_now(job: Job, now: datetime, *, by: str | None = None) -> Change:
    """Put a job in line that waits for its time; it arrives now, or arrived when it fell due."""
    _check_idle(job, Verb.RUN_NOW)
    due = min(job.available_at, now)
    fields = {"status": Status.QUEUED, "available_at": due, "arrived_at": due}
    return change(job, Verb.RUN_NOW, now, fields, owner=False, event=_event(job, Verb.RUN_NOW, now, by))


def move(job: Job, queue: str, now: datetime, *, by: str | None = None) -> Change | None:
    """Put a job that nobody holds into another queue, with its arrival as it was; None: it is there already."""
    _check_idle(job, Verb.MOVE)
    if queue == job.queue:
        return None
    event = _event(job, Verb.MOVE, now, by, details={"from": job.queue, "to": queue})
    fields = {"status": job.status, "moved_to": None if queue == job.spec.queue else queue}
    return change(job, Verb.MOVE, now, fields, owner=False, event=event)


def reprioritise(job: Job, priority: int, now: datetime, *, by: str | None = None) -> Change | None:
    """Give a job that nobody holds another priority, with its arrival as it was; None: it has it already."""
    _check_idle(job, Verb.REPRIORITISE)
    if priority == job.priority:
        return None
    event = _event(job, Verb.REPRIORITISE, now, by, details={"from": job.priority, "to": priority})
    fields = {"status": job.status, "reprioritised_to": None if priority == job.spec.priority else priority}
    return change(job, Verb.REPRIORITISE, now, fields, owner=False, event=event)


def discard(job: Job, now: datetime, *, by: str | None = None, note: str | None = None) -> Change:
    """Put an ended job away: it no longer counts as done or as a dead letter."""
    fields = {"status": Status.CANCELLED, "reason": Reason.DISCARDED}
    key = KeyEffect.KEEP if job.spec.dedup_for is None else key_freed(job)
    event = _event(job, Verb.DISCARD, now, by, note)
    return change(job, Verb.DISCARD, now, fields, owner=False, key=key, event=event)


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
    ends = key_freed(job) if error is not None else key_kept(job, dated(job, now))
    key = KeyEffect.KEEP if job.ended else ends
    return change(job, Verb.RESOLVE, now, fields, owner=False, key=key, event=_event(job, Verb.RESOLVE, now, by, note))


def rerun(
    job: Job,
    id: UUID,
    now: datetime,
    *,
    payload_text: str | None = None,
    changed: Mapping[str, Any] | None = None,
    available_at: datetime | None = None,
    not_after: datetime | None = None,
) -> Job:
    """A new job that does the same work again, outside the family of the old one, and in a trace of its own.

    It has the queue and the priority that the old one had at last. ``changed``: fields of the spec to replace; without
    ``payload_text`` the payload is the old one, without ``not_after`` the last moment to start, unless that has passed.
    """
    check(job, Verb.RERUN)
    spec = replace(
        job.spec,
        created_at=now,
        queue=job.queue,
        priority=job.priority,
        trace=None,
        rerun_of=job.id,
        parent=None,
        root=None,
        batch=None,
        after=(),
        schedule=None,
        fire_at=None,
        request_key=None,
        request_hash=None,
        on_duplicate="return",
    )
    if changed:
        spec = replace(spec, **changed)
    if spec.webhook is not None and spec.customer != job.spec.customer:  # one customer hears nothing of another
        targets = tuple(one for one in spec.webhook if one.customer in (None, spec.customer))
        spec = replace(spec, webhook=targets or None)
    if not_after is None and job.not_after is not None and job.not_after > max(now, available_at or now):
        not_after = job.not_after
    text = job.payload_text if payload_text is None else payload_text
    return submit(id, spec, text, now, available_at=available_at, not_after=not_after)


def note_rerun(job: Job, again: UUID, now: datetime, *, by: str | None = None) -> Change:
    """Put on the record of an ended job that it was rerun, and as which job."""
    event = _event(job, Verb.RERUN, now, by, details={"job": str(again)})
    return change(job, Verb.RERUN, now, {}, owner=False, event=event)


def prunable(job: Job, now: datetime, retention: Retention) -> bool:
    """Whether its retention is over, its own or this; live jobs never are."""
    return is_past(job, retention.cutoffs(now), now)
