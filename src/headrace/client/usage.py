"""What is in use of the limits of queues, tasks, keys and rates: for people who ask who holds the slots."""

from __future__ import annotations

from datetime import datetime

import msgspec

from headrace.client.session import Session
from headrace.core.limits.rate import next_permit, permits
from headrace.core.limits.rule import limits_of
from headrace.core.record import Record

__all__ = ["LimitUsage", "RateUsage", "usage"]


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
