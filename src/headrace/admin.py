"""What an open App tells and changes about everything that is not one job: queues, tasks, schedules, the store."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

import msgspec

from headrace.core.query import Ledger
from headrace.core.record import Record
from headrace.core.rule import limits_of, told_unreadable
from headrace.core.status import Status
from headrace.engine import MAX_BATCH, Check, Engine
from headrace.handler import Handler
from headrace.registry import TaskDoc, known_tasks
from headrace.ruling import undefined_rates
from headrace.session import Session

__all__ = [
    "QueueInfo",
    "Stats",
    "TaskInfo",
    "doctor",
    "prune",
    "queues",
    "stats",
    "tasks",
]


class Stats(msgspec.Struct, Record, frozen=True):
    """The whole store in numbers."""

    statuses: dict[Status, int]
    ledger: Ledger
    workers_alive: int
    oldest_queued: datetime | None
    """Since when the job that waits longest has been claimable."""


class QueueInfo(msgspec.Struct, Record, frozen=True):
    """A queue: its settings, and how many jobs of it are where."""

    name: str
    priority: int
    paused: bool
    counts: dict[Status, int]
    oldest: datetime | None
    """Since when its first claimable job waits."""
    max_concurrency: int | None = None
    rates: tuple[str, ...] = ()
    paused_by: str | None = None
    paused_at: datetime | None = None
    unreadable: str | None = None
    """Why this version cannot read its setting, if so: its workers are given nothing of the queue then."""


class TaskInfo(msgspec.Struct, Record, frozen=True):
    """A task as this App or a worker describes it."""

    name: str
    queue: str
    priority: int
    timeout: float | None
    schema: dict[str, Any]
    here: bool
    """Whether this App has its function."""


async def stats(session: Session) -> Stats:
    """Count everything."""
    engine, now = session.engine, session.host.clock.now()
    statuses: dict[Status, int] = {}
    oldest: list[datetime] = []
    for count in await engine.count(now):
        statuses[count.status] = statuses.get(count.status, 0) + count.jobs
        if count.status is Status.QUEUED and count.oldest is not None:
            oldest.append(count.oldest)
    alive = sum(row.alive for row in await engine.workers())
    return Stats(statuses, await engine.ledger(), alive, min(oldest, default=None))


async def queues(session: Session) -> list[QueueInfo]:
    """Every queue that has jobs or settings, in the order workers serve them."""
    engine, now = session.engine, session.host.clock.now()
    limits = limits_of((one.key, one.value) for one in await engine.settings("queue:"))
    counts: dict[str, dict[Status, int]] = {}
    oldest: dict[str, datetime] = {}
    for count in await engine.count(now):
        counts.setdefault(count.queue, {})[count.status] = count.jobs
        if count.status is Status.QUEUED and count.oldest is not None:
            oldest[count.queue] = count.oldest
    infos = []
    for name in {*limits.queues, *counts}:
        rule = limits.queue(name)
        infos.append(
            QueueInfo(
                name,
                rule.priority,
                rule.paused,
                counts.get(name, {}),
                oldest.get(name),
                rule.max_concurrency,
                rule.rates,
                rule.paused_by,
                rule.paused_at,
                limits.unreadable.get(f"queue:{name}"),
            )
        )
    return sorted(infos, key=lambda info: (-info.priority, info.name))


async def tasks(session: Session, handlers: Iterable[Handler]) -> list[TaskInfo]:
    """Every task known here or to the store, by name; what is here speaks for itself."""
    docs = await known_tasks(session.engine)
    own = {handler.name: TaskDoc.of(handler) for handler in handlers}
    infos = []
    for name, doc in sorted((docs | own).items()):
        infos.append(TaskInfo(name, doc.queue, doc.priority, doc.timeout, doc.schema, name in own))
    return infos


async def prune(session: Session) -> int:
    """Remove every ended job whose retention is over; how many."""
    engine = session.engine
    cutoffs, total = engine.rules.retention.cutoffs(session.host.clock.now()), 0
    while gone := await engine.delete(cutoffs, MAX_BATCH):
        total += gone
        if gone < MAX_BATCH:
            break
    return total


async def doctor(session: Session) -> list[Check]:
    """Look for what is wrong, each finding with its remedy."""
    engine, now = session.engine, session.host.clock.now()
    checks = await engine.check(now)
    for examine in (_workers, _orphans):
        checks += await examine(engine, now)
    return checks


async def _workers(engine: Engine, now: datetime) -> list[Check]:
    rows = await engine.workers()
    alive = [row for row in rows if row.alive]
    queued = sum(count.jobs for count in await engine.count(now) if count.status is Status.QUEUED)
    if not alive and queued:
        return [Check("workers", "warn", f"{queued} jobs are queued and no worker is alive", "headrace worker APP")]
    found = [Check("workers", "ok", f"{len(alive)} alive")]
    for row in alive:
        if row.beat.state == "blocked":
            message = f"worker {row.info.id} on {row.info.host} does not let its event loop run"
            found.append(Check("workers", "warn", message, "make blocking handlers plain functions: they get threads"))
        if row.beat.stuck_threads:
            message = f"worker {row.info.id} on {row.info.host} has {row.beat.stuck_threads} threads that do not stop"
            found.append(Check("workers", "warn", message, "call ctx.check() in long loops of plain functions"))
    return found


async def _orphans(engine: Engine, now: datetime) -> list[Check]:
    """Tasks that wait for a worker nobody runs, queues for somebody to resume them, and rates for a definition."""
    found = []
    served = {task for row in await engine.workers() if row.alive for task in row.info.tasks}
    waiting = {profile.task for profile in (await engine.profiles()).profiles} - served
    if served and waiting:
        names = ", ".join(sorted(waiting))
        remedy = "start a worker that has them, or cancel their jobs"
        found.append(Check("tasks", "warn", f"no living worker has these tasks of stored jobs: {names}", remedy))
    limits = limits_of((one.key, one.value) for one in await engine.settings())
    for rate, message in (await undefined_rates(engine)).items():
        remedy = f"headrace rates set {rate} LIMIT --per SECONDS, or app.rate in code"
        found.append(Check("rates", "warn", message, remedy))
    for key, why in limits.unreadable.items():
        found.append(Check("settings", "warn", *told_unreadable(key, why)))
    for name, rule in limits.queues.items():
        if rule.paused:
            remedy, by = f"headrace queues resume {name}", f" by {rule.paused_by}" if rule.paused_by else ""
            found.append(Check("queues", "warn", f"queue {name!r} is paused{by}", remedy))
    return found
