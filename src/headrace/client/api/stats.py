"""``app.stats``: counts of the store, charts of what workers finished, and how long tasks take."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Literal, get_args

import msgspec

from headrace.client.api.noun import Noun
from headrace.client.api.scale import QueueScale, scale
from headrace.client.api.workers import workers
from headrace.core.codec.record import Record
from headrace.core.defaults import MAX_MOMENT, MIN_MOMENT, SCALE_WAIT_SECONDS
from headrace.core.limits.settings import limits_of
from headrace.core.query import Count, Ledger
from headrace.core.schedule.schedule import ScheduleDoc
from headrace.core.stats.charts import By, Charts, charts_of, step_for
from headrace.core.stats.histogram import Histogram
from headrace.core.stats.rollup import Rollup, Step
from headrace.core.status import Status
from headrace.core.times import Seconds
from headrace.errors import ConfigError, shown
from headrace.maintenance.schedules import list_schedules

if TYPE_CHECKING:
    from headrace.client.session import Session

__all__ = ["Moment", "Stats", "StatsApi", "StoreSnapshot", "running_times"]


Moment = datetime | timedelta | float
"""A moment, or how long ago it was."""

_HOUR_SECONDS = 3600.0
_DURATION_WINDOW = timedelta(days=7)
"""How far back it reads how long a task takes."""


async def running_times(session: Session, task: str | None = None, queue: str | None = None) -> Histogram:
    """How long attempts of this task, or in this queue, ran in the last days."""
    now, ran = session.host.clock.now(), Histogram({})
    for row in await session.engine.rollups.read(now - _DURATION_WINDOW, now + timedelta(minutes=1), task, queue):
        ran.merge(row.totals.ran)
    return ran


def _step(step: Step | str) -> Step:
    try:
        return Step(step)
    except ValueError:
        raise ConfigError(f"step must be minute, hour or day, not {shown(step)}") from None


def _moment(value: Moment | Seconds | None, now: datetime, name: str, default: float) -> datetime:
    if value is None:
        return now - timedelta(seconds=default)
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise ConfigError(f"{name} must have a time zone: {shown(value)} has none")
        return _within(value, value, name)
    if isinstance(value, int | float | timedelta) and not isinstance(value, bool):
        try:
            return _within(now - (value if isinstance(value, timedelta) else timedelta(seconds=value)), value, name)
        except (OverflowError, ValueError):  # more than a timedelta holds, or no number
            return _within(None, value, name)
    raise ConfigError(f"{name} must be a datetime, or how long ago it was, not {shown(value)}")


def _within(moment: datetime | None, value: object, name: str) -> datetime:
    if moment is None or not MIN_MOMENT <= moment <= MAX_MOMENT:
        raise ConfigError(f"{name} must be a moment from {MIN_MOMENT:%Y} to {MAX_MOMENT:%Y}, not {shown(value)}")
    return moment


class StoreSnapshot(msgspec.Struct, frozen=True, kw_only=True):
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


class StatsApi(Noun):
    """Numbers about the store."""

    async def counts(self) -> Stats:
        """Counts of the whole store: jobs by status, ledger, live workers, oldest queued job."""
        engine, now = self._engine, self._host.clock.now()
        statuses: dict[Status, int] = {}
        oldest: list[datetime] = []
        for count in await engine.records.count(now):
            statuses[count.status] = statuses.get(count.status, 0) + count.jobs
            if count.status is Status.QUEUED and count.oldest is not None:
                oldest.append(count.oldest)
        rows = await workers(self._session)
        silent = [row.silent_since for row in rows if row.silent_since is not None]
        alive, longest = sum(row.alive for row in rows), min(oldest, default=None)
        return Stats(statuses, await engine.records.ledger(), alive, longest, len(silent), max(silent, default=None))

    async def snapshot(self) -> StoreSnapshot:
        """The store at this moment, read as cheaply as can be, however many jobs it keeps: for readers that poll."""
        engine, now = self._engine, self._host.clock.now()
        limits = limits_of((one.key, one.value) for one in await engine.documents.settings("queue:"))
        rows = await workers(self._session)
        served = {task for row in rows if row.alive for task in row.info.tasks}
        schedules = [doc for doc in await list_schedules(engine) if doc.state(served=doc.task in served) == "active"]
        return StoreSnapshot(
            counts=await engine.records.count(now, history=False),
            paused=frozenset(name for name, rule in limits.queues.items() if rule.paused),
            named=frozenset(limits.queues),
            alive=sum(row.alive for row in rows),
            busy=sum(min(row.beat.busy, row.info.concurrency) for row in rows if row.alive),
            slots=sum(row.info.concurrency for row in rows if row.alive),
            silent=sum(row.silent_since is not None for row in rows),
            schedules=schedules,
        )

    async def charts(
        self,
        *,
        task: str | None = None,
        queue: str | None = None,
        since: Moment | None = None,
        until: Moment | None = None,
        step: Step | Literal["minute", "hour", "day"] | None = None,
        by: By = "series",
    ) -> Charts:
        """What workers finished, by task, queue and time, and how long it took; by default, of the last hour.

        ``by``: what has a series of its own: each task in each queue, each ``task``, each ``queue``, or ``all``
        together. ``since``, ``until``: a moment, or how long ago it was (seconds or a timedelta). Minutes are kept for
        6 hours, hours for 7 days, days for 90. Approximate: a worker that is killed takes along what it finished since
        its last beat.
        """
        now = self._host.clock.now()
        end, begin = _moment(until, now, "until", 0.0), _moment(since, now, "since", _HOUR_SECONDS)
        if by not in get_args(By):
            raise ConfigError(f"by must be one of {', '.join(get_args(By))}, not {shown(by)}")
        if begin >= end:
            raise ConfigError(f"since must be before until, not {begin} and {end}")
        wide = step_for(begin, end, now) if step is None else _step(step)
        rows = await self._engine.rollups.read(begin, end, task, queue)
        return charts_of(rows, begin, end, wide, by)

    async def rollups(self, since: Moment, until: Moment = 0.0) -> list[Rollup]:
        """The rows behind the charts: what was finished, added up by task, queue and time, in rows of a minute, an hour
        or a day; also rows that are only partly within the time. There may be several rows of the same minute."""
        now = self._host.clock.now()
        return await self._engine.rollups.read(_moment(since, now, "since", 0.0), _moment(until, now, "until", 0.0))

    async def scale(self, *, wait: Seconds = SCALE_WAIT_SECONDS, queue: str | None = None) -> list[QueueScale]:
        """How many slots each queue needs so that 95 % of its jobs begin within ``wait`` seconds, and how many there
        are; or for this ``queue`` alone, known or not. headrace's own jobs do not count.

        It rises at once and falls slowly, within 15 minutes. The store is read at most once a second, at a cost that
        does not grow with the backlog.
        """
        own = {handler.policy.queue for handler in self._app._handlers.values()}
        return await scale(self._session.loads, wait, queue, own)

    async def duration(self, task: str, *, quantile: float = 0.5) -> float | None:
        """The seconds that this share of the runs of a task took at most, in the last 7 days; None if unknown."""
        if isinstance(quantile, bool) or not isinstance(quantile, int | float) or not 0 < quantile <= 1:
            raise ConfigError(f"quantile must be more than 0 and at most 1, not {shown(quantile)}")
        return (await running_times(self._session, task)).quantile(quantile)
