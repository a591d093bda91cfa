"""What a worker does with a job, as pure functions: accept, start, report, finish and release it.

Each takes the job as last seen, the time and the event, and returns the ``Change`` to apply. ``submission`` makes new
jobs, ``actions`` has what people and programs do to a job from outside (cancel, retry, …), and ``sweep`` decides which
held job is taken away.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from msgspec.structs import replace

from headrace.core.attempt import Attempt, Completed, Ending, Failed, Progress, Released, Snoozed, TimedOut
from headrace.core.change import Change
from headrace.core.defaults import Rules
from headrace.core.job import Job
from headrace.core.lifecycle.decision import (
    COMPLETES,
    ENDS,
    LOOSE,
    again,
    change,
    close,
    close_uncharged,
    dated,
    ended,
    heartbeat_of,
    key_freed,
    key_kept,
    over,
    running_until,
    soonest,
)
from headrace.core.lifecycle.loss import lose
from headrace.core.lifecycle.transitions import check
from headrace.core.status import Cause, Outcome, Reason, Status, Verb
from headrace.core.webhooks.delivery import owing, tell
from headrace.errors import TransitionRefused

__all__ = [
    "DONE",
    "KEPT_BY_COMPLETE",
    "accept",
    "finish",
    "lose",
    "prepare",
    "progress",
    "release",
    "sign",
    "start",
    "start_may_wait",
    "start_or_release",
]


# A member of an enum costs a call to look up in Python 3.11: those that every job needs are looked up once.
_QUEUED = Status.QUEUED
_RUNNING, _COMPLETED = Status.RUNNING, Status.COMPLETED
_START, _COMPLETE = Verb.START, Verb.COMPLETE
_DID = Outcome.COMPLETED

_UNTROUBLED: dict[str, Any] = {
    "unstarted_losses": 0,
    "blameless_losses": 0,
    "suspect": 0,
    "spared": 0,
    "reason": None,
    "error": None,
    "fingerprint": None,
    "failed_at": None,
}
"""What is cleared when a job completes; the last two are set only beside an error."""

DONE = Progress(100.0)
"""The progress of a job that completed without a report."""


def accept(job: Job, now: datetime, rules: Rules) -> Change:
    """The worker takes what it was offered."""
    act_by = soonest(job, now + timedelta(seconds=rules.start), rules)
    fields = {"status": Status.ACCEPTED, "accepted_at": dated(job, now), "act_by": act_by}
    return change(job, Verb.ACCEPT, now, fields, owner=True)


def prepare(job: Job, now: datetime, rules: Rules) -> Change:
    """Give the worker more time to start: it prepares for the job, for example loads a model.

    Each report extends the time, up to the job's own timeout since it was assigned.
    """
    check(job, Verb.PREPARE)
    until, timeout = now + timedelta(seconds=rules.start), job.spec.timeout
    if timeout is not None and job.assigned_at is not None:
        last = job.assigned_at + timedelta(seconds=timeout)
        if last <= now:
            why = f"its worker has prepared for as long as it may run ({timeout:g} s); start it, or release it"
            raise TransitionRefused(job, Verb.PREPARE, why)
        until = min(until, last)
    accepted_at = dated(job, now) if job.accepted_at is None else job.accepted_at
    fields = {"status": Status.ACCEPTED, "accepted_at": accepted_at, "act_by": soonest(job, until, rules)}
    return change(job, Verb.PREPARE, now, fields, owner=True)


def _began(job: Job, at: datetime) -> datetime:
    """Return when the handler was called, as recorded: not before its worker had the job; a cancel may be later."""
    since = job.accepted_at or job.assigned_at
    return at if since is None or at >= since else since


def _started(job: Job, at: datetime) -> dict[str, Any]:
    at = _began(job, at)
    return {
        "status": Status.RUNNING,
        "attempt": job.attempt + 1,
        "started_at": at,
        "first_started_at": job.first_started_at or at,
        "unstarted_losses": 0,
    }


def start(job: Job, now: datetime, rules: Rules, *, remote: bool = False) -> Change:
    """The handler is being called; ``remote``: by a worker behind a hub."""
    began = _began(job, now)
    fields = _started(job, now) | {
        "act_by": soonest(job, running_until(job, began, began, rules, remote=remote), rules)
    }
    return change(job, Verb.START, now, fields, owner=True)


def start_or_release(
    job: Job, now: datetime, rules: Rules, *, gives_back: bool = False, remote: bool = False
) -> Change | None:
    """The start, or a hand-back in its place; None if the job is on record as running."""
    if job.status is Status.RUNNING:
        return None
    return release(job, now) if gives_back else start(job, now, rules, remote=remote)


def start_may_wait(job: Job, *, beside_suspect: bool = False) -> bool:
    """Return whether the start may be written together with the finish; else it must be durable before the call.

    Only in a job's very first attempt, and only if there may be another: a start that is not yet written may be lost
    uncharged. An attempt that was lost when several workers died at once does not count: no job has killed them all.
    Beside a job in quarantine it does: the job may have killed one of them, and one in quarantine is spared on its last
    attempt only if it can be seen that others ran.
    """
    first = job.attempt == job.unstarted_losses == job.blameless_losses
    if beside_suspect and job.blameless_losses:
        return False
    return first and job.charged + 1 < job.spec.retry.max_attempts


def progress(job: Job, now: datetime, report: Progress, rules: Rules, *, remote: bool = False) -> Change:
    """Record how far the handler is; the only change that keeps the rev, unless webhooks are notified of it.

    Of a job with a heartbeat it is a sign, so its deadline is another.
    """
    fields: dict[str, Any] = {"progress": report}
    if heartbeat_of(job, remote=remote) is not None:
        fields["act_by"] = _sign_until(job, now, rules, remote=remote)
    decided = change(job, Verb.PROGRESS, now, fields, owner=True)
    return decided if decided.inserts else replace(decided, job=replace(decided.job, rev=job.rev))


def sign(job: Job, now: datetime, rules: Rules, *, remote: bool = False) -> Change | None:
    """Record that the handler of a job with a heartbeat gave a sign at this moment, without a report of progress; None:
    its deadline stays as it is.

    It is a change of ``Verb.PROGRESS``, and no webhook is notified of it.
    """
    check(job, Verb.PROGRESS)
    if heartbeat_of(job, remote=remote) is None:
        return None
    act_by = _sign_until(job, now, rules, remote=remote)
    if act_by is None or (job.act_by is not None and act_by <= job.act_by):
        return None
    made = replace(job, updated_at=dated(job, now), act_by=act_by)
    return Change(verb=Verb.PROGRESS, rev=job.rev, job=made, epoch=job.epoch, worker=job.worker)


def _sign_until(job: Job, now: datetime, rules: Rules, *, remote: bool) -> datetime | None:
    return soonest(job, running_until(job, job.started_at or now, now, rules, remote=remote), rules)


def finish(
    job: Job,
    ending: Ending,
    now: datetime,
    chance: float,
    rules: Rules,
    started_at: datetime | None = None,
    processing_time: float | None = None,
) -> Change:
    """Record the end of a handler's run; a start that is not yet stored (``started_at``) is written with it.

    ``processing_time``: the seconds that the handler itself took, if they were measured.
    """
    if job.status is _RUNNING:
        started_at = None
    if type(ending) is Completed:
        return _complete(job, ending.result_text, now, started_at, processing_time)
    seen, told = job, tuple[Job, ...]()
    if started_at is not None:
        check(job, Verb.START, Status.RUNNING)
        seen = replace(job, rev=job.rev + 1, **_started(job, started_at))
        if job.spec.webhook is not None:
            held, owed = owing(job)
            seen = replace(seen, told=held.told)
            seen, told = tell(seen, "started", replace(seen, updated_at=seen.started_at or seen.updated_at))
            told = (*owed, *told)
    match ending:
        case Failed():
            decided = _fail(seen, ending, now, chance)
        case TimedOut(error, delay):
            decided = lose(seen, Cause.TIMEOUT, now, chance, rules, owner=True, error=error, delay=delay)
        case Snoozed(delay):
            decided = _snooze(seen, delay, now)
        case Released():
            decided = release(seen, now)
    if processing_time is not None and decided.attempt is not None:
        decided = replace(decided, attempt=replace(decided.attempt, processing_time=processing_time))
    return decided if seen is job else replace(decided, rev=job.rev, inserts=(*told, *decided.inserts))


KEPT_BY_COMPLETE = frozenset(
    {
        "id",
        "spec",
        "payload_text",
        "seq",
        "arrived_at",
        "available_at",
        "assigned_at",
        "accepted_at",
        "redrives",
        "waits",
        "not_after",
        "cancel_requested_at",
        "moved_to",
        "reprioritised_to",
    }
)
"""The fields that completing a job, its start included, leaves as they are: an engine need not write them."""


def _complete(
    job: Job, result_text: str, now: datetime, started_at: datetime | None, processing_time: float | None
) -> Change:
    # Like the other endings, but together with the start: nearly all jobs end so.
    if started_at is None:
        check(job, _COMPLETE, _COMPLETED)
        attempt, began, first, revs, at = job.attempt, job.started_at, job.first_started_at, 1, dated(job, now)
    else:
        check(job, _START, _RUNNING)
        began = _began(job, started_at)
        attempt, first, revs = job.attempt + 1, job.first_started_at or began, 2
        at = dated(job, now if now >= began else began)  # noqa: FURB136, see ``dated``
    # Rare fields are cleared separately: Python passes 14 keywords in a third of the time of a few more.
    if job.suspect or job.spared or job.reason is not None or job.error is not None:
        job = replace(job, **_UNTROUBLED)
    elif job.unstarted_losses or job.blameless_losses:
        job = replace(job, unstarted_losses=0, blameless_losses=0)
    done = replace(
        job,
        status=_COMPLETED,
        rev=job.rev + revs,
        epoch=job.epoch + 1,
        attempt=attempt,
        charged=job.charged + 1,
        worker=None,
        claim=None,
        act_by=None,
        updated_at=at,
        started_at=began,
        first_started_at=first,
        finished_at=at,
        progress=DONE if job.progress is None else replace(job.progress, percent=100.0),
        result_text=result_text,
    )
    told: tuple[Job, ...] = ()
    if job.spec.webhook is not None:
        done, told = _told_of(job, done, started=started_at is not None)
    return Change(
        verb=_COMPLETE,
        rev=job.rev,
        job=done,
        epoch=job.epoch,
        worker=job.worker,
        attempt=Attempt(
            number=attempt,
            epoch=job.epoch,
            outcome=_DID,
            worker=job.worker,
            assigned_at=job.assigned_at,
            started_at=began,
            finished_at=at,
            processing_time=processing_time,
        ),
        key=key_kept(job, at),
        notes=ENDS,
        tally=None if job.spec.batch is None else COMPLETES,
        inserts=told,
    )


def _told_of(job: Job, done: Job, *, started: bool) -> tuple[Job, tuple[Job, ...]]:
    """Return the completed job with its deliveries, also for its start if that is written with it."""
    before: tuple[Job, ...] = ()
    if started:
        began = {name: getattr(done, name) for name in ("attempt", "started_at", "first_started_at")}
        running = replace(job, status=_RUNNING, updated_at=done.started_at or done.updated_at, **began)
        held, owed = owing(job)
        done, before = tell(replace(done, told=held.told), "started", running)
        before = (*owed, *before)
    done, end = tell(done, "completed")
    return done, (*before, *end)


def _fail(job: Job, ending: Failed, now: datetime, chance: float) -> Change:
    policy, charged = job.spec.retry, job.charged + 1
    reason = ending.reason
    if reason is None and ending.delay is None and not policy.allows(ending.names):
        reason = Reason.NON_RETRYABLE
    if reason is None and charged >= policy.max_attempts:
        reason = Reason.RETRIES_EXHAUSTED
    closes = close(job, Outcome.FAILED, now, ending.error)
    if reason is not None or job.cancel_requested_at is not None:
        fields = over(job, now, charged, ending.error, reason or Reason.NON_RETRYABLE)
        return change(job, Verb.FAIL, now, fields, owner=True, closes=closes, key=key_freed(job))
    delay = policy.delay(charged - 1, chance) if ending.delay is None else ending.delay
    fields = again(job, now, charged, ending.error, delay)
    closes = replace(closes, retry_at=fields["available_at"])
    return change(job, Verb.FAIL, now, fields, owner=True, closes=closes)


def _cancelled(job: Job, verb: Verb, now: datetime) -> Change:
    """End a job after a cancel was requested: the handler stopped, or never began."""
    fields = ended(job, Status.CANCELLED, now, Reason.USER)
    closes = close(job, Outcome.CANCELLED, now) if job.status is Status.RUNNING else None
    return change(job, verb, now, fields, owner=True, closes=closes, key=key_freed(job))


def _snooze(job: Job, delay: float, now: datetime) -> Change:
    if job.cancel_requested_at is not None:
        return _cancelled(job, Verb.SNOOZE, now)
    attempt, streak = close_uncharged(job, Outcome.SNOOZED, now)
    fields = LOOSE | {
        "status": Status.SCHEDULED,
        "epoch": job.epoch + 1,
        "available_at": now + timedelta(seconds=delay),
        "act_by": None,
        "streak": streak,
    }
    return change(job, Verb.SNOOZE, now, fields, owner=True, closes=attempt)


def release(job: Job, now: datetime) -> Change:
    """Return the job to its queue: not charged, and it keeps its position by its old arrival."""
    if job.cancel_requested_at is not None:
        return _cancelled(job, Verb.RELEASE, now)
    expiry = job.not_after if job.first_started_at is None else None
    fields = LOOSE | {"status": Status.QUEUED, "epoch": job.epoch + 1, "act_by": expiry}
    if job.status is not Status.RUNNING:
        return change(job, Verb.RELEASE, now, fields, owner=True)
    attempt, streak = close_uncharged(job, Outcome.RELEASED, now)
    return change(job, Verb.RELEASE, now, fields | {"streak": streak}, owner=True, closes=attempt)
