"""When a client should request a job again: by its position in the queue, and by how long its task takes."""

from __future__ import annotations

import asyncio
from math import ceil
from typing import TYPE_CHECKING

from headrace.core.job import Job
from headrace.core.status import HELD, Status
from headrace.errors import EngineError
from headrace.http.positions import Positions

if TYPE_CHECKING:
    from headrace.app import App

__all__ = ["Estimates"]

MIN_RETRY_AFTER_SECONDS, MAX_RETRY_AFTER_SECONDS = 1, 300
"""Minimum and maximum seconds."""
DURATION_CACHE_SECONDS, UNKNOWN_CACHE_SECONDS = 30.0, 1.0
"""Seconds for which the duration of a task is cached; and that it is unknown."""
POSITION_CACHE_SECONDS = 0.25
"""Seconds for which new jobs of one kind get the same estimate: they are behind one another."""
ESTIMATE_TIMEOUT_SECONDS = 0.25
"""Seconds that a response waits for an estimate."""
_MAX_KINDS = 1000


class Estimates:
    """Estimates of an App; each is cheap, and left out where it would delay a response."""

    def __init__(self, app: App) -> None:
        self._app, self._positions = app, Positions(app, required=False)
        self._takes: dict[str, tuple[float, float | None]] = {}
        """By task: until when it is cached, and the median of the seconds that it takes."""
        self._new: dict[tuple[str, int, str], tuple[float, int]] = {}
        """By queue, priority and task: until when the estimate for new jobs is cached, and the estimate."""

    async def after_submit(self, job: Job) -> int:
        """Return ``retry_after`` of a job that was submitted just now."""
        if job.status is not Status.QUEUED:
            return await self.retry_after(job)
        kind, now = (job.queue, job.priority, job.task), self._app.host.clock.monotonic()
        until, seconds = self._new.get(kind, (0.0, 0))
        if now >= until:
            seconds = await self.retry_after(job, new=True)
            if len(self._new) >= _MAX_KINDS:
                self._new.clear()
            self._new[kind] = now + POSITION_CACHE_SECONDS, seconds
        return seconds

    async def retry_after(self, job: Job, *, new: bool = False) -> int:
        """Return after how many seconds the job may have ended; ``new``: it was submitted just now."""
        if job.ended:
            return 0
        now, takes = self._app.host.clock.now(), await self._processing(job.task)
        begins = now
        if job.status in (Status.SCHEDULED, Status.RETRYING):
            begins = max(now, job.available_at)
        elif job.status in HELD:
            begins = job.started_at or now
        else:
            begins = (await self._positions.of(job, new=new)).estimated_start or now
        left = (begins - now).total_seconds() + (takes or 0.0)
        return min(max(ceil(left), MIN_RETRY_AFTER_SECONDS), MAX_RETRY_AFTER_SECONDS)

    async def _processing(self, task: str) -> float | None:
        now = self._app.host.clock.monotonic()
        until, takes = self._takes.get(task, (0.0, None))
        if now < until:
            return takes
        self._takes[task] = now + DURATION_CACHE_SECONDS, takes  # one call reads, concurrent ones use the cached value
        try:
            async with asyncio.timeout(ESTIMATE_TIMEOUT_SECONDS):
                takes = await self._app.stats.duration(task)
        except (EngineError, TimeoutError):
            return takes
        self._takes[task] = now + (UNKNOWN_CACHE_SECONDS if takes is None else DURATION_CACHE_SECONDS), takes
        return takes
