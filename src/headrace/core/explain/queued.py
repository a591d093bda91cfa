"""Why a queued job is not running: what holds it back, which workers might take it, its position, when it may start."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from datetime import UTC, datetime, timedelta, tzinfo
from typing import TYPE_CHECKING
from uuid import UUID

from headrace.core.explain.explanation import Fact, ago, many, per_time, roughly, span
from headrace.core.explain.obstacle import nobody_may, obstacle
from headrace.core.explain.position import Position, estimate, expected_pace, pace, starts_at_once
from headrace.core.job import Job
from headrace.core.lifecycle.suspects import in_quarantine
from headrace.core.limits.rate import next_permit, permits
from headrace.core.limits.selection import Usage
from headrace.core.limits.settings import Limits, QueueRule, TaskRule, counted_by, group_of, told_unreadable
from headrace.core.stats.histogram import Quantiles
from headrace.core.times import moment

if TYPE_CHECKING:
    from headrace.engine import WorkerRow

__all__ = ["explain_queued"]

_MAX_NAMED_JOBS = 5
"""Maximum jobs that are named as holders of a limit."""


_ALONE = ", as soon as one of them runs no other job in quarantine"


def explain_queued(
    job: Job,
    now: datetime,
    workers: Sequence[WorkerRow],
    limits: Limits,
    usage: Usage,
    holders: Sequence[Job],
    position: Position | None,
    zone: tzinfo | None = UTC,
    takes: Quantiles | None = None,
    *,
    isolated: Collection[UUID] = (),
    to: str | None = None,
) -> Iterator[Fact]:
    """Yield the facts about a queued job that has not expired: what holds it back, its workers, and its start.

    ``takes``: how long recent runs in its queue took. ``isolated``: strict workers that hold jobs of another customer.
    ``to``: a customer who reads it.
    """
    held_back = [*_paused(job, now, limits, zone), *_limited(job, now, limits, usage, holders, zone)]
    yield from held_back
    able = [row for row in workers if row.takes]
    silent = [row.silent_since for row in workers if row.silent_since is not None]
    nobody = _silent(now, max(silent)) if silent and not able else _nobody(job, able, limits, to)
    if nobody is not None:
        yield nobody
    apart = in_quarantine(job)
    if apart:
        position = None  # it is in a subqueue of its own, and the jobs before it do not delay it
    if position is not None:
        yield _position(job, position)
    if nobody is not None:
        return
    takers = [row for row in able if obstacle(job, row, limits) is None]
    kept = [row for row in takers if row.info.id in isolated]
    takers = [row for row in takers if row.info.id not in isolated]
    yield from _isolated(len(kept))
    if not takers:
        return
    free = sum(max(0, row.info.concurrency - row.beat.busy) for row in takers)
    soon = not held_back and not apart and (position is None or starts_at_once(position, free))
    yield from _takers(
        len(takers),
        free,
        soon,
        bool(held_back),
        ", as soon as one of them runs no other job in quarantine" if apart else "",
    )
    if position is not None and not soon and not held_back:
        slots = sum(row.info.concurrency for row in takers)
        yield from _start(position, now, free, expected_pace(slots, takes))
    if job.unstarted_losses:
        text = f"It was lost {many(job.unstarted_losses, 'time')} before its start, so it is given to free slots only."
        yield Fact("fragile", text, {"losses": job.unstarted_losses})


def _paused(job: Job, now: datetime, limits: Limits, zone: tzinfo | None) -> Iterator[Fact]:
    """Yield that its queue, or its task, is paused."""
    queue, task = limits.queue(job.queue), limits.task(job.task)
    if queue.paused:
        text = f"Queue {job.queue!r} {_since(queue, now, zone)}: nothing is taken from it until it is resumed."
        yield Fact("queue_paused", text, {"queue": job.queue, "by": queue.paused_by, "at": queue.paused_at})
    if task.paused:
        text = f"Task {job.task!r} {_since(task, now, zone)}: none of its jobs is started until it is resumed."
        yield Fact("task_paused", text, {"task": job.task, "by": task.paused_by, "at": task.paused_at})


def _since(rule: QueueRule | TaskRule, now: datetime, zone: tzinfo | None) -> str:
    by = f" by {rule.paused_by}" if rule.paused_by else ""
    at = f" at {moment(rule.paused_at, zone)} ({span(rule.paused_at, now)})" if rule.paused_at else ""
    return f"{'was' if by or at else 'is'} paused{by}{at}"


def _limited(
    job: Job, now: datetime, limits: Limits, usage: Usage, holders: Sequence[Job], zone: tzinfo | None
) -> Iterator[Fact]:
    """Yield what keeps it waiting although a worker might take it."""
    group = group_of(job)
    unreadable = limits.in_the_way(group)
    for key in unreadable:
        text = ": ".join(told_unreadable(key, limits.unreadable[key]))
        yield Fact("setting_unreadable", f"{text[0].upper()}{text[1:]}.", {"setting": key})
    for bound, most in limits.concurrency(group).items():
        held = usage.held.get(bound, 0)
        if held < most or (most == 0 and unreadable):
            continue
        by = {one.id: one for one in holders if bound in counted_by(group_of(one))}
        mine = list(by.values())
        who = ", ".join(str(one.id) for one in mine[:_MAX_NAMED_JOBS]) + (
            " and others" if len(mine) > _MAX_NAMED_JOBS else ""
        )
        what = {"queue": "queue", "task": "task", "key": "concurrency key"}[bound[0]]
        name = job.concurrency_key if bound[0] == "key" else bound[-1]
        of = f" of {job.customer!r}" if bound[0] == "key" and job.customer is not None else ""
        text = f"The {what} {name!r}{of} may have {many(most, 'job')} at once, and has {held}"
        data = {"kind": bound[0], "name": name, "most": most, "held": held, "by": [one.id for one in mine]}
        yield Fact("limit_full", f"{text}: {who}." if who else f"{text}.", data)
    for bound, rate in limits.paced(group).items():
        spent = usage.spent.get(bound, ())
        if permits(rate, spent, now) < 1:
            soon = next_permit(rate, spent, now)
            of = f" of the key {job.concurrency_key!r}" if len(bound) > 2 else ""
            text = f"The rate {bound[1]!r}{of} lets {rate.limit} begin in {rate.per:g} s"
            when = f"the next at {moment(soon, zone)} ({span(soon, now)})"
            yield Fact("rate_spent", f"{text}: {when}.", {"name": bound[1], "next_permit": soon})


def _position(job: Job, position: Position) -> Fact:
    """Return its position in the queue."""
    ahead = position.ahead
    before = f"{many(ahead, 'job')} {'is' if ahead == 1 else 'are'} before it"
    by_turns = job.concurrency_key is not None or position.keyed > 0
    if position.more:
        text = f"At least {before}" if ahead else "How many jobs are before it is not known, there are too many"
    else:
        text = f"It is number {ahead + 1:,} in its queue: {before}" if ahead else "It is the first in its queue"
    turns = ", more or less, since concurrency keys take turns" if by_turns else ""
    data = {"position": ahead + 1, "ahead": ahead, "at_least": position.more, "approximate": by_turns}
    return Fact("position", f"{text}{turns}.", data)


def _isolated(kept: int) -> Iterator[Fact]:
    """Yield how many workers might take it but for the jobs that they hold."""
    if kept:
        held = "it holds" if kept == 1 else "they hold"
        text = f"{many(kept, 'strict worker')} may take it once the jobs of other customers that {held} are done."
        yield Fact("workers_isolated", text, {"workers": kept})


def _takers(takers: int, free: int, soon: bool, held_back: bool, room: str) -> Iterator[Fact]:
    """Yield which workers might take it."""
    who = many(takers, "live worker")
    text, data = f"{who} may take it, with {many(free, 'free slot')}", {"workers": takers, "free": free}
    if not free:
        yield Fact("workers_busy", f"{who} may take it, and all their slots are busy.", {"workers": takers})
    elif soon:
        yield Fact("ready", f"{text}: it is about to run.", data)
    elif not held_back:
        yield Fact("workers_free", f"{text}{room}.", data)


def _start(position: Position, now: datetime, free: int, expected: float | None) -> Iterator[Fact]:
    """Yield when it may start."""
    speed, seconds = pace(position, now) or expected, estimate(position, now, free, expected)
    if speed is None:
        window = (now - position.since).total_seconds()
        text = f"No job of its queue was done in the last {roughly(window)}, so there is no telling when it starts."
        yield Fact("no_estimate", text, {"window": window})
    elif seconds is not None:
        words = f"{'not before' if position.more else 'about'} {roughly(seconds)} from now, at {per_time(speed)}"
        at = now + timedelta(seconds=seconds)
        data = {"seconds": seconds, "at": at, "at_least": position.more, "jobs_per_second": speed}
        yield Fact("estimate", f"It may start {words}.", data)


def _silent(now: datetime, last: datetime) -> Fact:
    """Return that no worker has sent a beat for a while."""
    text = f"No worker is heard of any more, the last {ago(now - last)}: start one, if none can be reached."
    return Fact("no_worker", text, {"last_heard_at": last})


def _nobody(job: Job, able: Sequence[WorkerRow], limits: Limits, to: str | None) -> Fact | None:
    """Return why no worker at all may take it, if so."""
    return nobody_may(job, able, limits, to) if able else Fact("no_worker", "No worker is alive: start one.")
