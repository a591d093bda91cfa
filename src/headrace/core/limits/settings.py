"""Rules of queues and tasks in settings: priorities, how many jobs at once, how many in a span of time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec
from msgspec.structs import replace

from headrace.core.job import Job
from headrace.core.limits.rate import Rate
from headrace.core.matching.customers import turn_of

__all__ = [
    "Bound",
    "Group",
    "Limits",
    "QueueRule",
    "TaskRule",
    "counted_by",
    "group_of",
    "layered",
    "limits_of",
    "queue_rule",
    "told_undefined",
    "told_unreadable",
]

Bound = tuple[str, ...]
"""What a limit is counted by: ``("queue", name)``, ``("task", name)``, ``("key", task, key)``, ``("rate", name)`` or
``("rate", name, task, key)``; a key as in ``Group``."""


class QueueRule(msgspec.Struct, frozen=True):
    """The content of a ``queue:NAME`` setting; a queue without one has the defaults."""

    priority: int = 0
    paused: bool = False
    max_concurrency: int | None = None
    rates: tuple[str, ...] = ()
    paused_by: str | None = None
    """Who paused it last, if known."""
    paused_at: datetime | None = None
    by_customer: bool = False
    """Jobs of each customer are in subqueues of their own, so that workers can select customers."""

    @property
    def limited(self) -> bool:
        """Return whether it limits anything."""
        return self.max_concurrency is not None or bool(self.rates)


class TaskRule(msgspec.Struct, frozen=True):
    """The content of a ``limit:TASK`` setting; a task without one has no limits and is not paused."""

    max_concurrency: int | None = None
    max_per_key: int | None = None
    rates: tuple[str, ...] = ()
    paused: bool = False
    """Claims pass over its subqueues. It is no limit: what else a claim serves is not selected under limits for it."""
    paused_by: str | None = None
    """Who paused it last, if known."""
    paused_at: datetime | None = None

    @property
    def limited(self) -> bool:
        """Return whether it limits anything."""
        return self.max_concurrency is not None or self.max_per_key is not None or bool(self.rates)


class Group(msgspec.Struct, frozen=True):
    """Jobs that share all limits: one queue, one task, one concurrency key."""

    queue: str
    task: str
    key: str | None = None
    """As ``core.matching.customers.turn_of`` gives it: each customer has its own."""
    customer: str | None = None
    """The customer of this subqueue, in a queue that is set ``by_customer``; it limits nothing by itself."""


def group_of(job: Job) -> Group:
    """The group of a job."""
    return Group(job.queue, job.task, turn_of(job.spec))


def counted_by(group: Group) -> list[Bound]:
    """Return the bounds that a held job of the group counts against, whether they are limited or not."""
    bounds: list[Bound] = [("queue", group.queue), ("task", group.task)]
    if group.key is not None:
        bounds.append(("key", group.task, group.key))
    return bounds


class Limits(msgspec.Struct, frozen=True):
    """All limits, from the settings."""

    queues: Mapping[str, QueueRule] = {}
    tasks: Mapping[str, TaskRule] = {}
    rates: Mapping[str, Rate] = {}
    unreadable: Mapping[str, str] = {}
    """The settings that this version cannot read, by key, and why: no job that they limit is given to a worker."""

    def queue(self, name: str) -> QueueRule:
        """The rule of a queue."""
        return self.queues.get(name, _QUEUE)

    def task(self, name: str) -> TaskRule:
        """The rule of a task."""
        return self.tasks.get(name, _TASK)

    @property
    def by_customer(self) -> frozenset[str]:
        """The queues in which jobs of each customer are in subqueues of their own."""
        return frozenset(name for name, rule in self.queues.items() if rule.by_customer)

    def concurrency(self, group: Group) -> dict[Bound, int]:
        """Return how many jobs may be held at once by each bound of the group."""
        queue, task = self.queue(group.queue), self.task(group.task)
        found: dict[Bound, int] = {}
        if queue.max_concurrency is not None:
            found["queue", group.queue] = queue.max_concurrency
        if task.max_concurrency is not None:
            found["task", group.task] = task.max_concurrency
        if task.max_per_key is not None and group.key is not None:
            found["key", group.task, group.key] = task.max_per_key
        return found

    def named(self, group: Group) -> dict[str, Rate]:
        """Return the rates of the group by name; a name that no rate has limits nothing."""
        names = (*self.queue(group.queue).rates, *self.task(group.task).rates)
        return {name: self.rates[name] for name in names if name in self.rates}

    def paced(self, group: Group) -> dict[Bound, Rate]:
        """Return the bounds that count the rates of the group."""
        found: dict[Bound, Rate] = {}
        for name, rate in self.named(group).items():
            if not rate.keyed:
                found["rate", name] = rate
            elif group.key is not None:
                found["rate", name, group.task, group.key] = rate
        return found

    def paces(self, groups: Iterable[Group]) -> set[Bound]:
        """Return the bounds that count the rates of all these groups."""
        found: set[Bound] = set()
        rated: dict[tuple[str, str], bool] = {}
        for group in groups:
            kind = (group.queue, group.task)
            if kind not in rated:
                rated[kind] = bool(self.named(group))
            if rated[kind]:
                found.update(self.paced(group))  # in place: a union with something that is no set makes a new one
        return found

    def spending(self, jobs: Iterable[Job]) -> frozenset[UUID]:
        """Return those of the jobs that need a permit of a rate, by id."""
        if not self.rates:
            return frozenset()
        found: dict[tuple[str, str, bool], bool] = {}
        ids = list[UUID]()
        for job in jobs:
            key = job.spec.concurrency_key
            kind = (job.queue, job.spec.task, key is None)
            if kind not in found:
                found[kind] = bool(self.paced(Group(job.queue, job.spec.task, key)))
            if found[kind]:
                ids.append(job.id)
        return frozenset(ids)

    def undefined(self) -> dict[str, list[str]]:
        """Return the undefined rates that queues and tasks name, and what names them: they limit nothing."""
        found: dict[str, list[str]] = {}
        for kind, rules in (("queue", self.queues), ("task", self.tasks)):
            for name, rule in rules.items():
                for rate in rule.rates:
                    if rate not in self.rates and f"rate:{rate}" not in self.unreadable:
                        found.setdefault(rate, []).append(f"{kind} {name!r}")
        return found

    def paused(self, queue: str, task: str) -> bool:
        """Return whether no job of this queue and task is given because one of the two is paused."""
        return self.queue(queue).paused or self.task(task).paused

    @property
    def paused_tasks(self) -> list[str]:
        """The tasks that are paused, by name."""
        return sorted(name for name, rule in self.tasks.items() if rule.paused)

    def bounded(self, queue: str, task: str) -> bool:
        """Return whether jobs of this queue and task have any limit."""
        return self.queue(queue).limited or self.task(task).limited

    def closed(self, queue: str, task: str) -> bool:
        """Return whether no job of this queue and task can be given at all."""
        return self.queue(queue).max_concurrency == 0 or self.task(task).max_concurrency == 0

    def in_the_way(self, group: Group) -> list[str]:
        """Return the settings that this version cannot read and that close the group, by key."""
        rates = (*self.queue(group.queue).rates, *self.task(group.task).rates)
        keys = (f"queue:{group.queue}", f"limit:{group.task}", *(f"rate:{rate}" for rate in rates))
        return [key for key in dict.fromkeys(keys) if key in self.unreadable]


_QUEUE, _TASK = QueueRule(), TaskRule()


def layered(document: str) -> dict[str, Any]:
    """Return the effective content of a setting: what was set while running goes before what the code says."""
    said = msgspec.json.decode(document, type=dict[str, Any])
    code = msgspec.convert(said.pop("code", None) or {}, dict[str, Any])
    return code | {name: value for name, value in said.items() if value is not None}


def queue_rule(document: str | None) -> QueueRule:
    """Read a ``queue:NAME`` setting; missing fields and unknown ones change nothing."""
    return _QUEUE if document is None else msgspec.convert(layered(document), QueueRule)


def _rate(document: str) -> Rate:
    said = msgspec.convert(layered(document), Rate)
    return Rate(said.limit, per=said.per, kind=said.kind, keyed=said.keyed)  # which checks the values


def limits_of(settings: Iterable[tuple[str, str]]) -> Limits:
    """Return the limits in settings, given by key and document; other settings are passed over.

    What cannot be read (a newer version may write it differently) closes what it names: no job of its queue, its task,
    or with its rate is given. A limit is never lifted because it was not understood, and all other jobs go on.
    """
    queues, tasks, rates = dict[str, QueueRule](), dict[str, TaskRule](), dict[str, Rate]()
    unreadable: dict[str, str] = {}
    for key, document in settings:
        kind, _, name = key.partition(":")
        try:
            if kind == "queue":
                queues[name] = queue_rule(document)
            elif kind == "limit":
                tasks[name] = msgspec.convert(layered(document), TaskRule)
            elif kind == "rate":
                rates[name] = _rate(document)
        except (msgspec.MsgspecError, ValueError) as error:
            unreadable[key] = str(error)
    if unreadable:
        _close(queues, tasks, unreadable)
    return Limits(queues, tasks, rates, unreadable)


def _close(queues: dict[str, QueueRule], tasks: dict[str, TaskRule], unreadable: Iterable[str]) -> None:
    of = {
        kind: {name for each, _, name in (key.partition(":") for key in unreadable) if each == kind} for kind in _KINDS
    }
    queues |= dict.fromkeys(of["queue"], QueueRule(max_concurrency=0))
    tasks |= dict.fromkeys(of["limit"], TaskRule(max_concurrency=0))
    queues |= {name: replace(rule, max_concurrency=0) for name, rule in queues.items() if of["rate"] & {*rule.rates}}
    tasks |= {name: replace(rule, max_concurrency=0) for name, rule in tasks.items() if of["rate"] & {*rule.rates}}


_KINDS = {
    "queue": ("no job of the queue {name!r}", "queues"),
    "limit": ("no job of the task {name!r}", "limits"),
    "rate": ("no job that keeps to the rate {name!r}", "rates"),
}


def told_unreadable(key: str, why: str) -> tuple[str, str]:
    """Return a setting that cannot be read and what follows from that, in a sentence; and the remedy, in another."""
    kind, _, name = key.partition(":")
    what, group = _KINDS[kind]
    message = f"the setting {key!r} is none that this version of headrace can read ({why}), so {what.format(name=name)}"
    remedy = f"use the version that wrote it, or drop it with headrace {group} forget {name}"
    return f"{message} is given to its workers", remedy


def told_undefined(limits: Limits) -> dict[str, str]:
    """Return the rates that queues and tasks name and nothing defines, each with a sentence that says which do."""
    return {
        rate: f"nobody has defined the rate {rate!r} that {' and '.join(users)} must keep to"
        for rate, users in limits.undefined().items()
    }
