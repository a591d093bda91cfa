"""Alerts about workers, and about jobs that none of them runs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from headrace.core.explain.explanation import many
from headrace.core.lifecycle.liveness import told_silence
from headrace.core.limits.settings import Limits
from headrace.core.matching.match import meets
from headrace.core.matching.shortfall import distance, lacks, told_lacks
from headrace.core.query import Count
from headrace.core.stats.alerts.alert import START, START_HUB, Alert, Kind
from headrace.core.stats.load import Load
from headrace.core.status import Status
from headrace.core.times import MAX_CLOCK_ERROR_SECONDS, told_apart
from headrace.core.webhooks.delivery import TASK as DELIVER

if TYPE_CHECKING:
    from headrace.engine import WorkerInfo, WorkerRow

__all__ = ["unmet", "unserved_later", "unserved_queues", "unserved_tasks", "worker_alerts"]


def worker_alerts(rows: Sequence[WorkerRow], now: datetime) -> Iterator[Alert]:
    """Yield alerts about workers that are silent or do not work well; ``rows``: as heard by now."""
    alive = any(row.alive for row in rows)
    held = sum(row.holds for row in rows)
    if not alive and held:
        yield Alert(Kind.NO_WORKER, "fail", "", f"no worker is alive, and those that are not hold {_jobs(held)}", START)
    for row in rows:
        who, name, beat = row.info.described, row.info.shown, row.beat
        if row.silent_since is not None:
            message = f"{who} has been {told_silence(row.silent_since, now)}, and holds {_jobs(row.holds)}"
            remedy = "look why it stopped; the living take back what it holds" if alive else START
            yield Alert(Kind.SILENT_WORKER, "warn", name, message, remedy)
        if beat.state == "blocked":
            message, remedy = f"{who} does not let its event loop run", "make blocking handlers plain functions"
            yield Alert(Kind.BLOCKED_WORKER, "warn", name, message, f"{remedy}: they get threads")
        if row.alive and abs(beat.clock_apart) > MAX_CLOCK_ERROR_SECONDS:
            message = f"the clock of {who} is {told_apart(beat.clock_apart)}"
            remedy = "jobs go by the store's clock; let its machine follow NTP"
            yield Alert(Kind.WRONG_CLOCK, "warn", name, message, remedy)
        if row.alive and beat.stuck_threads:
            message = f"{who} has {beat.stuck_threads} threads that do not stop"
            yield Alert(Kind.STUCK_THREADS, "warn", name, message, "call ctx.check() in long loops of plain functions")


def _jobs(n: int) -> str:
    return many(n, "job")


def _able(rows: Iterable[WorkerRow]) -> list[WorkerInfo]:
    return [row.info for row in rows if row.takes]


def unserved_tasks(rows: Sequence[WorkerRow], loads: Iterable[Load], now: datetime) -> Iterator[Alert]:
    """Yield alerts about tasks that no living worker runs, also behind no hub, and of which jobs could run now."""
    able, waiting = _able(rows), dict[str, tuple[int, bool]]()
    for load in loads:
        if load.queued and not any(info.runs(load.task, load.requires) for info in able):
            queued, more = waiting.get(load.task, (0, False))
            waiting[load.task] = queued + load.queued, more or load.more
    for task, (queued, more) in sorted(waiting.items()):
        jobs = f"{queued:,} or more jobs" if more else _jobs(queued)
        had = [row.silent_since for row in rows if row.silent_since is not None and task in row.info.tasks]
        last = f"; the last worker that had it has been {told_silence(max(had), now)}" if had else ""
        message = f"no living worker has the task {task!r}, and {jobs} of it could run now{last}"
        start = START_HUB if task == DELIVER else START
        remedy = f"{start}; or cancel them: headrace cancel --task {task} --yes"
        yield Alert(Kind.UNSERVED_TASK, "fail", task, message, remedy)


def unserved_later(tasks: Iterable[str]) -> Iterator[Alert]:
    """Yield alerts about tasks that no living worker has, and of which live jobs will become due."""
    for task in sorted(tasks):
        message = f"no living worker has the task {task!r}, and jobs of it wait for their time or for others"
        remedy = f"start a worker that has it; or cancel them: headrace cancel --task {task} --yes"
        yield Alert(Kind.UNSERVED_TASK, "warn", task, message, remedy)


def unmet(rows: Iterable[WorkerRow], loads: Iterable[Load]) -> Iterator[Alert]:
    """Yield alerts about queued jobs whose requirements no living worker meets, though some have their task."""
    able = _able(rows)
    for load in loads:
        having = [info for info in able if info.runs(load.task, load.requires)]
        if not load.queued or not load.requires or not having:
            continue
        if any(meets(load.requires, info.offers) for info in having):
            continue
        near = min(having, key=lambda info: (distance(lacks(load.requires, info.offers)), info.shown))
        needs, offers = told_lacks(lacks(load.requires, near.offers))
        jobs = f"{_jobs(load.queued)} of {load.task!r} could run now and {'needs' if load.queued == 1 else 'need'}"
        message = f"{jobs} {needs}; the nearest worker, {near.shown}, offers {offers}"
        remedy = "start a worker that offers it: --offer NAME=VALUE"
        yield Alert(Kind.UNMET_REQUIREMENTS, "fail", load.task, message, remedy)


def unserved_queues(rows: Iterable[WorkerRow], counts: Iterable[Count], limits: Limits) -> Iterator[Alert]:
    """Yield alerts about queues with jobs that could run now, and that no living worker serves, though some live."""
    able = _able(rows)
    for count in counts if able else ():
        served = any(info.queues is None or count.queue in info.queues for info in able)
        if count.status is Status.QUEUED and not served and not limits.queue(count.queue).paused:
            message = f"no living worker serves the queue {count.queue!r}, and {_jobs(count.jobs)} could run now"
            remedy = START_HUB if count.own else f"headrace worker MODULE:APP --queues {count.queue}"
            yield Alert(Kind.UNSERVED_QUEUE, "fail", count.queue, message, remedy)
