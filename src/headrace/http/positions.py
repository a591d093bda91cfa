"""Positions of new jobs: every submit gets one, and submits are not slowed down by it.

All that ask for the same queue at the same moment share one read, which begins after their jobs are stored. When reads
would take too much of the time, positions are counted on from the last read: one further for each job that was
submitted here since, as many nearer as the queue has moved by its pace.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime, timedelta
from math import ceil
from typing import TYPE_CHECKING
from uuid import UUID

import msgspec

from headrace.client.api.positions import places
from headrace.core.explain.position import MAX_COUNTED_JOBS
from headrace.core.job import Job
from headrace.core.query import seen_status
from headrace.core.status import Status
from headrace.core.updates import Allowance, Place
from headrace.errors import EngineError
from headrace.runtime.single_flight import SingleFlight

if TYPE_CHECKING:
    from headrace.app import App

__all__ = ["Positions"]

MAX_READS_PER_SECOND = 20
READ_TIMEOUT_SECONDS = 1.0
"""Maximum seconds that a submit waits for its position."""
MAX_COUNTED_SECONDS = 10.0
"""Maximum age of a read from which positions are counted on."""
_MILLISECONDS_PER_SECOND, _BURST_MILLISECONDS = 20, 500
"""Milliseconds per second, and at once, that may be spent on reading positions: in a long queue each takes long."""
_MAX_QUEUES = 1000
"""Queues whose last read is remembered."""

_UNKNOWN: tuple[None, None] = (None, None)


class Positions:
    """The positions of new jobs, by queue: so many reads a second, and fewer where queues are long."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._queues: dict[str, _QueueReads] = {}
        self._count, self._time = (
            Allowance(MAX_READS_PER_SECOND, MAX_READS_PER_SECOND),
            Allowance(_BURST_MILLISECONDS, _MILLISECONDS_PER_SECOND),
        )

    async def of(self, job: Job, *, new: bool = True) -> tuple[int | None, datetime | None]:
        """Return the position and the estimated start of a job; None where unknown. ``new``: it was submitted just
        now, so that it can be counted on."""
        clock = self._app.host.clock
        if job.held or job.ended or seen_status(job, clock.now()) is not Status.QUEUED:
            return _UNKNOWN
        queue, begun = self._queue(job.queue), clock.monotonic()
        if self._count.left(begun) and self._time.left(begun):
            try:
                async with asyncio.timeout(READ_TIMEOUT_SECONDS):
                    place = await queue.read(job)
                return place.position, place.estimated_start
            except (EngineError, TimeoutError):  # the job is stored, whether its position is known or not
                pass
        return queue.counted_on(job, clock.now()) if new else _UNKNOWN

    def _queue(self, name: str) -> _QueueReads:
        found = self._queues.get(name)
        if found is None:
            while len(self._queues) >= _MAX_QUEUES:
                del self._queues[next(iter(self._queues))]
            found = self._queues[name] = _QueueReads(self)
        return found

    async def measured(self, jobs: Sequence[Job]) -> list[Place | None]:
        """Read the positions of these jobs of one queue, and count what that took."""
        clock = self._app.host.clock
        begun = clock.monotonic()
        try:
            return await self.places(jobs)
        finally:
            self._count.spend(1)
            self._time.spend(ceil(1000 * (clock.monotonic() - begun)))

    async def places(self, jobs: Sequence[Job]) -> list[Place | None]:
        """Read the positions of these jobs of one queue."""
        return await places(self._app.session, jobs, MAX_COUNTED_JOBS, all_of_them=True)

    def now(self) -> datetime:
        """Return the time of the App."""
        return self._app.host.clock.now()


class _LastRead(msgspec.Struct):
    """The hindmost job of one priority in the last read, and what was submitted here since."""

    place: Place
    at: datetime
    since: int = 0
    """Jobs that were submitted since and go before the next one of this priority, that one included."""

    def counted_on(self, now: datetime) -> tuple[int | None, datetime | None]:
        """Return the position and the start of the job that was submitted last."""
        position, start = self.place.position, self.place.estimated_start
        age = (now - self.at).total_seconds()
        if position is None or age > MAX_COUNTED_SECONDS:
            return _UNKNOWN
        if start is None:
            return position + self.since, None
        seconds_per_job = max(0.0, (start - self.at).total_seconds() / position)
        moved = int(age / seconds_per_job) if seconds_per_job else 0
        begins = start + timedelta(seconds=seconds_per_job * self.since)
        return max(1, position + self.since - moved), max(now, begins)


class _QueueReads:
    """The reads of one queue, one at a time: what is asked for while one is under way is part of the next."""

    def __init__(self, positions: Positions) -> None:
        self._positions = positions
        self._asked: list[Job] = []
        self._read = SingleFlight(self._places)
        self._last: dict[int, _LastRead] = {}
        """By priority."""

    async def read(self, job: Job) -> Place:
        """Return the position of the job, by a read that begins after this call."""
        self._asked.append(job)
        return (await self._read()).get(job.id) or Place(None)

    async def _places(self) -> dict[UUID, Place]:
        jobs, self._asked = self._asked, []
        at, found = self._positions.now(), await self._positions.measured(jobs)
        placed = [(job, place) for job, place in zip(jobs, found, strict=True) if place is not None]
        hindmost: dict[int, Place] = {}
        for job, place in placed:
            last = hindmost.get(job.priority)
            if last is None or place.position is None or (last.position is not None and place.position > last.position):
                hindmost[job.priority] = place
        self._last |= {priority: _LastRead(place, at) for priority, place in hindmost.items()}
        return {job.id: place for job, place in placed}

    def counted_on(self, job: Job, now: datetime) -> tuple[int | None, datetime | None]:
        """Return the position of the job by the last read; None where that is too old, or there was none."""
        for priority, last in self._last.items():
            last.since += priority <= job.priority
        own = self._last.get(job.priority)
        return _UNKNOWN if own is None else own.counted_on(now)
