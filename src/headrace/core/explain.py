"""Why a job is running, is not, or never will: facts from its record, told in sentences."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Self

import msgspec

from headrace.core.decide import expired, soonest
from headrace.core.instances import instance_of
from headrace.core.job import ErrorInfo, History, Job
from headrace.core.limit import Usage
from headrace.core.match import mismatch
from headrace.core.query import as_seen
from headrace.core.rate import next_permit, permits
from headrace.core.rule import Group, Limits
from headrace.core.rules import Rules
from headrace.core.status import Outcome, Reason, Status

if TYPE_CHECKING:
    from headrace.engine import WorkerRow

__all__ = ["Explanation", "Fact", "explain"]

_NAMED = 5
"""Jobs that hold a limit are named up to this many."""


class Fact(msgspec.Struct, frozen=True):
    """One thing that is so: a word for programs, a sentence for people, and what it is about."""

    code: str
    text: str
    data: dict[str, Any] = {}


class Explanation(str):  # noqa: SLOT000  # what varies in size has no slots
    """Why a job stands where it does: one paragraph, and the facts it is made of."""

    facts: tuple[Fact, ...]

    def __new__(cls, facts: Sequence[Fact]) -> Self:
        """Tell these facts."""
        made = super().__new__(cls, " ".join(fact.text for fact in facts))
        made.facts = tuple(facts)
        return made

    @property
    def codes(self) -> tuple[str, ...]:
        """The facts by their words."""
        return tuple(fact.code for fact in self.facts)


_REASONS = {
    Reason.RETRIES_EXHAUSTED: "no attempt is left",
    Reason.NON_RETRYABLE: "another attempt would not help",
    Reason.INVALID_PAYLOAD: "its payload does not fit the task",
    Reason.TIMEOUT: "its last attempt ran out of time",
    Reason.LOST: "its last attempt was lost with its worker",
    Reason.UNDELIVERABLE: "it was lost again and again before it could start",
    Reason.NO_HANDLER: "the worker had no handler for it",
    Reason.INVALID_RESULT: "its result cannot be stored",
    Reason.PARENT: "a job it waited for did not end as asked",
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
    ahead: int | None = None,
    rules: Rules | None = None,
) -> Explanation:
    """Say why the job stands where it does.

    ``usage``: what is in use of its limits. ``holders``: held jobs that may occupy them. ``ahead``: how many jobs are
    before it in its queue, if known.
    """
    limits = limits or Limits()
    seen = as_seen(job, now)
    facts = [*_origin(job)]
    if seen.ended:
        facts += _end(seen)
    elif seen.held:
        facts += _held(seen, now, workers, rules or Rules())
    elif seen.status is Status.QUEUED:
        full = list(_limited(seen, now, limits, usage or Usage(), holders))
        facts += _queued(seen, now, workers, limits.queue(job.queue).paused, full, ahead)
    else:
        facts += _deferred(seen, now)
    facts += _past(seen, history)
    return Explanation(tuple(facts))


def _origin(job: Job) -> Iterator[Fact]:
    if (run := instance_of(job)) is not None:
        text = f"It is a run of instance {run.number + 1} of the continuous schedule {run.schedule!r}."
        yield Fact("continuous", text, {"name": run.schedule, "instance": run.number})
    elif job.spec.schedule is not None:
        at = job.spec.fire_at
        who = f"the schedule {job.spec.schedule!r}"
        text = f"It was triggered by hand, from {who}." if at is None else f"T{who[1:]} submitted it for {_clock(at)}."
        yield Fact("schedule", text, {"name": job.spec.schedule})
    if job.spec.rerun_of is not None:
        yield Fact("rerun", f"It is a rerun of job {job.spec.rerun_of}.", {"of": job.spec.rerun_of})


def _end(job: Job) -> Iterator[Fact]:
    when = f" at {_clock(job.finished_at)}" if job.finished_at else ""
    why = f": {_REASONS[job.reason]}" if job.reason is not None else ""
    verb = "was cancelled" if job.status is Status.CANCELLED else str(job.status)
    yield Fact(str(job.status), f"It {verb}{when}{why}.", {"reason": job.reason, "at": job.finished_at})
    if job.error is not None and job.status is not Status.COMPLETED:
        yield _error(job.error)
    if job.status is Status.FAILED:
        yield Fact("remedy", "Retry it to give it a new budget, or rerun it as a new job.")


def _error(error: ErrorInfo) -> Fact:
    return Fact("error", f"The last error was {_told(error)}.", {"type": error.type, "message": error.message})


def _held(job: Job, now: datetime, workers: Sequence[WorkerRow], rules: Rules) -> Iterator[Fact]:
    row = next((row for row in workers if row.info.id == job.worker), None)
    who = f"worker {job.worker}" if row is None else f"worker {job.worker} on {row.info.host} (pid {row.info.pid})"
    since = job.started_at or job.accepted_at or job.assigned_at or job.updated_at
    does = {
        Status.ASSIGNED: f"was offered to {who}",
        Status.ACCEPTED: f"is in the hands of {who}",
        Status.RUNNING: f"runs on {who}",
    }[job.status]
    attempt = f", attempt {job.attempt}" if job.status is Status.RUNNING else ""
    data = {"worker": job.worker, "since": since}
    yield Fact(str(job.status), f"It {does} since {_clock(since)} ({_ago(now - since)}){attempt}.", data)
    if row is not None and not row.alive:
        yield Fact("worker_dead", "That worker is dead; the sweeper is about to take the job back.")
    elif row is not None:
        silent = (now - row.beat_at).total_seconds()
        if silent > 2 * rules.beat:
            yield Fact(
                "worker_silent", f"That worker was last heard of {_ago(now - row.beat_at)}.", {"seconds": silent}
            )
        if row.beat.state == "blocked":
            yield Fact("worker_blocked", "That worker's event loop is blocked.")
    if job.progress is not None:
        message = f": {job.progress.message}" if job.progress.message else ""
        yield Fact("progress", f"It is at {job.progress.percent:g} %{message}.", {"percent": job.progress.percent})
    if job.cancel_requested_at is not None:
        patience = soonest(job, None, rules)
        limit = f"; if it does not stop, it is ended at {_clock(patience)}" if patience else ""
        text = f"A cancel was requested at {_clock(job.cancel_requested_at)}{limit}."
        yield Fact("cancel_requested", text, {"at": job.cancel_requested_at})
    if job.timeout_at is not None:
        late = job.timeout_at <= now
        text = (
            f"Its time ran out at {_clock(job.timeout_at)}" if late else f"It must be done by {_clock(job.timeout_at)}"
        )
        yield Fact(
            "timed_out" if late else "deadline", f"{text} ({_span(job.timeout_at, now)}).", {"at": job.timeout_at}
        )


def _deferred(job: Job, now: datetime) -> Iterator[Fact]:
    due = f"{_clock(job.available_at)} ({_span(job.available_at, now)})"
    match job.status:
        case Status.PENDING:
            yield Fact("pending", "It was accepted and waits to be checked.")
        case Status.WAITING:
            yield Fact("waiting", f"It waits for {_many(job.waits, 'other job')} to end.", {"jobs": job.waits})
        case Status.RETRYING:
            failed = f" after {_told(job.error)}" if job.error else ""
            text = f"It is tried again at {due}{failed}: {job.charged} of {job.max_attempts} attempts are used up."
            yield Fact("retrying", text, {"until": job.available_at, "charged": job.charged})
        case _:
            snoozed = job.streak is not None and job.streak.outcome is Outcome.SNOOZED
            what = "It snoozes until" if snoozed else "It is scheduled for"
            yield Fact("snoozed" if snoozed else "scheduled", f"{what} {due}.", {"until": job.available_at})
    yield from _expiry(job, now)


def _expiry(job: Job, now: datetime) -> Iterator[Fact]:
    if job.not_after is None or job.first_started_at is not None:
        return
    if expired(job, now):
        yield Fact("expired", f"Its last moment to start was {_clock(job.not_after)}: it will be cancelled.")
    else:
        yield Fact("expires", f"It expires unless it starts by {_clock(job.not_after)}.", {"at": job.not_after})


def _limited(job: Job, now: datetime, limits: Limits, usage: Usage, holders: Sequence[Job]) -> Iterator[Fact]:
    """What keeps it waiting although a worker might take it."""
    group = Group(job.queue, job.task, job.concurrency_key)
    for bound, most in limits.concurrency(group).items():
        held = usage.held.get(bound, 0)
        if held < most:
            continue
        mine = [one for one in holders if bound in limits.concurrency(Group(one.queue, one.task, one.concurrency_key))]
        who = ", ".join(str(one.id) for one in mine[:_NAMED]) + (" and others" if len(mine) > _NAMED else "")
        what = {"queue": "queue", "task": "task", "key": "concurrency key"}[bound[0]]
        text = f"The {what} {bound[-1]!r} may have {_many(most, 'job')} at once, and has {held}"
        data = {"kind": bound[0], "name": bound[-1], "most": most, "held": held, "by": [one.id for one in mine]}
        yield Fact("limit_full", f"{text}: {who}." if who else f"{text}.", data)
    for bound, rate in limits.paced(group).items():
        spent = usage.spent.get(bound, ())
        if permits(rate, spent, now) < 1:
            soon = next_permit(rate, spent, now)
            of = f" of the key {bound[-1]!r}" if len(bound) > 2 else ""
            text = f"The rate {bound[1]!r}{of} lets {rate.limit} begin in {rate.per:g} s: the next at {_clock(soon)}"
            yield Fact("rate_spent", f"{text} ({_span(soon, now)}).", {"name": bound[1], "next_permit": soon})


def _queued(
    job: Job, now: datetime, workers: Sequence[WorkerRow], paused: bool, full: Sequence[Fact], ahead: int | None
) -> Iterator[Fact]:
    since = f"since {_clock(job.arrived_at)} ({_ago(now - job.arrived_at)})"
    yield Fact("queued", f"It stands in queue {job.queue!r} {since}.", {"since": job.arrived_at})
    yield from _expiry(job, now)
    if expired(job, now):
        return
    if paused:
        yield Fact("queue_paused", f"Queue {job.queue!r} is paused: nothing is taken from it until it is resumed.")
    yield from full
    able = [row for row in workers if row.alive and row.beat.state != "draining"]
    fact = _nobody(job, able)
    if fact is not None:
        yield fact
        return
    takers = [row for row in able if _obstacle(job, row) is None]
    if ahead:
        yield Fact("behind", f"{_many(ahead, 'job')} {'is' if ahead == 1 else 'are'} before it.", {"jobs": ahead})
    free = sum(max(0, row.info.concurrency - row.beat.busy) for row in takers)
    if not free:
        text = f"{_many(len(takers), 'live worker')} may take it, and all their slots are busy."
        yield Fact("workers_busy", text, {"workers": len(takers)})
    elif not paused and not full:
        text = f"{_many(len(takers), 'live worker')} may take it, with {_many(free, 'free slot')}: it is about to run."
        yield Fact("ready", text, {"workers": len(takers), "free": free})
    if job.unstarted_losses:
        text = f"It was lost {_many(job.unstarted_losses, 'time')} before its start, so it is given to free slots only."
        yield Fact("fragile", text, {"losses": job.unstarted_losses})


def _obstacle(job: Job, row: WorkerRow) -> tuple[int, str] | None:
    """What keeps this worker from taking the job; the greater the number, the nearer it is to taking it."""
    if job.task not in row.info.tasks:
        return 0, f"no live worker has the task {job.task!r}"
    if row.info.queues is not None and job.queue not in row.info.queues:
        return 1, f"no live worker with its task serves queue {job.queue!r}"
    lacking = mismatch(job.requires, row.info.offers)
    if lacking is not None:
        need, offer = job.requires[lacking], row.info.offers.get(lacking)
        near = f"worker {row.info.id} on {row.info.host} offers {lacking}={offer!r}"
        return 2, f"no live worker meets its requirement {lacking}={need!r}; the nearest, {near}"
    return None


def _nobody(job: Job, able: Sequence[WorkerRow]) -> Fact | None:
    """Why no worker at all may take it, if so."""
    if not able:
        return Fact("no_worker", "No worker is alive: start one.")
    obstacles = [_obstacle(job, row) for row in able]
    if any(one is None for one in obstacles):
        return None
    rank, text = max((one for one in obstacles if one is not None), key=lambda one: one[0])
    code = ("no_task", "queue_not_served", "requirements_unmet")[rank]
    return Fact(code, f"{text[0].upper()}{text[1:]}.", {"task": job.task, "queue": job.queue})


def _past(job: Job, history: History) -> Iterator[Fact]:
    if job.redrives:
        yield Fact("redriven", f"It was retried by hand {_many(job.redrives, 'time')}.", {"times": job.redrives})
    runs = sum(attempt.count for attempt in history.attempts)
    if not runs:
        return
    ends: dict[str, int] = {}
    for attempt in history.attempts:
        ends[attempt.outcome] = ends.get(attempt.outcome, 0) + attempt.count
    told = ", ".join(f"{count} {outcome.replace('_', ' ')}" for outcome, count in ends.items())
    yield Fact("attempts", f"{_many(runs, 'attempt')} so far: {told}.", dict(ends))


def _told(error: ErrorInfo) -> str:
    first = error.message.strip().splitlines()[:1]
    return f"{error.type}: {first[0][:200]}" if first else error.type


def _many(n: int, noun: str) -> str:
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"


def _clock(at: datetime) -> str:
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def _span(at: datetime, now: datetime) -> str:
    return f"in {_length(at - now)}" if at > now else _ago(now - at)


def _ago(passed: timedelta) -> str:
    return f"{_length(passed)} ago" if passed >= timedelta(seconds=1) else "just now"


def _length(span: timedelta) -> str:
    seconds = max(0.0, span.total_seconds())
    for size, unit in ((86400.0, "d"), (3600.0, "h"), (60.0, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
