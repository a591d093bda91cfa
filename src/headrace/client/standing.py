"""How a store stands, read as cheaply as can be: for metrics, which ask again and again."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec

from headrace.client.admin import workers
from headrace.client.session import Session
from headrace.core.limits.rule import limits_of
from headrace.core.query import Count
from headrace.core.schedule.schedule import ScheduleDoc
from headrace.core.status import Status
from headrace.maintenance.schedules import list_schedules

__all__ = ["Standing", "standing"]


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """A store as it stood at one moment."""

    counts: Sequence[Count]
    """Jobs by queue and status, without those that completed or were cancelled."""
    paused: frozenset[str]
    """The queues that are paused; those that have settings are in ``named``."""
    named: frozenset[str]
    alive: int
    """Workers that are heard of."""
    silent: int
    """Workers that nobody has heard of for their lease, and nobody has buried yet."""
    busy: int = 0
    """Slots of the living workers that are at work, as their last beats say."""
    slots: int = 0
    """All slots of the living workers."""
    schedules: Sequence[ScheduleDoc]
    """Those that fire."""

    def queued_since(self) -> dict[str, datetime]:
        """By queue, when its longest waiting job could first be claimed."""
        return {one.queue: one.oldest for one in self.counts if one.status is Status.QUEUED and one.oldest is not None}

    def late(self, now: datetime) -> timedelta:
        """For how long the first fire that made no job yet is over, of all schedules."""
        due = [fire for doc in self.schedules if (fire := doc.next_fire) is not None]
        return max(now - min(due, default=now), timedelta(0))


async def standing(session: Session) -> Standing:
    """Read it."""
    engine, now = session.engine, session.host.clock.now()
    limits = limits_of((one.key, one.value) for one in await engine.documents.settings("queue:"))
    rows = await workers(session)
    served = {task for row in rows if row.alive for task in row.info.tasks}
    schedules = [doc for doc in await list_schedules(engine) if doc.state(served=doc.task in served) == "active"]
    return Standing(
        counts=await engine.records.count(now, history=False),
        paused=frozenset(name for name, rule in limits.queues.items() if rule.paused),
        named=frozenset(limits.queues),
        alive=sum(row.alive for row in rows),
        busy=sum(min(row.beat.busy, row.info.concurrency) for row in rows if row.alive),
        slots=sum(row.info.concurrency for row in rows if row.alive),
        silent=sum(row.silent_since is not None for row in rows),
        schedules=schedules,
    )
