"""Why a worker gets nothing: how it is, and what keeps it from each of the jobs that could run now."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from headrace.core.explain.explanation import Explanation, Fact, ago, many
from headrace.core.job import Job
from headrace.core.limits.limit import Usage
from headrace.core.limits.rate import permits
from headrace.core.limits.rule import Limits, group_of
from headrace.core.match import mismatch
from headrace.core.query import Count
from headrace.core.status import Status

if TYPE_CHECKING:
    from headrace.engine import WorkerRow

__all__ = ["LOOKED_AT", "explain_worker", "queues_to_look_at"]

LOOKED_AT = 100
"""How many jobs of each queue are looked at, the newest."""
_NAMED = 5


def queues_to_look_at(row: WorkerRow, counts: Sequence[Count], limits: Limits) -> list[str]:
    """The queues in which there may be something for this worker."""
    queued = (one.queue for one in counts if one.status is Status.QUEUED and one.jobs)
    return [one for one in queued if _serves(row, one) and not limits.queue(one).paused]


def explain_worker(
    row: WorkerRow, now: datetime, counts: Sequence[Count], jobs: Sequence[Job], limits: Limits, usage: Usage
) -> Explanation:
    """Why this worker is given jobs, or is given none.

    ``counts``: of the whole store, as seen now. ``jobs``: queued ones of the queues to look at, ``LOOKED_AT`` of each.
    """
    return Explanation([_state(row, now), *_queued(row, counts, limits), *_looked_at(row, now, jobs, limits, usage)])


def _serves(row: WorkerRow, queue: str) -> bool:
    return row.info.queues is None or queue in row.info.queues


def _state(row: WorkerRow, now: datetime) -> Fact:
    """How the worker itself is."""
    slots, busy = row.info.concurrency, row.beat.busy
    data = {"state": row.beat.state, "busy": busy, "concurrency": slots, "holds": row.holds}
    if row.silent_since is not None:
        text = (
            f"It was last heard of {ago(now - row.silent_since)}: look whether its process is there and has the store."
        )
        return Fact("worker_silent", text, data | {"last_heard_at": row.silent_since})
    if not row.alive:
        return Fact("worker_dead", "It is dead, or has left: it is given nothing any more.", data)
    if row.beat.state == "draining":
        return Fact("worker_draining", "It is stopping: it finishes what it has and takes nothing new.", data)
    if row.beat.state == "blocked":
        text = "Its event loop does not run, so it claims nothing: a handler that is a coroutine blocks it."
        return Fact("worker_blocked", text, data)
    if busy >= slots:
        return Fact(
            "worker_full", f"All its slots are busy ({busy} of {slots}): it claims more as they come free.", data
        )
    return Fact(
        "worker_free",
        f"It is alive, and {busy} of its {many(slots, 'slot')} {'is' if busy == 1 else 'are'} busy.",
        data,
    )


def _queued(row: WorkerRow, counts: Sequence[Count], limits: Limits) -> Iterator[Fact]:
    """What it does not look at at all."""
    queued = {one.queue: one.jobs for one in counts if one.status is Status.QUEUED and one.jobs}
    if not queued:
        yield Fact("nothing_queued", "No job is queued.")
        return
    others = {name: n for name, n in queued.items() if not _serves(row, name)}
    if others:
        mine = ", ".join(map(repr, row.info.queues or ()))
        text = f"{_are(sum(others.values()))} in queues that it does not serve: {_names(others)}; it serves {mine}."
        yield Fact("queue_not_served", text, {"jobs": sum(others.values()), "queues": sorted(others)})
    paused = {name: n for name, n in queued.items() if name not in others and limits.queue(name).paused}
    if paused:
        text = f"{_are(sum(paused.values()))} in queues that are paused: {_names(paused)}."
        yield Fact("queue_paused", text, {"jobs": sum(paused.values()), "queues": sorted(paused)})


def _looked_at(row: WorkerRow, now: datetime, jobs: Sequence[Job], limits: Limits, usage: Usage) -> Iterator[Fact]:
    """What keeps it from the jobs of its queues."""
    if not jobs:
        return
    were = "was" if len(jobs) == 1 else "were"
    text = f"Of its queues, {many(len(jobs), 'queued job')} {were} looked at."
    yield Fact("looked_at", text, {"jobs": len(jobs)})
    tasks = Counter(job.task for job in jobs if job.task not in row.info.tasks)
    if tasks:
        text = f"{_are(tasks.total())} of tasks that it does not have: {_names(tasks)}."
        yield Fact("no_task", text, {"jobs": tasks.total(), "tasks": sorted(tasks)})
    rest, unmet = list[Job](), Counter[tuple[str, str]]()
    for job in jobs:
        if job.task not in row.info.tasks:
            continue
        lacking = mismatch(job.requires, row.info.offers)
        if lacking is None:
            rest.append(job)
        else:
            unmet[lacking, f"{job.task!r} requires {lacking}={job.requires[lacking]!r}"] += 1
    if unmet:
        told = "; ".join(f"{what}, it offers {_offer(row, name)}" for (name, what), _ in unmet.most_common(_NAMED))
        more = f" and {len(unmet) - _NAMED} more" if len(unmet) > _NAMED else ""
        data = {"jobs": unmet.total(), "requirements": sorted({name for name, _ in unmet})}
        yield Fact("requirements_unmet", f"{_verb(unmet.total())} what it does not offer: {told}{more}.", data)
    yield from _limited(rest, now, limits, usage)


def _limited(jobs: Sequence[Job], now: datetime, limits: Limits, usage: Usage) -> Iterator[Fact]:
    """Which of the jobs that it may take have to wait for a limit, and how many are left."""
    full, spent, unreadable, left = Counter[str](), Counter[str](), Counter[str](), 0
    for job in jobs:
        group = group_of(job)
        if keys := limits.in_the_way(group):
            unreadable[keys[0]] += 1
            continue
        most = {bound: n for bound, n in limits.concurrency(group).items() if usage.held.get(bound, 0) >= n}
        gone = [
            bound for bound, rate in limits.paced(group).items() if permits(rate, usage.spent.get(bound, ()), now) < 1
        ]
        if most:
            bound, n = next(iter(most.items()))
            what = {"queue": "queue", "task": "task", "key": "concurrency key"}[bound[0]]
            name = job.concurrency_key if bound[0] == "key" else bound[-1]
            of = f" of {job.customer!r}" if bound[0] == "key" and job.customer is not None else ""
            full[f"the {what} {name!r}{of} may have {n} at once"] += 1
        elif gone:
            spent[f"{gone[0][1]!r}"] += 1
        else:
            left += 1
    for code, found, before in (
        ("limit_full", full, "for a limit that is full"),
        ("rate_spent", spent, "for a rate that is spent"),
        ("setting_unreadable", unreadable, "because of a setting that only another version can read"),
    ):
        if found:
            n = found.total()
            text = f"{many(n, 'job')} {'waits' if n == 1 else 'wait'} {before}: {', '.join(found)}."
            yield Fact(code, text, {"jobs": n, "of": sorted(found)})
    if left:
        text = f"Nothing keeps it from {many(left, 'job')}: it is given them when it has a free slot and they are next."
        yield Fact("may_take", text, {"jobs": left})


def _offer(row: WorkerRow, name: str) -> str:
    return f"{row.info.offers[name]!r}" if name in row.info.offers else "none"


def _are(n: int) -> str:
    return f"{many(n, 'job')} {'is' if n == 1 else 'are'}"


def _verb(n: int) -> str:
    return f"{many(n, 'job')} {'requires' if n == 1 else 'require'}"


def _names(found: Collection[str]) -> str:
    named = ", ".join(repr(name) for name in sorted(found)[:_NAMED])
    return f"{named} and {len(found) - _NAMED} more" if len(found) > _NAMED else named
