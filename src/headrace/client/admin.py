"""What an open App shows and changes of everything that is not one job: queues, tasks, schedules, the store."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any
from urllib.parse import quote, unquote
from uuid import UUID

import msgspec

from headrace.client.limit_settings import undefined_rates
from headrace.client.registry import TaskDoc, known_tasks
from headrace.client.secrets import findings
from headrace.client.session import Session
from headrace.core.explain.explanation import Explanation, many
from headrace.core.explain.worker import LOOKED_AT, queues_to_look_at
from headrace.core.explain.worker import explain_worker as tell_worker
from headrace.core.job import Job
from headrace.core.limits.rule import Limits, group_of, limits_of, told_unreadable
from headrace.core.match import meets
from headrace.core.moments import CLOCK_APART, told_apart
from headrace.core.query import Filter, Ledger, Page
from headrace.core.record import Record
from headrace.core.retention import Kept
from headrace.core.shortfall import distance, lacks, told_lacks
from headrace.core.silent_workers import told_silence
from headrace.core.status import HELD, Status
from headrace.core.suspects import REQUIREMENT
from headrace.core.webhooks import QUEUE as WEBHOOKS
from headrace.core.webhooks import TASK as DELIVER
from headrace.engine import MAX_BATCH, Check, Engine, WorkerRow
from headrace.errors import ConfigError, UnknownWorker
from headrace.handler import Handler
from headrace.runtime.webhooks import SUBSCRIPTIONS, read_webhooks

__all__ = [
    "QUEUE_CURSOR",
    "QueueInfo",
    "Stats",
    "TaskInfo",
    "doctor",
    "explain_worker",
    "page_of_queues",
    "prune",
    "queues",
    "stats",
    "tasks",
    "workers",
]

_START = "start a worker: headrace worker MODULE:APP"
_START_HUB = "start a hub, which delivers webhooks: headrace hub"
_LOOKED_AT = 20
"""Queues of which jobs are looked at to explain a worker."""
_COUNTED = 100
"""Jobs that nobody serves are counted up to this many."""


class Stats(msgspec.Struct, Record, frozen=True):
    """Counts of the whole store."""

    statuses: dict[Status, int]
    ledger: Ledger
    workers_alive: int
    oldest_queued: datetime | None
    """When the job that has waited longest became ``queued``."""
    workers_silent: int = 0
    """How many were not heard of for their lease, and nobody has buried yet."""
    silent_since: datetime | None = None
    """The last beat of those, the latest."""


class QueueInfo(msgspec.Struct, Record, frozen=True):
    """A queue: its settings, and its jobs counted by status."""

    name: str
    priority: int
    paused: bool
    counts: dict[Status, int]
    oldest: datetime | None
    """When its oldest queued job became ``queued``."""
    max_concurrency: int | None = None
    rates: tuple[str, ...] = ()
    paused_by: str | None = None
    paused_at: datetime | None = None
    by_customer: bool = False
    """Whether jobs of each customer stand in lines of their own."""
    unreadable: str | None = None
    """Why this version cannot read the setting, if so; its workers get no job of the queue then."""


class TaskInfo(msgspec.Struct, Record, frozen=True):
    """A task as this App or a worker describes it."""

    name: str
    queue: str
    priority: int
    timeout: float | None
    schema: dict[str, Any]
    here: bool
    """Whether this App has its function."""
    retention: Kept | None = None
    """How long its jobs are kept after their end; None: as the settings say."""


async def stats(session: Session) -> Stats:
    """Count everything."""
    engine, now = session.engine, session.host.clock.now()
    statuses: dict[Status, int] = {}
    oldest: list[datetime] = []
    for count in await engine.records.count(now):
        statuses[count.status] = statuses.get(count.status, 0) + count.jobs
        if count.status is Status.QUEUED and count.oldest is not None:
            oldest.append(count.oldest)
    rows = await workers(session)
    silent = [row.silent_since for row in rows if row.silent_since is not None]
    alive, longest = sum(row.alive for row in rows), min(oldest, default=None)
    return Stats(statuses, await engine.records.ledger(), alive, longest, len(silent), max(silent, default=None))


async def workers(session: Session) -> list[WorkerRow]:
    """Every worker the store knows, judged by its last beat."""
    now = session.host.clock.now()
    return [row.as_heard(now, session.engine.rules) for row in await session.engine.workers.list()]


async def explain_worker(session: Session, id: UUID) -> Explanation:
    """Why a worker is given jobs, or none."""
    engine, now = session.engine, session.host.clock.now()
    row = next((one for one in await workers(session) if one.info.id == id), None)
    if row is None:
        raise UnknownWorker(id)
    limits = limits_of((one.key, one.value) for one in await engine.documents.settings())
    counts, jobs = await engine.records.count(now, history=False), list[Job]()
    for queue in queues_to_look_at(row, counts, limits)[:_LOOKED_AT]:
        wanted = Filter(status=frozenset({Status.QUEUED}), queue=frozenset({queue}))
        jobs += (await engine.records.find(wanted, now, LOOKED_AT)).items
    groups = {group_of(one) for one in jobs}
    usage = await engine.records.usage(list({bound for group in groups for bound in limits.paced(group)}))
    held: Sequence[Job] = ()
    if row.holds and row.info.customers is not None and row.info.customers.strict:
        held = (await engine.records.find(Filter(status=HELD, worker=frozenset({id})), now, LOOKED_AT)).items
    return tell_worker(row, now, counts, jobs, limits, usage, held)


async def queues(session: Session, *, history: bool = True) -> list[QueueInfo]:
    """Every queue that has jobs or settings, in the order workers serve them; ``history``: count also what is over."""
    engine, now = session.engine, session.host.clock.now()
    limits = limits_of((one.key, one.value) for one in await engine.documents.settings("queue:"))
    counts: dict[str, dict[Status, int]] = {}
    oldest: dict[str, datetime] = {}
    for count in await engine.records.count(now, history=history):
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
                rule.by_customer,
                limits.unreadable.get(f"queue:{name}"),
            )
        )
    return sorted(infos, key=_served)


def _served(queue: QueueInfo) -> tuple[int, str]:
    return -queue.priority, queue.name


QUEUE_CURSOR = "^(-?[0-9]{1,18}):([!-~]+)$"
"""What a cursor looks like: the priority and the name of the last queue of a page."""


def page_of_queues(found: Sequence[QueueInfo], limit: int, cursor: str | None = None) -> Page[QueueInfo]:
    """Some of the queues, in the order workers serve them: anybody who submits may name new ones.

    :raises ConfigError: the cursor is not one of an earlier page
    """
    if cursor is not None:
        match = re.fullmatch(QUEUE_CURSOR, cursor)
        if match is None:
            raise ConfigError(f"not a cursor of an earlier page: {cursor!r:.80}")
        last = (-int(match[1]), unquote(match[2]))
        found = [one for one in found if _served(one) > last]
    items = tuple(found[:limit])
    more = len(found) > limit
    return Page(items, f"{items[-1].priority}:{quote(items[-1].name, safe='')}" if more else None)


async def tasks(session: Session, handlers: Iterable[Handler]) -> list[TaskInfo]:
    """Every task known here or to the store, by name; where both know one, what this App says counts."""
    docs = await known_tasks(session.engine)
    own = {handler.name: TaskDoc.of(handler) for handler in handlers}
    infos = []
    for name, doc in sorted((docs | own).items()):
        infos.append(TaskInfo(name, doc.queue, doc.priority, doc.timeout, doc.schema, name in own, doc.retention))
    return infos


async def prune(session: Session) -> int:
    """Remove every ended job whose retention is over; how many."""
    engine = session.engine
    now, total = session.host.clock.now(), 0
    cutoffs = engine.rules.retention.cutoffs(now)
    while gone := await engine.jobs.delete(cutoffs, MAX_BATCH, now=now):
        total += gone
        if gone < MAX_BATCH:
            break
    return total


async def doctor(session: Session, *, store: bool = True) -> list[Check]:
    """Look for what is wrong, each finding with its remedy; ``store``: also in what the store says of itself."""
    engine, now = session.engine, session.host.clock.now()
    clock = session.host.store_clock
    rows = await workers(session)
    checks = await engine.check(now if clock is None else clock.local.now()) if store else ()
    limits = limits_of((one.key, one.value) for one in await engine.documents.settings())
    return [
        *checks,
        *_workers(rows, now),
        *await _unserved(engine, rows, now, limits),
        *await _settings(engine, limits),
        *(await findings(session.vault) if store else ()),
    ]


def _workers(rows: Sequence[WorkerRow], now: datetime) -> list[Check]:
    alive = [row for row in rows if row.alive]
    abandoned = not alive and any(row.holds for row in rows)
    found = [Check("workers", "fail" if abandoned else "ok", f"{len(alive)} alive", _START if abandoned else None)]
    for row in rows:
        who = row.info.described
        if row.silent_since is not None:
            message = f"{who} has been {told_silence(row.silent_since, now)}, and holds {many(row.holds, 'job')}"
            remedy = "look why it stopped; the living take back what it holds" if alive else _START
            found.append(Check("workers", "warn", message, remedy))
        if row.beat.state == "blocked":
            message = f"{who} does not let its event loop run"
            found.append(Check("workers", "warn", message, "make blocking handlers plain functions: they get threads"))
        if row.alive and abs(row.beat.clock_apart) > CLOCK_APART:
            message = f"the clock of {who} is {told_apart(row.beat.clock_apart)}"
            found.append(Check("clock", "warn", message, "jobs go by the store's clock; let its machine follow NTP"))
        if row.alive and row.beat.stuck_threads:
            message = f"{who} has {row.beat.stuck_threads} threads that do not stop"
            found.append(Check("workers", "warn", message, "call ctx.check() in long loops of plain functions"))
    return found


async def _unserved(engine: Engine, rows: Sequence[WorkerRow], now: datetime, limits: Limits) -> list[Check]:
    """Findings about jobs that could run now, and about tasks of later jobs, that no worker serves."""
    able, found = [row.info for row in rows if row.takes], list[Check]()
    profiles = (await engine.documents.profiles()).profiles
    run = {one.task for one in profiles if any(info.runs(one.task, one.requires) for info in able)}
    later = list[str]()
    for task in sorted({one.task for one in profiles} - run):
        waiting = Filter(status=frozenset({Status.QUEUED}), task=frozenset({task}))
        page = await engine.records.find(waiting, now, _COUNTED)
        if not page.items:
            later.append(task)
            continue
        jobs = f"{_COUNTED} or more jobs" if page.cursor else many(len(page.items), "job")
        had = [row.silent_since for row in rows if row.silent_since is not None and task in row.info.tasks]
        last = f"; the last worker that had it has been {told_silence(max(had), now)}" if had else ""
        message = f"no living worker has the task {task!r}, and {jobs} of it could run now{last}"
        start = _START_HUB if task == DELIVER else _START
        found.append(Check("tasks", "fail", message, f"{start}; or cancel them: headrace cancel --task {task} --yes"))
    if able and later:
        names = ", ".join(later)
        remedy = "start a worker that has them, or cancel their jobs"
        found.append(Check("tasks", "warn", f"no living worker has these tasks of stored jobs: {names}", remedy))
    for profile in profiles:
        having = [info for info in able if info.runs(profile.task, profile.requires)]
        if not profile.requires or REQUIREMENT in profile.requires or not having:
            continue
        if all(not meets(profile.requires, info.offers) for info in having):
            wanted = Filter(status=frozenset({Status.QUEUED}), task=frozenset({profile.task}))
            page = await engine.records.find(wanted, now, _COUNTED)
            if n := sum(job.requires == profile.requires for job in page.items):
                near = min(having, key=lambda info: (distance(lacks(profile.requires, info.offers)), info.shown))
                needs, offers = told_lacks(lacks(profile.requires, near.offers))
                message = (
                    f"{many(n, 'job')} of {profile.task!r} could run now and {'needs' if n == 1 else 'need'} {needs}"
                )
                message += f"; the nearest worker, {near.shown}, offers {offers}"
                found.append(
                    Check("requirements", "fail", message, "start a worker that offers it: --offer NAME=VALUE")
                )
    for count in await engine.records.count(now, history=False) if able else ():
        served = any(info.queues is None or count.queue in info.queues for info in able)
        if count.status is Status.QUEUED and not served and not limits.queue(count.queue).paused:
            message = f"no living worker serves the queue {count.queue!r}, and {many(count.jobs, 'job')} could run now"
            ours = count.queue == WEBHOOKS
            remedy = _START_HUB if ours else f"headrace worker MODULE:APP --queues {count.queue}"
            found.append(Check("queues", "fail", message, remedy))
    return found


async def _settings(engine: Engine, limits: Limits) -> list[Check]:
    """Findings about paused queues, rates that nobody has defined, and settings of another version."""
    found = list[Check]()
    for rate, message in (await undefined_rates(engine)).items():
        remedy = f"headrace rates set {rate} LIMIT --per DURATION, or app.rate in code"
        found.append(Check("rates", "warn", message, remedy))
    for webhook in read_webhooks(await engine.documents.settings(SUBSCRIPTIONS)):
        if not webhook.on:
            message = f"webhook {webhook.id} is switched off: {webhook.off_because}"
            remedy = f"mend it, then: headrace webhooks on {webhook.id}; or headrace webhooks delete {webhook.id}"
            found.append(Check("webhooks", "warn", message, remedy))
    for key, why in limits.unreadable.items():
        found.append(Check("settings", "warn", *told_unreadable(key, why)))
    for name, rule in limits.queues.items():
        if rule.paused:
            remedy, by = f"headrace queues resume {name}", f" by {rule.paused_by}" if rule.paused_by else ""
            found.append(Check("queues", "warn", f"queue {name!r} is paused{by}", remedy))
    return found
