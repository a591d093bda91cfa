"""``app.stats``: counts and metrics of the user's jobs, charts of what workers finished, and how long tasks take.

Headrace's own jobs and workers (``core.own_tasks``) are in none of these figures, or apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Literal, get_args

import msgspec

from headrace.client.api.alerts import alerts
from headrace.client.api.filters import checked_limit
from headrace.client.api.noun import Noun
from headrace.client.api.recent_metrics import RecentMetrics
from headrace.client.api.scale import QueueScale, scale
from headrace.client.api.workers import workers
from headrace.core.codec.record import Record
from headrace.core.defaults import MAX_MOMENT, MIN_MOMENT, SCALE_WAIT_SECONDS
from headrace.core.limits.settings import limits_of
from headrace.core.query import Count, Filter, Ledger
from headrace.core.schedule.schedule import ScheduleDoc
from headrace.core.stats.alerts.alert import Alert
from headrace.core.stats.charts import By, Charts, charts_of, step_for
from headrace.core.stats.errors import RecentError, errors_of
from headrace.core.stats.histogram import Histogram
from headrace.core.stats.metrics import Metrics
from headrace.core.stats.own_tasks import is_own
from headrace.core.stats.rollup import DEPTH, SLOTS, Rollup, Step
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
_AHEAD_SECONDS = 60.0
"""A worker's clock may be ahead of this one."""
_DURATION_WINDOW = timedelta(days=7)
"""How far back it reads how long a task takes."""


_UNREPORTED_BEATS = 3
"""Beats after which the workers have reported what they finished."""
_MAX_UNREPORTED_JOBS = 20


async def running_times(session: Session, task: str | None = None, queue: str | None = None) -> Histogram:
    """How long attempts of this task, or in this queue, ran in the last days; if workers have reported none yet, how
    long the jobs took that completed since their last reports."""
    now, ran = session.host.clock.now(), Histogram({})
    for row in await session.engine.rollups.read(now - _DURATION_WINDOW, now + timedelta(minutes=1), task, queue):
        ran.merge(row.totals.ran)
    if not ran.counts:
        since = now - timedelta(seconds=_UNREPORTED_BEATS * session.engine.rules.beat)
        recent = Filter(
            status=frozenset({Status.COMPLETED}),
            task=frozenset(() if task is None else (task,)),
            queue=frozenset(() if queue is None else (queue,)),
            finished_after=since,
        )
        for job in (await session.engine.records.find(recent, now, _MAX_UNREPORTED_JOBS)).items:
            if job.started_at is not None and job.finished_at is not None:
                ran.add(max(0.0, (job.finished_at - job.started_at).total_seconds()))
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
    """Jobs by queue and status, without those that completed or were cancelled, and without headrace's own."""
    own: Sequence[Count] = ()
    """The same of headrace's own jobs."""
    paused: frozenset[str]
    """The queues that are paused; those that have settings are in ``named``."""
    named: frozenset[str]
    paused_tasks: frozenset[str] = frozenset()
    """The tasks that are paused."""
    alive: int
    """Workers that are heard of, without those that run only headrace's own tasks."""
    own_alive: int = 0
    """Those."""
    silent: int
    """Workers that nobody has heard of for their lease, and nobody has buried yet."""
    busy: int = 0
    """Slots of the living workers that the jobs they hold take: it agrees with the counts of jobs."""
    slots: int = 0
    """All slots of the living workers."""
    metrics: Metrics
    """The six metrics."""
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
    """Counts and metrics of the user's jobs; headrace's own are apart."""

    statuses: dict[Status, int]
    ledger: Ledger
    workers_alive: int
    """Without those that run only headrace's own tasks."""
    oldest_queued: datetime | None
    """When the job that has waited longest became ``queued``."""
    metrics: Metrics
    """The six metrics, over the last 5 minutes, hour and day."""
    workers_silent: int = 0
    """How many were not heard of for their lease, and nobody has buried yet."""
    silent_since: datetime | None = None
    """The last beat of those, the latest."""
    own_statuses: dict[Status, int] = {}
    """Headrace's own jobs, such as deliveries of webhooks, by status."""
    own_workers_alive: int = 0
    """Workers that run only headrace's own tasks, as that of a hub which delivers webhooks."""


class StatsApi(Noun):
    """Numbers about the store."""

    _recent: RecentMetrics | None = None

    async def counts(self) -> Stats:
        """Counts of the user's jobs in the whole store, by status and by ledger, live workers, the oldest queued job,
        and the metrics; headrace's own are apart."""
        engine, now = self._engine, self._host.clock.now()
        statuses, own = dict[Status, int](), dict[Status, int]()
        oldest: list[datetime] = []
        for count in await engine.records.count(now):
            counted = own if count.own else statuses
            counted[count.status] = counted.get(count.status, 0) + count.jobs
            if count.status is Status.QUEUED and count.oldest is not None and not count.own:
                oldest.append(count.oldest)
        rows = await workers(self._session)
        silent = [row.silent_since for row in rows if row.silent_since is not None and not row.info.own]
        return Stats(
            statuses=statuses,
            ledger=await engine.records.ledger(users=True),
            workers_alive=sum(row.alive for row in rows if not row.info.own),
            oldest_queued=min(oldest, default=None),
            workers_silent=len(silent),
            silent_since=max(silent, default=None),
            metrics=await self._metrics(statuses.get(Status.QUEUED, 0)),
            own_statuses=own,
            own_workers_alive=sum(row.alive for row in rows if row.info.own),
        )

    async def metrics(self) -> Metrics:
        """The six metrics of the user's jobs: queue depth now; average queue time, average processing time, success
        rate, retry rate and worker utilisation over the last 5 minutes, hour and day."""
        counts = await self._engine.records.count(self._host.clock.now(), history=False)
        return await self._metrics(_depth(counts))

    async def _metrics(self, depth: int) -> Metrics:
        recent, session = self._recent, self._session
        if recent is None or recent.session is not session:
            recent = self._recent = RecentMetrics(session)
        return Metrics(queue_depth=depth, windows=await recent.windows())

    async def snapshot(self) -> StoreSnapshot:
        """The store at this moment, read as cheaply as can be, however many jobs it keeps: for readers that poll."""
        engine, now = self._engine, self._host.clock.now()
        limits = limits_of((one.key, one.value) for one in await engine.documents.settings())
        rows = await workers(self._session)
        served = {task for row in rows if row.alive for task in row.info.tasks}
        schedules = [doc for doc in await list_schedules(engine) if doc.state(served=doc.task in served) == "active"]
        counts = await engine.records.count(now, history=False)
        users = [row for row in rows if not row.info.own]
        return StoreSnapshot(
            counts=[one for one in counts if not one.own],
            own=[one for one in counts if one.own],
            paused=frozenset(name for name, rule in limits.queues.items() if rule.paused),
            paused_tasks=frozenset(limits.paused_tasks),
            named=frozenset(limits.queues),
            alive=sum(row.alive for row in users),
            own_alive=sum(row.alive for row in rows if row.info.own),
            busy=sum(row.busy for row in users if row.alive),
            slots=sum(row.info.concurrency for row in users if row.alive),
            silent=sum(row.silent_since is not None for row in users),
            metrics=await self._metrics(_depth(counts)),
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
        its last beat. Headrace's own tasks are left out, unless ``task`` names one.
        """
        now = self._host.clock.now()
        end, begin = _moment(until, now, "until", 0.0), _moment(since, now, "since", _HOUR_SECONDS)
        if by not in get_args(By):
            raise ConfigError(f"by must be one of {', '.join(get_args(By))}, not {shown(by)}")
        if begin >= end:
            raise ConfigError(f"since must be before until, not {begin} and {end}")
        wide = step_for(begin, end, now) if step is None else _step(step)
        rows = await self._engine.rollups.read(begin, end, task, queue)
        return charts_of(rows, begin, end, wide, by, own=task is not None and is_own(task))

    async def rollups(self, since: Moment, until: Moment = 0.0) -> list[Rollup]:
        """The rows behind the charts: what was finished, added up by task, queue and time, in rows of a minute, an hour
        or a day; also rows that are only partly within the time, and those of headrace's own tasks. There may be
        several rows of the same minute."""
        now = self._host.clock.now()
        rows = await self._engine.rollups.read(_moment(since, now, "since", 0.0), _moment(until, now, "until", 0.0))
        return [row for row in rows if row.task not in (SLOTS, DEPTH)]

    async def depths(self, since: Moment = _HOUR_SECONDS, until: Moment = 0.0) -> list[Rollup]:
        """The rows that say how deep each queue was, as workers noted it each minute; one without a queue counts the
        notes. ``core.stats.depth.depth_series`` makes a chart of them."""
        now = self._host.clock.now()
        begin, end = _moment(since, now, "since", _HOUR_SECONDS), _moment(until, now, "until", 0.0)
        return await self._engine.rollups.read(begin, end, DEPTH)

    async def alerts(self) -> list[Alert]:
        """What is wrong now, failures first, each with a remedy: workers that are silent, jobs that nobody runs, queues
        that grow, limits that are used up, tasks that fail, dead letters that become more, and settings to look at.

        ``headrace doctor``, the dashboard, ``GET /api/alerts`` and ``headrace_alerts`` say the same.
        """
        return await alerts(self._session)

    async def errors(
        self,
        *,
        task: str | None = None,
        queue: str | None = None,
        since: Moment | None = None,
        until: Moment | None = None,
        limit: int = 50,
    ) -> list[RecentError]:
        """The errors of attempts, also of jobs that succeeded later, the commonest first; by default, of the last hour.

        Kept as long as what ``charts`` is made of: of each task, queue and minute the 20 commonest. Headrace's own
        tasks are left out, unless ``task`` names one.
        """
        now = self._host.clock.now()
        end, begin = _moment(until, now, "until", -_AHEAD_SECONDS), _moment(since, now, "since", _HOUR_SECONDS)
        if begin >= end:
            raise ConfigError(f"since must be before until, not {begin} and {end}")
        most = checked_limit(limit)
        rows = await self._engine.rollups.read(begin, end, task, queue)
        return errors_of((row for row in rows if task is not None or not is_own(row.task)), most)

    async def scale(self, *, wait: Seconds = SCALE_WAIT_SECONDS, queue: str | None = None) -> list[QueueScale]:
        """How many slots each queue needs so that 95 % of its jobs begin within ``wait`` seconds, and how many there
        are; or for this ``queue`` alone, known or not. headrace's own jobs do not count.

        It rises at once and falls slowly, within 15 minutes. The store is read at most once a second, and no more than
        100,000 jobs of a kind are counted.
        """
        own = {handler.policy.queue for handler in self._app._handlers.values()}
        return await scale(self._session.loads, wait, queue, own)

    async def duration(self, task: str, *, quantile: float = 0.5) -> float | None:
        """The seconds that this share of the runs of a task took at most, in the last 7 days; None if unknown."""
        if isinstance(quantile, bool) or not isinstance(quantile, int | float) or not 0 < quantile <= 1:
            raise ConfigError(f"quantile must be more than 0 and at most 1, not {shown(quantile)}")
        return (await running_times(self._session, task)).quantile(quantile)


def _depth(counts: Sequence[Count]) -> int:
    return sum(one.jobs for one in counts if one.status is Status.QUEUED and not one.own)
