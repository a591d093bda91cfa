"""``app.limits``: the limits of tasks, set while workers run, and how much of each limit is in use."""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from datetime import datetime

import msgspec

from headrace.client.api.limit_settings import LIMIT, RuleNoun, check_limits, given, said_live
from headrace.core.codec.record import Record
from headrace.core.limits.rate import next_permit, permits
from headrace.core.limits.settings import limits_of

__all__ = ["LimitInfo", "LimitUsage", "LimitsApi", "RateUsage"]


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


class LimitsApi(RuleNoun):
    """The limits of tasks; ``@app.task(max_concurrency=…)`` declares them in code."""

    _kind = "task"

    async def list(self) -> builtins.list[LimitInfo]:
        """The limits of every limited task, by name."""
        settings = await self._engine.documents.settings(LIMIT)
        limits = limits_of((one.key, one.value) for one in settings)
        found = []
        for setting in settings:
            task = setting.key.removeprefix(LIMIT)
            rule, why = limits.task(task), limits.unreadable.get(setting.key)
            live = said_live(setting.value)
            if rule.limited or live:
                found.append(LimitInfo(task, rule.max_concurrency, rule.max_per_key, rule.rates, live, why))
        return found

    async def set(
        self,
        task: str,
        *,
        max_concurrency: int | None = None,
        max_per_key: int | None = None,
        rates: Sequence[str] | None = None,
        by: str | None = None,
    ) -> None:
        """Change the limits of a task while workers run; an argument left out stays as it is."""
        said = given(max_concurrency=max_concurrency, max_per_key=max_per_key, rates=rates)
        checked = msgspec.to_builtins(check_limits(said)) if said else {}
        await self._edit(task, {one: checked[one] for one in said}, "set", by)

    async def usage(self) -> LimitUsage:
        """How many jobs workers hold of each queue, task and concurrency key, and what is left of each rate."""
        engine, now = self._engine, self._host.clock.now()
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
