"""Limits and rates: how much of them is used, by which jobs, and which key is next."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from headrace.client.api.known_names import strange_name
from headrace.client.api.limits import LimitInfo
from headrace.client.api.queues import QueueInfo
from headrace.core.job import Job
from headrace.core.status import HELD, Status
from headrace.dashboard.page import Missing, PageRequest, PageView, Shown, audit_of

__all__ = ["VIEWS"]

MAX_HOLDERS = 50
MAX_READ_JOBS = 200
"""Jobs of a task that are read to find the keys' last turns: the newest."""
MAX_QUEUED_JOBS = 500
"""Queued jobs of a task that are read to find the waiting keys: the newest."""


@dataclass(frozen=True)
class KeyLine:
    """The jobs of a task that share a concurrency key."""

    key: str
    held: int
    waiting: int
    last_turn: datetime | None
    full: bool
    next: int | None
    """Its position among the keys that may get a job next; None: it has no queued job, or no room."""


async def limits(ask: PageRequest) -> Shown:
    """Show all limits and rates."""
    app = ask.app
    found = await ask.shared("limits", app.limits.list)
    usage = await ask.shared("usage", app.limits.usage)
    rates = await ask.shared("rates", app.rates.list)
    queues = await ask.queues()
    undefined = await ask.shared("undefined rates", app.rates.undefined, 5.0)
    data = {
        "limits": found,
        "usage": usage,
        "rates": sorted(rates.items()),
        "limited_queues": [one for one in queues if one.max_concurrency is not None or one.rates],
        "undefined": undefined,
        "tasks": [one.name for one in await ask.shared("tasks", app.tasks.list, 5.0)],
        "users": {name: _users(name, found, queues) for name in rates},
        "audit": await audit_of(ask, *(f"rate:{name}" for name in rates), *(f"limit:{one.task}" for one in found)),
    }
    return Shown("limits.html", "Limits and rates", data)


def _users(rate: str, limits: Iterable[LimitInfo], queues: Iterable[QueueInfo]) -> list[str]:
    named = [f"task {one.task}" for one in limits if rate in one.rates]
    return named + [f"queue {one.name}" for one in queues if rate in one.rates]


async def limit(ask: PageRequest) -> Shown:
    """Show the limits of one task, and the jobs in its slots."""
    app, task = ask.app, ask.request.path_params["task"]
    known = {one.task: one for one in await ask.shared("limits", app.limits.list)}
    if task not in known and await strange_name(app, "task", task):
        raise Missing(f"task {task}")
    usage = await ask.shared("usage", app.limits.usage)
    rule = known.get(task) or LimitInfo(task, None, None, (), False)
    holders = await ask.shared(("holders", task), lambda: app.jobs.list(task=task, status=[*HELD], limit=MAX_HOLDERS))
    recent = await ask.shared(("recent", task), lambda: app.jobs.list(task=task, limit=MAX_READ_JOBS))
    queued = await ask.shared(
        ("queued of task", task), lambda: app.jobs.list(task=task, status=[Status.QUEUED], limit=MAX_QUEUED_JOBS)
    )
    data = {
        "limit": rule,
        "held": usage.tasks.get(task, 0),
        "holders": holders.items,
        "keys": _keys(rule, usage.by_key.get(task, {}), recent.items, queued.items),
        "looked_at": MAX_READ_JOBS if recent.cursor else None,
        "queued_at": MAX_QUEUED_JOBS if queued.cursor else None,
        "rates": {name: usage.rates.get(name) for name in rule.rates},
        "known_rates": sorted(await ask.shared("rates", app.rates.list)),
        "audit": await audit_of(ask, f"limit:{task}"),
    }
    return Shown("limit.html", f"Limits of {task}", data)


def _keys(rule: LimitInfo, held: dict[str, int], jobs: Iterable[Job], queued: Iterable[Job]) -> list[KeyLine]:
    """Return the keys of a task in the order of their turns: those without one, then those with the oldest turn."""
    turns = dict[str, datetime]()
    for job in jobs:
        if (key := job.concurrency_key) is not None and job.assigned_at is not None:
            turns[key] = max(job.assigned_at, turns.get(key, job.assigned_at))
    waiting = Counter(job.concurrency_key for job in queued if job.concurrency_key is not None)
    most = rule.max_per_key

    def is_full(key: str) -> bool:
        return most is not None and held.get(key, 0) >= most

    def place(key: str) -> tuple[bool, float, str]:
        turn = turns.get(key)
        return is_full(key), 0.0 if turn is None else turn.timestamp(), key

    order = {key: index + 1 for index, key in enumerate(sorted((k for k in waiting if not is_full(k)), key=place))}
    names = sorted({*held, *waiting}, key=lambda key: (order.get(key, 1 << 30), -held.get(key, 0), key))
    return [
        KeyLine(key, held.get(key, 0), waiting.get(key, 0), turns.get(key), is_full(key), order.get(key))
        for key in names[:100]
    ]


VIEWS = (
    PageView("/limits", "limits", limits, "limits"),
    PageView("/limits/{task:path}", "limit", limit, "limits"),
)
