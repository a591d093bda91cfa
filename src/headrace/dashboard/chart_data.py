"""The data of charts: sums by task, queue and time, read once for all charts of a span.

Rows for minutes are many: with twenty tasks, seven thousand in six hours. So hours that are over are summed once and
kept for a while, and a chart of days reads only what is new since.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from headrace.core.stats.charts import By, Charts, charts_of
from headrace.core.stats.own_tasks import is_own
from headrace.core.stats.rollup import OTHER, Rollup, Step, begin_of, merged, parts_of

if TYPE_CHECKING:
    from headrace.app import App

__all__ = ["Past", "Span"]

T = TypeVar("T")

SETTLED_AFTER = timedelta(minutes=10)
"""An hour is kept from so long after its end on: by then workers have written what they finished in it."""
REFRESH_SECONDS = 600.0
"""Seconds after which everything is read anew: a worker that could not reach the store writes later than that."""


class Span:
    """The sums of one span, and drawings of them: all viewers see the same."""

    def __init__(self, rows: list[Rollup], since: datetime, until: datetime, step: Step) -> None:
        self._rows, self._since, self._until, self._step = rows, since, until, step
        self._made: dict[tuple[By, str | None, str | None, bool, bool], Charts] = {}
        self._drawn: dict[Hashable, Any] = {}

    def charts(
        self,
        by: By = "all",
        *,
        task: str | None = None,
        queue: str | None = None,
        times: bool = True,
        own: bool = False,
    ) -> Charts:
        """Return the charts of this task or queue, or of all; ``times``: with durations; ``own``: with headrace's own
        tasks, which are left out unless ``task`` names one."""
        own = own or (task is not None and is_own(task))
        name = by, task, queue, times, own
        found = self._made.get(name)
        if found is None:
            rows = (row for row in self._rows if task in (None, row.task) and queue in (None, row.queue))
            found = self._made[name] = charts_of(rows, self._since, self._until, self._step, by, times=times, own=own)
        return found

    @property
    def queues(self) -> frozenset[str]:
        """The queues in which jobs of the user's ended."""
        return frozenset(row.queue for row in self._rows if not is_own(row.task) and row.queue != OTHER)

    @property
    def began_at(self) -> datetime | None:
        """When the first of these attempts ended, to the step."""
        return min((row.at for row in self._rows if not is_own(row.task)), default=None)

    def drawn(self, name: Hashable, draw: Callable[[], T]) -> T:
        """Return the drawing of this name, made once."""
        if name not in self._drawn:
            self._drawn[name] = draw()
        made: T = self._drawn[name]
        return made


class Past:
    """Reads sums, and keeps those of hours that are over."""

    def __init__(self, app: App) -> None:
        self._app, self._lock = app, asyncio.Lock()
        self._hours: list[Rollup] = []
        self._since: datetime | None = None
        self._until: datetime | None = None
        """They are kept from ``_since`` up to here."""
        self._read_at = 0.0

    async def span(self, seconds: float, step: Step) -> Span:
        """Return the sums of the last seconds, for charts of this step."""
        now = self._app.host.clock.now()
        since = begin_of(now - timedelta(seconds=seconds), step)
        rows = await self._app.stats.rollups(since, now) if step is Step.MINUTE else await self._hourly(since, now)
        return Span(rows, since, now, step)

    async def _hourly(self, since: datetime, now: datetime) -> list[Rollup]:
        """Return rows for hours or longer: those that are kept, and new ones."""
        edge = begin_of(now - SETTLED_AFTER, Step.HOUR)
        async with self._lock:
            until, age = self._until, self._app.host.clock.monotonic() - self._read_at
            if until is None or self._since is None or since < self._since or until > edge or age > REFRESH_SECONDS:
                # Old hours are merged into days: a day must not be read in two parts.
                self._since = self._until = until = begin_of(since, Step.DAY)
                self._hours, self._read_at = [], self._app.host.clock.monotonic()
            for low, high in parts_of(until, edge):
                self._hours += _hours(await self._app.stats.rollups(low, high), low)
                self._until = high
            return [*self._hours, *_hours(await self._app.stats.rollups(edge, now), edge)]


def _hours(rows: list[Rollup], since: datetime) -> list[Rollup]:
    """Return the rows that began since then, with minutes summed to hours."""
    hours = {at: begin_of(at, Step.HOUR) for at in {row.at for row in rows if row.step is Step.MINUTE}}
    return merged(
        row if row.step is not Step.MINUTE else Rollup(Step.HOUR, hours[row.at], row.task, row.queue, row.totals)
        for row in rows
        if row.at >= since
    )
