"""Loss of a held job: it is taken from a worker that died, does not confirm it, or let its time run out."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from msgspec.structs import replace

from headrace.core.attempt import ErrorInfo, Failed, TimedOut
from headrace.core.change import Change, KeyEffect
from headrace.core.defaults import Rules
from headrace.core.job import Job
from headrace.core.lifecycle.decision import LOOSE, again, change, close, ended, heartbeat_of, key_freed, over
from headrace.core.lifecycle.suspects import is_spared
from headrace.core.status import ENDED, Cause, Outcome, Reason, Status, Verb
from headrace.core.times import length, utc

__all__ = ["SAID", "lose", "reported", "timeout_error"]

_LOST = {
    Cause.LEASE: "the worker is dead",
    Cause.BEAT: "the worker no longer names this job as held",
    Cause.ACCEPT_BY: "the worker did not accept in time",
    Cause.START_BY: "the worker did not start in time",
    Cause.CANCEL: "the handler did not stop within the grace of a cancel",
}

_FIRST_DEATH_DELAY_SECONDS = 0.2
"""Maximum seconds before the retry after the first death of a worker: the worker failed, not the handler.

The jobs that it ran come back one by one within this time. After a second death the policy's backoff applies.
"""

SAID = "error"
"""The detail of a timeout with the error of the worker, which reported it as a failure."""

_SPARED = ("a suspect ran beside it", "it was its last attempt, and other jobs ran beside it")


def lose(
    job: Job,
    cause: Cause,
    now: datetime,
    chance: float,
    rules: Rules,
    *,
    owner: bool = False,
    error: ErrorInfo | None = None,
    delay: float | None = None,
    heard_at: datetime | None = None,
    beside_suspect: bool = False,
    mass_death: bool = False,
) -> Change:
    """Take a held job from its worker; ``owner``: the worker itself reports it (its time ran out), ``delay``: what it
    says about the next attempt.

    ``heard_at``: the last beat of a dead worker, which says how long it was silent. ``beside_suspect``: on that worker
    a suspect and another job ran together, as its burial recorded. ``mass_death``: other workers died at the same
    time, so that none of the jobs is likely to have killed this one.
    """
    error = error or _lost(job, cause, now, heard_at, rules)
    if job.status is Status.RUNNING:
        return _lose_started(job, cause, now, chance, error, delay, owner=owner, beside_suspect=beside_suspect)
    losses = job.unstarted_losses + 1
    fields: dict[str, Any] = {"unstarted_losses": losses}
    closes = None
    if job.status is Status.ACCEPTED:
        # It may have been executing already: record it with an unknown start under a number of its own.
        fields["attempt"] = job.attempt + 1
        fields["streak"] = None
        if mass_death and cause is Cause.LEASE:  # once: several killing jobs may run at the same time
            fields["blameless_losses"] = 1
        closes = replace(close(job, Outcome.LOST, now, error, cause), number=job.attempt + 1)
    if job.cancel_requested_at is not None:
        fields |= ended(job, Status.CANCELLED, now, Reason.USER)
    elif losses >= rules.undeliverable_after:
        fields |= ended(job, Status.FAILED, now, Reason.UNDELIVERABLE)
        fields["error"] = ErrorInfo("Undeliverable", f"taken by a worker and lost before its start {losses} times")
    else:
        expiry = job.not_after if job.first_started_at is None else None
        fields |= LOOSE | {"status": Status.QUEUED, "epoch": job.epoch + 1, "act_by": expiry}
        return change(job, Verb.LOSE, now, fields, owner=owner, closes=closes)
    return change(job, Verb.LOSE, now, fields, owner=owner, closes=closes, key=key_freed(job))


def timeout_error(job: Job, heartbeat: float | None = None) -> ErrorInfo:
    """Return the error of an attempt that ran out of time; ``heartbeat``: the seconds in which it gave no sign, if that
    is why."""
    if heartbeat is not None:
        return ErrorInfo("Timeout", f"the attempt reported nothing for {heartbeat:g} s")
    text = "the attempt ran out of time"
    return ErrorInfo("Timeout", f"{text} ({job.spec.timeout:g} s)" if job.spec.timeout else text)


def _overdue_error(job: Job, now: datetime) -> ErrorInfo:
    """Return the error of an attempt that the sweeper ends: that of its heartbeat, unless its time is over as well."""
    late = job.timeout_at is not None and job.timeout_at <= now
    return timeout_error(job, None if late else heartbeat_of(job, remote=True))


def reported(job: Job, failed: Failed, now: datetime, rules: Rules) -> Failed | TimedOut:
    """Return a failure that a worker reports after a request to stop: after the job's time it is a timeout.

    A failure that itself rules out a further attempt is taken as it is.
    """
    if failed.reason is not None or job.status is not Status.RUNNING or job.timeout_at is None or job.timeout_at > now:
        return failed
    late, error = timeout_error(job), failed.error
    details = {**(error.details or {}), SAID: error.message}
    return TimedOut(ErrorInfo(late.type, late.message, error.traceback, details).cut(rules.error_limit))


def _lost(job: Job, cause: Cause, now: datetime, heard_at: datetime | None, rules: Rules) -> ErrorInfo:
    """Return the error of a lost attempt: why it was lost, in words."""
    if cause is Cause.TIMEOUT:
        return _overdue_error(job, now)
    text = _LOST[cause]
    silent = 0.0 if heard_at is None else max(0.0, (now - heard_at).total_seconds())
    # Maybe no process was there to bury it: then its silence made it miss whatever it missed.
    if heard_at is None or (cause is not Cause.LEASE and silent < rules.lease):
        return ErrorInfo("Lost", text)
    details = {"last_heard_at": utc(heard_at), "silent_seconds": round(silent, 3)}
    # A worker that is known to be dead before its lease was over did not fall silent: its process ended, or it left.
    died = f"its last heartbeat was {length(silent)} earlier"
    how = f"it was silent for {length(silent)}" if silent >= rules.lease else died
    return ErrorInfo("Lost", f"{text}: {how}", details=details)


def _lose_started(
    job: Job,
    cause: Cause,
    now: datetime,
    chance: float,
    error: ErrorInfo,
    delay: float | None,
    *,
    owner: bool,
    beside_suspect: bool,
) -> Change:
    policy, timed_out, died = job.spec.retry, cause is Cause.TIMEOUT, cause is Cause.LEASE
    spared = died and is_spared(job, beside_suspect=beside_suspect)
    charged = job.charged if spared else job.charged + 1
    if spared:
        message = f"{error.message}; not charged: {_SPARED[job.suspect > 0]}"
        error = replace(error, message=message, details={**(error.details or {}), "charged": False})
    objection = policy.timeout_objection() if timed_out else None
    if objection is not None and charged < policy.max_attempts and job.cancel_requested_at is None:
        error = replace(error, message=f"{error.message}; not retried: {objection}")
    outcome = Outcome.TIMED_OUT if timed_out else Outcome.LOST
    closes = close(job, outcome, now, error, cause)
    if objection is not None or charged >= policy.max_attempts or job.cancel_requested_at is not None:
        fields = over(job, now, charged, error, Reason.TIMEOUT if timed_out else Reason.LOST)
    else:
        # Jobs that were lost together must not come back together again and again.
        if delay is None:
            delay = policy.delay(max(0, charged - 1), chance, jitter=not timed_out)
        if died and not job.suspect:
            delay = min(delay, _FIRST_DEATH_DELAY_SECONDS * (0.5 + chance / 2))
        fields = again(job, now, charged, error, delay)
        closes = replace(closes, retry_at=fields["available_at"])
    if died:
        fields |= {"suspect": job.suspect + 1, "spared": job.spared + spared}
    key = key_freed(job) if fields["status"] in ENDED else KeyEffect.KEEP
    return change(job, Verb.LOSE, now, fields, owner=owner, closes=closes, key=key)
