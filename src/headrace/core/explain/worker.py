"""Why a worker gets nothing: its state, and what keeps it from each of the jobs that could run now."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

import msgspec

from headrace.core.explain.explanation import Explanation, Fact, ago, many
from headrace.core.explain.obstacle import obstacle
from headrace.core.job import Job
from headrace.core.lifecycle.suspects import in_quarantine
from headrace.core.limits.rate import permits
from headrace.core.limits.selection import Usage
from headrace.core.limits.settings import Limits, group_of
from headrace.core.matching.shortfall import Lack, distance, told_lacks
from headrace.core.query import Count
from headrace.core.status import Status

if TYPE_CHECKING:
    from headrace.engine import WorkerRow

__all__ = ["MAX_QUEUE_JOBS", "explain_worker", "queues_to_look_at"]

MAX_QUEUE_JOBS = 100
"""How many jobs of each queue are checked, the newest."""
_MAX_NAMED_JOBS = 5
_MAX_LISTED_KINDS = 50
"""Kinds of unmet requirements in the data for programs."""


def queues_to_look_at(row: WorkerRow, counts: Sequence[Count], limits: Limits) -> list[str]:
    """Return the queues that may have a job for this worker."""
    queued = dict.fromkeys(one.queue for one in counts if one.status is Status.QUEUED and one.jobs)
    return [one for one in queued if _serves(row, one) and not limits.queue(one).paused]


def explain_worker(
    row: WorkerRow,
    now: datetime,
    counts: Sequence[Count],
    jobs: Sequence[Job],
    limits: Limits,
    usage: Usage,
    held: Sequence[Job] = (),
) -> Explanation:
    """Explain why this worker is given jobs, or is given none.

    ``counts``: of the whole store, as of now. ``jobs``: queued ones of its queues, ``MAX_QUEUE_JOBS`` of each.
    ``held``: jobs that it holds, if it takes those of one customer at a time.
    """
    looked_at = _looked_at(row, now, jobs, limits, usage, held)
    return Explanation([_state(row, now), *_queued(row, counts, limits), *looked_at])


def _serves(row: WorkerRow, queue: str) -> bool:
    return row.info.queues is None or queue in row.info.queues


def _state(row: WorkerRow, now: datetime) -> Fact:
    """Return the state of the worker itself."""
    slots, busy = row.info.concurrency, row.busy
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
        text = f"All its slots are busy ({busy} of {slots}): it claims more as they come free."
        if row.info.name is not None:
            text = f"It has as many jobs as it takes at once (max_concurrent_jobs {slots}): it is offered no more."
        return Fact("worker_full", text, data)
    return Fact(
        "worker_free",
        f"It is alive, and {busy} of its {many(slots, 'slot')} {'is' if busy == 1 else 'are'} busy.",
        data,
    )


def _queued(row: WorkerRow, counts: Sequence[Count], limits: Limits) -> Iterator[Fact]:
    """Yield the queues that it does not serve."""
    queued = Counter[str]()
    for one in counts:
        if one.status is Status.QUEUED and one.jobs:
            queued[one.queue] += one.jobs
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


def _looked_at(
    row: WorkerRow, now: datetime, jobs: Sequence[Job], limits: Limits, usage: Usage, held: Sequence[Job]
) -> Iterator[Fact]:
    """Yield what keeps it from the jobs of its queues."""
    if not jobs:
        return
    were = "was" if len(jobs) == 1 else "were"
    text = f"Of its queues, {many(len(jobs), 'queued job')} {were} looked at."
    yield Fact("looked_at", text, {"jobs": len(jobs)})
    rest, found = list[Job](), dict[str, list[tuple[Job, tuple[Lack, ...]]]]()
    yield from _paused([job for job in jobs if limits.task(job.task).paused])
    for job in jobs:
        if limits.task(job.task).paused:
            continue
        if (one := obstacle(job, row, limits)) is None:
            rest.append(job)
        else:
            found.setdefault(one.code, []).append((job, one.lacks))
    if "no_task" in found:
        yield _no_task(row, [job for job, _ in found["no_task"]])
    if "requirements_unmet" in found:
        yield _unmet(found["requirements_unmet"])
    yield from _quarantined([job for job in rest if in_quarantine(job)])
    rest = [job for job in rest if not in_quarantine(job)]
    yield from _isolated(row, rest, held, {code: [job for job, _ in these] for code, these in found.items()})
    mine = {job.customer for job in held}
    whose = row.info.customers
    yield from _limited([job for job in rest if whose is None or whose.admits(job.customer, mine)], now, limits, usage)


def _paused(jobs: Sequence[Job]) -> Iterator[Fact]:
    """Yield how many jobs are of paused tasks."""
    if jobs:
        tasks = Counter(job.task for job in jobs)
        text = f"{_are(len(jobs))} of tasks that are paused: {_names(tasks)}."
        yield Fact("task_paused", text, {"jobs": len(jobs), "tasks": sorted(tasks)})


def _quarantined(jobs: Sequence[Job]) -> Iterator[Fact]:
    """Yield how many jobs it is given one at a time, since they may have killed their workers."""
    if jobs:
        text = f"{_are(len(jobs))} in quarantine, because workers that ran {_s('it', 'them', len(jobs))} died:"
        yield Fact("quarantine", f"{text} a worker runs one such job at a time.", {"jobs": len(jobs)})


def _no_task(row: WorkerRow, jobs: Sequence[Job]) -> Fact:
    tasks = Counter(job.task for job in jobs)
    text = f"{_are(len(jobs))} of tasks that it does not have: {_names(tasks)}."
    if row.info.runs_services:
        asks = _s("asks", "ask", len(jobs))
        text = f"{many(len(jobs), 'job')} {asks} for no service, and it names no tasks: {_names(tasks)}."
    return Fact("no_task", text, {"jobs": len(jobs), "tasks": sorted(tasks)})


def _unmet(found: Sequence[tuple[Job, tuple[Lack, ...]]]) -> Fact:
    """Return what waiting jobs need that the worker lacks, the nearest first."""
    jobs = Counter[tuple[str, tuple[str, str]]]()
    kinds = dict[tuple[str, tuple[str, str]], tuple[Lack, ...]]()
    for job, lacking in found:
        kind = job.task, told_lacks(lacking)
        jobs[kind] += 1
        kinds[kind] = lacking
    nearest = sorted(kinds, key=lambda kind: (distance(kinds[kind]), -jobs[kind], kind))
    told = "; ".join(
        f"{jobs[kind]:,} of {kind[0]!r} {_s('needs', 'need', jobs[kind])} {kind[1][0]}, it offers {kind[1][1]}"
        for kind in nearest[:_MAX_NAMED_JOBS]
    )
    first = ", the nearest first" if len(nearest) > 1 else ""
    rest = len(nearest) - _MAX_NAMED_JOBS
    more = f"; and {rest} more {_s('kind', 'kinds', rest)}" if rest > 0 else ""
    require = f"{many(len(found), 'job')} {_s('requires', 'require', len(found))}"
    text = f"{require} what it does not offer{first}: {told}{more}."
    unmet = [
        {"task": kind[0], "jobs": jobs[kind], "lacks": [*msgspec.to_builtins(kinds[kind])]}
        for kind in nearest[:_MAX_LISTED_KINDS]
    ]
    return Fact("requirements_unmet", text, {"jobs": len(found), "unmet": unmet})


def _isolated(
    row: WorkerRow, rest: Sequence[Job], held: Sequence[Job], found: Mapping[str, Sequence[Job]]
) -> Iterator[Fact]:
    """Yield which jobs it does not take because of their customers."""
    whose = row.info.customers
    if whose is None:
        return
    if mixed := Counter(job.queue for job in found.get("queue_not_by_customer", ())):
        text = f"{_are(mixed.total())} in queues where the jobs of all customers stand in one line, and it chooses"
        remedy = "; ".join(f"headrace queues set {name} --by-customer" for name in sorted(mixed)[:_MAX_NAMED_JOBS])
        yield Fact(
            "queue_not_by_customer",
            f"{text} among customers: {remedy}.",
            {"jobs": mixed.total(), "queues": sorted(mixed)},
        )
    if foreign := found.get("customer_not_taken", ()):
        of = sorted({job.customer for job in foreign if job.customer is not None})
        nobody = sum(job.customer is None for job in foreign)
        names = ", ".join(filter(None, (_names(of), f"{nobody:,} without one" if nobody else "")))
        text = f"{_are(len(foreign))} of customers that it does not take: {names}."
        yield Fact("customer_not_taken", text, {"jobs": len(foreign), "customers": of})
    others = [job for job in rest if not whose.admits(job.customer, {one.customer for one in held})]
    if others:
        has = sorted({one.customer for one in held if one.customer is not None})
        holds, done = ("a job", "that is") if len(held) == 1 else ("jobs", "these are")
        wait = f"{many(len(others), 'job')} of other customers {_s('waits', 'wait', len(others))}"
        text = f"It is strict and holds {holds} of {_names(has)}: {wait} until {done} done."
        yield Fact("isolated", text, {"jobs": len(others), "holds": has})


def _limited(jobs: Sequence[Job], now: datetime, limits: Limits, usage: Usage) -> Iterator[Fact]:
    """Yield which of the jobs that it may take have to wait for a limit, and how many are left."""
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


def _are(n: int) -> str:
    return f"{many(n, 'job')} {_s('is', 'are', n)}"


def _s(one: str, several: str, n: int) -> str:
    return one if n == 1 else several


def _names(found: Collection[str]) -> str:
    named = ", ".join(repr(name) for name in sorted(found)[:_MAX_NAMED_JOBS])
    return f"{named} and {len(found) - _MAX_NAMED_JOBS} more" if len(found) > _MAX_NAMED_JOBS else named
