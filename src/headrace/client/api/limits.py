"""Queues, limits and rates: declared in code as defaults, set while running, and how much of each is in use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import msgspec

from headrace.client.api.limit_settings import (
    LIMIT,
    QUEUE,
    RATE,
    Named,
    edit_rule,
    forget_rule,
    known_names,
    said_live,
    undefined_rates,
)
from headrace.client.lifetime import Lifetime
from headrace.core import audit
from headrace.core.audit import Audited
from headrace.core.codec.record import Record
from headrace.core.defaults import MAX_AUDIT_ENTRIES, MAX_COUNT
from headrace.core.limits.rate import Rate
from headrace.core.limits.settings import TaskRule, limits_of, told_unreadable
from headrace.core.validation import checked_name, checked_note, whole
from headrace.errors import ConfigError, shown

if TYPE_CHECKING:
    from headrace.app import App
    from headrace.client.session import Session
from datetime import datetime

from headrace.core.limits.rate import next_permit, permits

__all__ = ["LimitInfo", "LimitUsage", "Limited", "RateUsage", "check_limits", "usage"]


_NAMES = {QUEUE: "a queue's name", LIMIT: "a task's name", RATE: "a rate's name"}


class LimitInfo(msgspec.Struct, Record, frozen=True):
    """The limits of a task, and where they were set."""

    task: str
    max_concurrency: int | None
    max_per_key: int | None
    rates: tuple[str, ...]
    live: bool
    """Whether any of it was set while running, which overrides the code."""
    unreadable: str | None = None
    """Why this version cannot read the setting, if so; its workers get no job of the task then."""


class Limited(Lifetime):
    """The half of an App that knows queues and limits."""

    _declared: dict[str, dict[str, Any]]
    """What the code says, by the key of its setting."""

    # -- in code

    def queue(
        self,
        name: str,
        *,
        priority: int | None = None,
        max_concurrency: int | None = None,
        rates: Sequence[str] | None = None,
        by_customer: bool | None = None,
    ) -> None:
        """Set a queue's priority and limits; stored when a worker starts. Changes made while running override it.

        ``by_customer``: jobs of each customer stand in lines of their own, so that workers can choose whose they take.

        :raises ConfigError: naming the argument
        """
        said = _given(priority=priority, max_concurrency=max_concurrency, rates=rates, by_customer=by_customer)
        self._declared[QUEUE + _named(name, "a queue's name")] = _checked_queue(said)

    def rate(self, name: str, rate: Rate) -> None:
        """Define a rate limit, to be named in ``rates`` of tasks and queues; stored when a worker starts."""
        if not isinstance(rate, Rate):
            raise ConfigError(f"rate {name!r} takes a Rate, as in Rate(100, per=60), not {shown(rate)}")
        self._declared[RATE + _named(name, "a rate's name")] = msgspec.to_builtins(rate)

    # -- while running

    async def pause_queue(self, name: str, *, by: str | None = None) -> None:
        """Pause a queue: none of its jobs are started, running ones go on. ``by``: who pauses it, for ``explain``."""
        at = msgspec.to_builtins(self.host.clock.now())
        said = {"paused": True, "paused_by": checked_note(by, "by"), "paused_at": at}
        await self._edit(QUEUE, name, said, "pause", by, {})

    async def resume_queue(self, name: str, *, by: str | None = None) -> None:
        """Resume a paused queue. ``by``, here and below: who does it, for ``audit``."""
        await self._edit(QUEUE, name, {"paused": False, "paused_by": None, "paused_at": None}, "resume", by, {})

    async def set_queue(
        self,
        name: str,
        *,
        priority: int | None = None,
        max_concurrency: int | None = None,
        rates: Sequence[str] | None = None,
        by_customer: bool | None = None,
        by: str | None = None,
    ) -> None:
        """Change a queue while running: priority (default 0, higher is served first), concurrency limit, rate limits,
        and whether jobs of each customer stand in lines of their own.

        An argument left out stays as it is.
        """
        said = _given(priority=priority, max_concurrency=max_concurrency, rates=rates, by_customer=by_customer)
        await self._edit(QUEUE, name, _checked_queue(said), "set", by)

    async def reset_queue(self, name: str, *, by: str | None = None) -> None:
        """Drop what was set while running, a pause included; the code applies again."""
        await self._edit(QUEUE, name, None, "reset", by)

    async def forget_queue(self, name: str, *, by: str | None = None) -> None:
        """Delete all stored settings of a queue: those from code, those set while running, and a pause.

        Its jobs stay. A worker whose code still has the settings stores them again when it starts.

        :raises UnknownSetting: nothing is stored
        """
        await forget_rule(self.engine, "queue", name, audit.act("forget", self.host.clock.now(), by))

    async def set_limit(
        self,
        task: str,
        *,
        max_concurrency: int | None = None,
        max_per_key: int | None = None,
        rates: Sequence[str] | None = None,
        by: str | None = None,
    ) -> None:
        """Change the limits of a task while running; an argument left out stays as it is."""
        said = _given(max_concurrency=max_concurrency, max_per_key=max_per_key, rates=rates)
        checked = msgspec.to_builtins(check_limits(said)) if said else {}
        await self._edit(LIMIT, task, {one: checked[one] for one in said}, "set", by)

    async def reset_limit(self, task: str, *, by: str | None = None) -> None:
        """Drop the limits of a task that were set while running; the code applies again."""
        await self._edit(LIMIT, task, None, "reset", by)

    async def forget_limit(self, task: str, *, by: str | None = None) -> None:
        """Delete all stored limits of a task, those from code included; its jobs stay.

        A worker whose code still has them stores them again when it starts.

        :raises UnknownSetting: nothing is stored
        """
        await forget_rule(self.engine, "task", task, audit.act("forget", self.host.clock.now(), by))

    async def limits(self) -> list[LimitInfo]:
        """The limits of every limited task, by name."""
        settings = await self.engine.documents.settings(LIMIT)
        limits = limits_of((one.key, one.value) for one in settings)
        found = []
        for setting in settings:
            task = setting.key.removeprefix(LIMIT)
            rule, why = limits.task(task), limits.unreadable.get(setting.key)
            live = said_live(setting.value)
            if rule.limited or live:
                found.append(LimitInfo(task, rule.max_concurrency, rule.max_per_key, rule.rates, live, why))
        return found

    async def set_rate(self, name: str, rate: Rate, *, by: str | None = None) -> None:
        """Make or change a rate limit while running."""
        if not isinstance(rate, Rate):
            raise ConfigError(f"rate {name!r} takes a Rate, as in Rate(100, per=60), not {shown(rate)}")
        await self._edit(RATE, name, msgspec.to_builtins(rate), "set", by)

    async def reset_rate(self, name: str, *, by: str | None = None) -> None:
        """Drop what was set of a rate while running; the code applies again."""
        await self._edit(RATE, name, None, "reset", by)

    async def forget_rate(self, name: str, *, by: str | None = None) -> None:
        """Delete a stored rate, one from code included; tasks and queues that name it are not limited by it any more.

        A worker whose code still has it stores it again when it starts.

        :raises UnknownSetting: nothing is stored
        """
        await forget_rule(self.engine, "rate", name, audit.act("forget", self.host.clock.now(), by))

    async def rates(self) -> dict[str, Rate]:
        """Every rate, by name, except those that only another version can read (``doctor`` names them)."""
        return dict(limits_of((one.key, one.value) for one in await self.engine.documents.settings(RATE)).rates)

    async def known_names(self, of: Named) -> frozenset[str]:
        """The queues, tasks or rates (``of``) that this App, a job, a schedule or a live worker names."""
        app = cast("App", self)
        return await known_names(self.engine, of, self._declared, app.handlers, self.host.clock.now())

    async def strange_name(self, of: Named, name: str) -> str | None:
        """A sentence if nobody knows a queue, task or rate (``of``) of this name, which may be a slip; else None."""
        if name in await self.known_names(of):
            return None
        if of == "rate":
            return f"no task, no queue and no code names the rate {name!r}"
        return f"no job, no live worker and no code knows a {of} named {name!r}"

    async def undefined_rates(self) -> dict[str, str]:
        """The rates that queues and tasks name and nobody has defined, each with a sentence that says who names it."""
        return await undefined_rates(self.engine)

    async def unreadable_settings(self, prefix: str = "") -> list[str]:
        """A sentence for each setting of queues, limits and rates that only another version can read."""
        limits = limits_of((one.key, one.value) for one in await self.engine.documents.settings(prefix))
        return [": ".join(told_unreadable(key, why)) for key, why in limits.unreadable.items()]

    async def audit(self, limit: int = 50) -> list[Audited]:
        """What people and programs did to queues, limits, rates, schedules and keys, newest first.

        The newest 1,000 are kept. What was done to a job is in the history of the job.
        """
        return await self.engine.documents.audit(whole(limit, "limit", 1, MAX_AUDIT_ENTRIES))

    async def _edit(
        self,
        kind: str,
        name: str,
        said: Mapping[str, Any] | None,
        verb: str,
        by: str | None,
        details: dict[str, Any] | None = None,
    ) -> None:
        """``details``: what is told of it, if not what was said."""
        name = _named(name, _NAMES[kind])
        told = details if details is not None or said is None else msgspec.to_builtins(dict(said))
        await edit_rule(self.engine, kind + name, live=said, act=audit.act(verb, self.host.clock.now(), by, told))


def _named(name: Any, what: str) -> str:
    return checked_name(name, what)


def _given(**arguments: Any) -> dict[str, Any]:
    return {name: value for name, value in arguments.items() if value is not None}


def _count(value: Any, name: str) -> int:
    return whole(value, name, 1)


def _rates(value: Any) -> tuple[str, ...]:
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise ConfigError(f"rates must be a sequence of names, not {shown(value)}")
    return tuple(dict.fromkeys(_named(name, "each of rates") for name in value))


def check_limits(given: Mapping[str, Any]) -> TaskRule:
    """The limits of a task, checked.

    :raises ConfigError: naming the option
    """
    counts = {name: _count(given[name], name) for name in ("max_concurrency", "max_per_key") if name in given}
    return TaskRule(**counts, rates=_rates(given.get("rates", ())))


def _checked_queue(said: Mapping[str, Any]) -> dict[str, Any]:
    checked: dict[str, Any] = {}
    if "priority" in said:
        checked["priority"] = whole(said["priority"], "a queue's priority", -MAX_COUNT)
    if "max_concurrency" in said:
        checked["max_concurrency"] = _count(said["max_concurrency"], "max_concurrency")
    if "rates" in said:
        checked["rates"] = _rates(said["rates"])
    if "by_customer" in said:
        if not isinstance(said["by_customer"], bool):
            raise ConfigError(f"by_customer must be True or False, not {said['by_customer']!r}")
        checked["by_customer"] = said["by_customer"]
    return checked


class RateUsage(msgspec.Struct, Record, frozen=True, kw_only=True):
    """What is left of a rate now."""

    left: int
    """How many jobs may start at once."""
    next: datetime | None = None
    """When the next one may, if none is left; None: at once."""


class LimitUsage(msgspec.Struct, Record, frozen=True, kw_only=True):
    """How many jobs workers hold, by what limits count them by, whether it is limited or not."""

    queues: dict[str, int]
    tasks: dict[str, int]
    by_key: dict[str, dict[str, int]]
    """By task, and by concurrency key."""
    rates: dict[str, RateUsage]
    """Those that all keys share."""


async def usage(session: Session) -> LimitUsage:
    """Count it."""
    engine, now = session.engine, session.host.clock.now()
    defined = limits_of((one.key, one.value) for one in await engine.documents.settings("rate:")).rates
    shared = {name: rate for name, rate in defined.items() if not rate.keyed}
    found = await engine.records.usage([("rate", name) for name in shared])
    queues, tasks, keys = dict[str, int](), dict[str, int](), dict[str, dict[str, int]]()
    for bound, count in found.held.items():
        match bound:
            case ("queue", name):
                queues[name] = count
            case ("task", name):
                tasks[name] = count
            case ("key", task, key):
                keys.setdefault(task, {})[key] = count
            case _:
                pass
    rates = dict[str, RateUsage]()
    for name, rate in shared.items():
        spent = found.spent.get(("rate", name), ())
        left = permits(rate, spent, now)
        rates[name] = RateUsage(left=left, next=None if left else next_permit(rate, spent, now))
    return LimitUsage(queues=queues, tasks=tasks, by_key=keys, rates=rates)
