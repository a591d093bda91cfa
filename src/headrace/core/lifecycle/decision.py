"""The parts of every decision: the checked change, the closed attempt, the ended job."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from msgspec.structs import replace

from headrace.core.attempt import Attempt, ErrorInfo, Event, Streak
from headrace.core.change import BatchTally, Change, KeyEffect, Note
from headrace.core.defaults import Rules
from headrace.core.job import Job
from headrace.core.lifecycle.suspects import in_quarantine
from headrace.core.lifecycle.transitions import check
from headrace.core.stats.failures import fingerprint
from headrace.core.status import ENDED, HELD, Outcome, Reason, Status, Verb
from headrace.core.webhooks.delivery import telling

__all__ = [
    "COMPLETES",
    "ENDS",
    "LOOSE",
    "again",
    "change",
    "close",
    "close_uncharged",
    "dated",
    "ended",
    "expired",
    "expires_soon",
    "heartbeat_of",
    "held_until",
    "key_freed",
    "key_kept",
    "may_have_children",
    "over",
    "placed",
    "running_until",
    "signed_at",
    "silent_from",
    "soonest",
    "tally_of_new",
]

_KEEP, _QUEUED = KeyEffect.KEEP, Status.QUEUED  # looked up once: see lifecycle

LOOSE: dict[str, Any] = {
    "worker": None,
    "claim": None,
    "assigned_at": None,
    "accepted_at": None,
    "started_at": None,
    "progress": None,
}
"""The fields of a live job that no worker holds: the attempt record keeps what is cleared here."""

ENDS = (Note.ENDED,)
"""The notes of nearly every change that ends a job."""
COMPLETES = BatchTally(completed=1)
"""What the completion of a live job adds to its batch."""


def dated(job: Job, now: datetime) -> datetime:
    """Return the moment under which an event of the job is recorded now.

    It is never before what is recorded of the job: the clock of ``now`` may be behind the one that wrote that.
    Deadlines are counted from ``now`` itself.
    """
    last = job.updated_at if job.started_at is None else max(job.updated_at, job.started_at)
    return now if now >= last else last  # noqa: FURB136, a call takes three times as long, and every job is dated


def change(
    job: Job,
    verb: Verb,
    now: datetime,
    fields: dict[str, Any],
    *,
    owner: bool,
    closes: Attempt | None = None,
    key: KeyEffect = KeyEffect.KEEP,
    event: Event | None = None,
) -> Change:
    """Return the decided change, checked against the table; ``owner`` fences it to the worker that holds the job."""
    check(job, verb, fields.get("status"))
    if "error" in fields:
        error = fields["error"]
        failed_at = None if error is None else dated(job, now)
        fields = fields | {"fingerprint": fingerprint(job.task, error), "failed_at": failed_at}
    made = replace(job, rev=job.rev + 1, updated_at=dated(job, now), **fields)
    decided = Change(
        verb=verb,
        rev=job.rev,
        job=made,
        epoch=job.epoch if owner else None,
        worker=job.worker if owner else None,
        attempt=closes,
        key=key,
        moves=_moves(job, made),
        event=event,
        notes=_notes(job, verb, made),
        tally=None if job.spec.batch is None else _tally(job.status, made.status),
    )
    return decided if job.spec.webhook is None else telling(job, decided)


def _moves(job: Job, made: Job) -> bool:
    """Return whether the change from ``job`` to ``made`` puts it into another subqueue, or elsewhere in its own."""
    if job.moved_to != made.moved_to or job.reprioritised_to != made.reprioritised_to:
        return True
    return bool(job.suspect or made.suspect) and made.status not in ENDED and in_quarantine(job) != in_quarantine(made)


def _notes(job: Job, verb: Verb, made: Job) -> tuple[Note, ...]:
    """Return the notes for other jobs of the change from ``job`` to ``made``."""
    if made.status is Status.WAITING:
        return (Note.WAITS,)
    ends = ENDS if made.status in ENDED and job.status not in ENDED else ()
    return (*ends, Note.CANCELLED) if verb is Verb.CANCEL and may_have_children(made) else ends


def may_have_children(job: Job) -> bool:
    """Return whether a worker ever had the job: only a handler submits children."""
    return job.status in HELD or job.attempt > 0 or job.unstarted_losses > 0 or job.redrives > 0


_COUNTED = {Status.COMPLETED: "completed", Status.FAILED: "failed", Status.CANCELLED: "cancelled"}


def _tally(before: Status, after: Status) -> BatchTally | None:
    """Return what a change from one status to another adds to the counts of a batch; None: nothing."""
    was, now = _COUNTED.get(before), _COUNTED.get(after)
    if was == now:
        return None
    counts = {} if was is None else {was: -1}
    return BatchTally(**counts if now is None else counts | {now: 1})


def tally_of_new(job: Job) -> BatchTally:
    """Return what a new job adds to the counts of its batch."""
    return BatchTally(total=1, **({_COUNTED[job.status]: 1} if job.ended else {}))


def close(
    job: Job, outcome: Outcome, now: datetime, error: ErrorInfo | None = None, cause: str | None = None
) -> Attempt:
    """Return the record of the attempt that is over."""
    return Attempt(
        number=job.attempt,
        epoch=job.epoch,
        outcome=outcome,
        worker=job.worker,
        assigned_at=job.assigned_at,
        started_at=job.started_at,
        finished_at=dated(job, now),
        error=error,
        cause=cause,
    )


def close_uncharged(job: Job, outcome: Outcome, now: datetime) -> tuple[Attempt, Streak]:
    """Close an attempt that costs nothing; a run of equal ones shares the record of the first."""
    attempt = close(job, outcome, now)
    if job.streak is not None and job.streak.outcome is outcome:
        return replace(attempt, number=job.streak.number), job.streak
    return attempt, Streak(job.attempt, outcome)


def ended(job: Job, status: Status, now: datetime, reason: Reason | None = None) -> dict[str, Any]:
    """Return the fields of a job that ended; the last attempt's times stay on it, its owner does not."""
    fields: dict[str, Any] = {"status": status, "reason": reason, "finished_at": dated(job, now), "act_by": None}
    if job.held:
        fields |= {"epoch": job.epoch + 1, "worker": None, "claim": None}
    return fields


def over(job: Job, now: datetime, charged: int, error: ErrorInfo | None, reason: Reason) -> dict[str, Any]:
    """Return the fields after the last attempt: cancelled if that was requested, failed otherwise."""
    if job.cancel_requested_at is not None:
        return ended(job, Status.CANCELLED, now, Reason.USER) | {"charged": charged, "error": error}
    return ended(job, Status.FAILED, now, reason) | {"charged": charged, "error": error}


def again(job: Job, now: datetime, charged: int, error: ErrorInfo | None, delay: float) -> dict[str, Any]:
    """Return the fields for another attempt after so many seconds."""
    due = now + timedelta(seconds=delay)
    return LOOSE | {
        "status": Status.RETRYING,
        "epoch": job.epoch + 1,
        "available_at": due,
        "act_by": None,
        "charged": charged,
        "error": error,
        "streak": None,
    }


def key_freed(job: Job) -> KeyEffect:
    """Free the dedup key with the last live status."""
    return _KEEP if job.spec.dedup is None else KeyEffect.RELEASE


def held_until(job: Job) -> datetime | None:
    """Return until when the job holds its dedup key after it completed; None: it frees it with its end."""
    spec = job.spec
    return None if spec.dedup_for is None else spec.created_at + timedelta(seconds=spec.dedup_for)


def key_kept(job: Job, at: datetime) -> KeyEffect:
    """Return what happens to the dedup key of a job that completes: it is freed, or held for the rest of its period."""
    spec = job.spec
    if spec.dedup is None:
        return _KEEP
    until = None if spec.dedup_for is None else held_until(job)
    return KeyEffect.RELEASE if until is None or until <= at else _KEEP


def placed(now: datetime, available_at: datetime, waits: int = 0) -> Status:
    """Return the status of a job that no worker holds: waiting for parents, for its time, or queued."""
    if waits > 0:
        return Status.WAITING
    return Status.SCHEDULED if available_at > now else _QUEUED


def soonest(job: Job, moment: datetime | None, rules: Rules) -> datetime | None:
    """Return when the sweeper must check a held job: at its own deadline, or at the end of a cancel's timeout."""
    if job.cancel_requested_at is None:
        return moment
    patience = job.cancel_requested_at + timedelta(seconds=2 * rules.beat + rules.cancel_grace)
    return patience if moment is None else min(moment, patience)


def heartbeat_of(job: Job, *, remote: bool) -> float | None:
    """Return within how many seconds a running job must give a sign; ``remote``: to a worker behind a hub."""
    spec = job.spec
    return spec.remote_heartbeat if remote and spec.heartbeat is None else spec.heartbeat


def running_until(job: Job, started_at: datetime, sign_at: datetime, rules: Rules, *, remote: bool) -> datetime | None:
    """Return when the sweeper must check a running job: after its timeout, or after its heartbeat since the last sign,
    whichever is sooner; None: it has neither."""
    timeout, heartbeat = job.spec.timeout, heartbeat_of(job, remote=remote)
    ends = [] if timeout is None else [started_at + timedelta(seconds=timeout)]
    if heartbeat is not None:
        ends.append(sign_at + timedelta(seconds=heartbeat))
    return min(ends) + timedelta(seconds=rules.timeout_check) if ends else None


def signed_at(job: Job, rules: Rules) -> datetime | None:
    """Return the moment from which the deadline of a running job was counted: its last sign on record if that is for
    its heartbeat, otherwise its start."""
    heartbeat, check = heartbeat_of(job, remote=True), timedelta(seconds=rules.timeout_check)
    if heartbeat is None or job.act_by is None or job.started_at is None:
        return job.started_at
    if job.timeout_at is not None and job.act_by >= job.timeout_at + check:
        return job.started_at
    return max(job.started_at, job.act_by - check - timedelta(seconds=heartbeat))


def silent_from(job: Job, rules: Rules) -> datetime | None:
    """Return when a running job has timed out if no further sign comes, as far as signs are on record; None: never, or
    not before its timeout."""
    heartbeat, sign_at = heartbeat_of(job, remote=True), signed_at(job, rules)
    if heartbeat is None or sign_at is None or job.act_by is None:
        return None
    ends = sign_at + timedelta(seconds=heartbeat)
    return ends if job.act_by == ends + timedelta(seconds=rules.timeout_check) else None


def expired(job: Job, now: datetime) -> bool:
    """Return whether it missed its last moment to be started for the first time."""
    return job.not_after is not None and job.first_started_at is None and job.not_after <= now


def expires_soon(job: Job, rules: Rules) -> bool:
    """Return whether a job that no worker holds may expire before the sweeper's next regular poll, so that the sweeper
    needs a hint: it polls an idle store every second time only."""
    if job.act_by is None or job.status in HELD:
        return False
    return (job.act_by - job.updated_at).total_seconds() < 2 * rules.beat
