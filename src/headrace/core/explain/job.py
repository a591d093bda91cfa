"""Why a job is running, is not, or never will: facts from its record, in sentences."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from datetime import UTC, datetime, tzinfo
from typing import TYPE_CHECKING
from uuid import UUID

from headrace.core.attempt import ErrorInfo, History
from headrace.core.defaults import Rules
from headrace.core.explain.explanation import Explanation, Fact, ago, many, roughly, span, told
from headrace.core.explain.position import Position
from headrace.core.explain.queued import explain_queued
from headrace.core.explain.waiting import Relatives, blame, explain_waiting
from headrace.core.job import Job
from headrace.core.lifecycle.decision import expired, heartbeat_of, held_until, silent_from, soonest
from headrace.core.lifecycle.liveness import told_silence
from headrace.core.lifecycle.suspects import in_quarantine, told_suspect
from headrace.core.limits.selection import Usage
from headrace.core.limits.settings import Limits
from headrace.core.query import as_seen
from headrace.core.schedule.continuous import instance_of
from headrace.core.stats.histogram import Quantiles
from headrace.core.status import Cause, Outcome, Reason, Status
from headrace.core.times import moment

if TYPE_CHECKING:
    from headrace.engine import WorkerRow

__all__ = ["Explanation", "Fact", "explain"]

_REASONS = {
    Reason.RETRIES_EXHAUSTED: "no attempt is left",
    Reason.NON_RETRYABLE: "another attempt would not help",
    Reason.INVALID_PAYLOAD: "its payload does not fit the task",
    Reason.TIMEOUT: "its last attempt ran out of time",
    Reason.LOST: "its last attempt was lost with its worker",
    Reason.UNDELIVERABLE: "it was lost again and again before it could start",
    Reason.NO_HANDLER: "the worker had no handler for it",
    Reason.INVALID_RESULT: "its result cannot be stored",
    Reason.PARENT: "a job that it depends on did not end as asked",
    Reason.USER: "that was asked for",
    Reason.EXPIRED: "it was not started before its last moment",
    Reason.DISCARDED: "it was put away by hand",
}


def explain(
    job: Job,
    history: History,
    now: datetime,
    workers: Sequence[WorkerRow] = (),
    *,
    limits: Limits | None = None,
    usage: Usage | None = None,
    holders: Sequence[Job] = (),
    position: Position | None = None,
    parents: Sequence[Job] = (),
    rules: Rules | None = None,
    to: str | None = None,
    zone: tzinfo | None = UTC,
    takes: Quantiles | None = None,
    queue_takes: Quantiles | None = None,
    isolated: Collection[UUID] = (),
) -> Explanation:
    """Explain a job: why it is in its status, and what happens next.

    ``usage``: what is in use of its limits. ``holders``: held jobs that may occupy them. ``position``: its position in
    its queue, if known. ``parents``: those of its ``relatives`` that still exist. ``to``: a customer who reads it, and
    must not learn of other jobs than its own, nor on which machines workers are. ``zone``: of the reader; None is that
    of this machine. ``takes``, ``queue_takes``: how long recent runs of its task, and those in its queue, took, if
    known. ``isolated``: strict workers that hold jobs of another customer.
    """
    limits, rules, known = limits or Limits(), rules or Rules(), Relatives(parents, now, to)
    workers = [row.as_heard(now, rules) for row in workers]
    if to is not None:
        holders = [one for one in holders if one.customer == to]
        workers = [row.without_place() for row in workers]
    seen = as_seen(job, now)
    facts = [*_origin(job, zone)]
    if seen.ended:
        facts += [*_end(seen, zone), *blame(seen, known), *_remedy(seen)]
    elif seen.held:
        facts += [*_held(seen, now, workers, rules, zone), *_usual(takes)]
    elif seen.status is Status.QUEUED:
        facts += _queued(seen, now, zone)
        if not expired(seen, now):
            used, takes = usage or Usage(), queue_takes
            facts += explain_queued(
                seen, now, workers, limits, used, holders, position, zone, takes, isolated=isolated, to=to
            )
    elif seen.status is Status.WAITING:
        facts += [*explain_waiting(seen, known), *_expiry(seen, now, zone)]
    else:
        facts += _deferred(seen, now, zone)
    facts += [*_suspected(seen), *_past(seen, history)]
    if to is None:
        facts += _lost(history)
    return Explanation(tuple(facts))


def _usual(takes: Quantiles | None) -> Iterator[Fact]:
    if takes is not None:
        usual, long = roughly(takes.p50), roughly(takes.p95)
        data = {"runs": takes.count, "p50": takes.p50, "p95": takes.p95, "p99": takes.p99}
        text = f"Runs of its task take up to {usual} (p50), up to {long} (p95)."
        yield Fact("processing_time", text, data)


def _origin(job: Job, zone: tzinfo | None) -> Iterator[Fact]:
    if (run := instance_of(job)) is not None:
        text = f"It is a run of instance {run.number + 1} of the continuous schedule {run.schedule!r}."
        yield Fact("continuous", text, {"name": run.schedule, "instance": run.number})
    elif job.spec.schedule is not None:
        at = job.spec.fire_at
        who = f"the schedule {job.spec.schedule!r}"
        by_rule = "" if at is None else f"T{who[1:]} submitted it for {moment(at, zone)}."
        text = by_rule or f"It was triggered by hand, from {who}."
        yield Fact("schedule", text, {"name": job.spec.schedule})
    if job.spec.rerun_of is not None:
        yield Fact("rerun", f"It is a rerun of job {job.spec.rerun_of}.", {"of": job.spec.rerun_of})


def _end(job: Job, zone: tzinfo | None) -> Iterator[Fact]:
    when = f" at {moment(job.finished_at, zone)}" if job.finished_at else ""
    why = f": {_REASONS[job.reason]}" if job.reason is not None else ""
    verb = "was cancelled" if job.status is Status.CANCELLED else str(job.status)
    yield Fact(str(job.status), f"It {verb}{when}{why}.", {"reason": job.reason, "at": job.finished_at})
    if job.error is not None and job.status is not Status.COMPLETED:
        yield _error(job.error)
    own = None if job.spec.retention is None else job.spec.retention.of(job.status)
    if own is not None and job.finished_at is not None:
        held = held_until(job) if job.status is Status.COMPLETED else None
        until = max(job.finished_at, held or job.finished_at) + own  # not while it holds its key
        yield Fact("retention", f"It is kept until {moment(until, zone)}, as asked at its submit.", {"until": until})


def _remedy(job: Job) -> Iterator[Fact]:
    if job.status is Status.FAILED and job.suspect > 1:
        text = "It may have killed its workers: mend its handler before you retry it, or it may kill more of them."
        yield Fact("remedy", text)
    elif job.status is Status.FAILED:
        yield Fact("remedy", "Retry it to give it a new budget, or rerun it as a new job.")


def _error(error: ErrorInfo) -> Fact:
    return Fact("error", f"The last error was {told(error)}.", {"type": error.type, "message": error.message})


def _held(job: Job, now: datetime, workers: Sequence[WorkerRow], rules: Rules, zone: tzinfo | None) -> Iterator[Fact]:
    row = next((row for row in workers if row.info.id == job.worker), None)
    who = f"worker {job.worker}" if row is None else row.info.described
    since = job.started_at or job.accepted_at or job.assigned_at or job.updated_at
    does = {
        Status.ASSIGNED: f"was offered to {who}",
        Status.ACCEPTED: f"is in the hands of {who}",
        Status.RUNNING: f"runs on {who}",
    }[job.status]
    attempt = f", attempt {job.attempt}" if job.status is Status.RUNNING else ""
    data = {"worker": job.worker, "since": since}
    yield Fact(str(job.status), f"It {does} since {moment(since, zone)} ({ago(now - since)}){attempt}.", data)
    if row is not None and not row.alive:
        yield _gone(row, now, any(other.alive for other in workers))
    elif row is not None and row.beat.state == "blocked":
        yield Fact("worker_blocked", "That worker's event loop is blocked.")
    if job.progress is not None:
        message = f": {job.progress.message}" if job.progress.message else ""
        yield Fact("progress", f"It is at {job.progress.percent:g} %{message}.", {"percent": job.progress.percent})
        if (done_at := job.progress.estimated_completion) is not None:
            text = f"It expects to be done at {moment(done_at, zone)} ({span(done_at, now)})."
            yield Fact("estimated_completion", text, {"at": done_at})
    if job.cancel_requested_at is not None:
        patience = soonest(job, None, rules)
        limit = f"; if it does not stop, it is ended at {moment(patience, zone)}" if patience else ""
        text = f"A cancel was requested at {moment(job.cancel_requested_at, zone)}{limit}."
        yield Fact("cancel_requested", text, {"at": job.cancel_requested_at})
    if job.timeout_at is not None:
        late = job.timeout_at <= now
        text = f"{'Its time ran out at' if late else 'It must be done by'} {moment(job.timeout_at, zone)}"
        yield Fact(
            "timed_out" if late else "deadline", f"{text} ({span(job.timeout_at, now)}).", {"at": job.timeout_at}
        )
    if job.status is Status.RUNNING and (silent_at := silent_from(job, rules)) is not None:
        late, seconds = silent_at <= now, heartbeat_of(job, remote=True)
        text = f"It has reported nothing for {seconds:g} s" if late else f"It must report something every {seconds:g} s"
        text += f": its time ran out at {moment(silent_at, zone)}" if late else f", next by {moment(silent_at, zone)}"
        yield Fact("no_sign" if late else "sign_by", f"{text} ({span(silent_at, now)}).", {"at": silent_at})


def _gone(row: WorkerRow, now: datetime, others: bool) -> Fact:
    """Return what happens to the job of a dead or silent worker."""
    soon = "the job is about to be taken back" if others else "no other is alive to take the job back: start one"
    if row.silent_since is None:
        return Fact("worker_dead", f"That worker is dead; {soon}.")
    data = {"since": row.silent_since, "seconds": (now - row.silent_since).total_seconds()}
    return Fact("worker_silent", f"That worker has been {told_silence(row.silent_since, now)}; {soon}.", data)


def _deferred(job: Job, now: datetime, zone: tzinfo | None) -> Iterator[Fact]:
    due = f"{moment(job.available_at, zone)} ({span(job.available_at, now)})"
    match job.status:
        case Status.PENDING:
            yield Fact("pending", "It was accepted and waits to be checked.")
        case Status.RETRYING:
            failed = f" after {told(job.error)}" if job.error else ""
            text = f"It is tried again at {due}{failed}: {job.charged} of {job.max_attempts} attempts are used up."
            yield Fact("retrying", text, {"until": job.available_at, "charged": job.charged})
        case _:
            snoozed = job.streak is not None and job.streak.outcome is Outcome.SNOOZED
            what = "It snoozes until" if snoozed else "It is scheduled for"
            yield Fact("snoozed" if snoozed else "scheduled", f"{what} {due}.", {"until": job.available_at})
    yield from _expiry(job, now, zone)


def _expiry(job: Job, now: datetime, zone: tzinfo | None) -> Iterator[Fact]:
    if job.not_after is None or job.first_started_at is not None:
        return
    if expired(job, now):
        yield Fact("expired", f"Its last moment to start was {moment(job.not_after, zone)}: it will be cancelled.")
    else:
        yield Fact("expires", f"It expires unless it starts by {moment(job.not_after, zone)}.", {"at": job.not_after})


def _queued(job: Job, now: datetime, zone: tzinfo | None) -> Iterator[Fact]:
    since = f"since {moment(job.arrived_at, zone)} ({ago(now - job.arrived_at)})"
    yield Fact("queued", f"It stands in queue {job.queue!r} {since}.", {"since": job.arrived_at})
    yield from _expiry(job, now, zone)


def _suspected(job: Job) -> Iterator[Fact]:
    if job.suspect:
        data = {"losses": job.suspect, "quarantine": in_quarantine(job), "spared": job.spared}
        yield Fact("suspect", f"It is suspect: it {told_suspect(job)}.", data)


def _lost(history: History) -> Iterator[Fact]:
    """Where to look for what happened to the last worker that died of those that had the job."""
    for attempt in reversed(history.attempts):
        if attempt.outcome is Outcome.LOST and attempt.cause == Cause.LEASE and attempt.worker is not None:
            text = f"How its worker went, and what else it held: headrace workers gone {attempt.worker}."
            yield Fact("lost", text, {"worker": attempt.worker, "attempt": attempt.number})
            return


def _past(job: Job, history: History) -> Iterator[Fact]:
    if job.redrives:
        yield Fact("redriven", f"It was retried by hand {many(job.redrives, 'time')}.", {"times": job.redrives})
    runs = sum(attempt.count for attempt in history.attempts)
    if not runs:
        return
    ends: dict[str, int] = {}
    for attempt in history.attempts:
        ends[attempt.outcome] = ends.get(attempt.outcome, 0) + attempt.count
    counts = ", ".join(f"{count} {outcome.replace('_', ' ')}" for outcome, count in ends.items())
    yield Fact("attempts", f"{many(runs, 'attempt')} so far: {counts}.", dict(ends))
