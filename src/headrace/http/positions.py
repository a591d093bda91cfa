"""Positions of new jobs: every submit gets one, and submits are not slowed down by it.

All that ask for the same queue at the same moment share one read, which begins after their jobs are stored. While a
read is under way, and when reads would take too much of the time, positions are counted on from the last read: one
further for each job that was submitted here since, as many nearer as the queue has moved by its pace. Where there is
no read to count on from, a submit has one of its own.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from datetime import datetime, timedelta
from math import ceil
from typing import TYPE_CHECKING

import msgspec

from headrace.client.api.positions import places
from headrace.core.explain.position import MAX_COUNTED_JOBS
from headrace.core.job import Job
from headrace.core.query import seen_status
from headrace.core.status import Status
from headrace.core.updates import Allowance, Place
from headrace.errors import HeadraceError

if TYPE_CHECKING:
    from headrace.app import App

__all__ = ["Positions"]

_log = logging.getLogger("headrace.hub")

MAX_READS_PER_SECOND = 20
READ_TIMEOUT_SECONDS = 1.0
"""Maximum seconds of a read; a submit waits for one, and for what is left of the one before."""
MAX_COUNTED_SECONDS = 60.0
"""Age of a read from which on positions are counted on only if there is no time for another."""
MAX_FIRST_READS, FIRST_READS_PER_SECOND = 100, 25
"""Further reads, at once and per second, for jobs that cannot be counted on: of a queue or priority that was not read
in the last minute, and jobs that existed before."""
_MILLISECONDS_PER_SECOND, _BURST_MILLISECONDS = 10, 100
"""Milliseconds per second, and at once, that may be spent on reading positions: in a long queue each takes long."""
_MAX_QUEUES = 1000
"""Queues whose last read is remembered."""

_UNKNOWN = Place(None)


class Positions:
    """The positions of new jobs, by queue: so many reads a second, and fewer where queues are long.

    ``required``: a job that cannot be counted on is read though reads have taken their time.
    """

    def __init__(self, app: App, *, required: bool = True) -> None:
        self._app, self._required = app, required
        self._queues: dict[str, _QueueReads] = {}
        self._count, self._time = (
            Allowance(MAX_READS_PER_SECOND, MAX_READS_PER_SECOND, MAX_READS_PER_SECOND),
            Allowance(_BURST_MILLISECONDS, _MILLISECONDS_PER_SECOND, _BURST_MILLISECONDS),
        )
        self._first = Allowance(MAX_FIRST_READS, FIRST_READS_PER_SECOND, MAX_FIRST_READS)

    async def of(self, job: Job, *, new: bool = True) -> Place:
        """Return the position and the estimated start of a job; None where unknown. ``new``: it was submitted just
        now, so that it can be counted on; such a position is marked as approximate."""
        now = self.now()
        if job.held or job.ended or seen_status(job, now) is not Status.QUEUED:
            return _UNKNOWN
        queue = self._queues.get(job.queue) or self._add(job.queue)
        counted, recent = queue.counted_on(job.priority, now) if new else (None, False)
        if counted is not None and recent and (queue.is_reading or not self._may_read()):
            return counted
        if not queue.is_waiting and not self._may_read() and not self._may_read_first():
            return counted or _UNKNOWN
        return await queue.read(job, new=new) or counted or _UNKNOWN

    def _add(self, name: str) -> _QueueReads:
        while len(self._queues) >= _MAX_QUEUES:
            del self._queues[next(iter(self._queues))]
        added = self._queues[name] = _QueueReads(self)
        return added

    def _may_read(self) -> bool:
        """Whether there is time for a read."""
        now = self._app.host.clock.monotonic()
        return bool(self._count.left(now) and self._time.left(now))

    def _may_read_first(self) -> bool:
        """Whether there may be a read that there is no time for, and count it."""
        if not self._required or not self._first.left(self._app.host.clock.monotonic()):
            return False
        self._first.spend(1)
        return True

    async def read(self, jobs: Sequence[Job]) -> list[Place | None]:
        """Read the positions of these jobs of one queue, and count what that took; None: unknown."""
        clock = self._app.host.clock
        begun = clock.monotonic()
        try:
            async with asyncio.timeout(READ_TIMEOUT_SECONDS):
                return await self.places(jobs)
        except (HeadraceError, TimeoutError):  # the jobs are stored, whether their positions are known or not
            self._first.spend(MAX_FIRST_READS)  # for a few seconds, submits do not wait for a store in trouble
            return [None] * len(jobs)
        except Exception:
            _log.exception("cannot read positions")
            return [None] * len(jobs)
        finally:
            self._count.spend(1)
            self._time.spend(ceil(1000 * (clock.monotonic() - begun)))

    async def places(self, jobs: Sequence[Job]) -> list[Place | None]:
        """Read the positions of these jobs of one queue."""
        return await places(self._app.session, jobs, MAX_COUNTED_JOBS, all_of_them=True)

    def now(self) -> datetime:
        """Return the time of the App."""
        return self._app.host.clock.now()


class _LastRead(msgspec.Struct, frozen=True):
    """The hindmost job of one priority in the last read."""

    place: Place
    at: datetime
    asked: dict[int, int]
    """How many jobs of each priority had been submitted here when it began."""

    def counted_on(self, since: int, now: datetime) -> Place:
        """Return the position and the start of a job with so many others since, itself included."""
        position, start = self.place.position, self.place.estimated_start
        age = (now - self.at).total_seconds()
        if position is None or start is None:
            return _UNKNOWN if position is None else Place(position + since, approximate=True)
        seconds_per_job = max(0.0, (start - self.at).total_seconds() / position)
        moved = int(age / seconds_per_job) if seconds_per_job else 0
        begins = start + timedelta(seconds=seconds_per_job * since)
        return Place(max(1, position + since - moved), max(now, begins), approximate=True)


class _QueueReads:
    """The reads of one queue, one at a time: what is asked for while one is under way is part of the next."""

    def __init__(self, positions: Positions) -> None:
        self._positions = positions
        self._waiting: list[tuple[Job, bool, asyncio.Future[Place | None]]] = []
        """The jobs of the next read, whether each is new, and what its submit waits for."""
        self._task: asyncio.Task[None] | None = None
        self._reading = False
        self._asked: dict[int, int] = {}
        """How many jobs of each priority were submitted here."""
        self._last: dict[int, _LastRead] = {}
        """By priority."""

    @property
    def is_reading(self) -> bool:
        """Whether a read is under way, which may have begun before a job was stored that comes now."""
        return self._reading

    @property
    def is_waiting(self) -> bool:
        """Whether a read is about to begin, which can be shared."""
        return bool(self._waiting)

    def counted_on(self, priority: int, now: datetime) -> tuple[Place | None, bool]:
        """Count one more job; return its position by the last read, and whether that is recent; None: there is none."""
        self._asked[priority] = self._asked.get(priority, 0) + 1
        last = self._last.get(priority)
        if last is None:
            return None, False
        since = sum(count - last.asked.get(one, 0) for one, count in self._asked.items() if one >= priority)
        return last.counted_on(since, now), (now - last.at).total_seconds() <= MAX_COUNTED_SECONDS

    async def read(self, job: Job, *, new: bool) -> Place | None:
        """Return the position of the job, by a read that begins after this call; None: unknown."""
        future: asyncio.Future[Place | None] = asyncio.get_running_loop().create_future()
        self._waiting.append((job, new, future))
        if self._task is None:
            self._task = asyncio.create_task(self._read_all(), name="headrace-positions")
        return await future

    async def _read_all(self) -> None:
        try:
            while self._waiting:
                waiting, self._waiting = self._waiting, []
                found: list[Place | None] = [None] * len(waiting)
                self._reading = True
                try:
                    found = await self._read([job for job, *_ in waiting], [new for _, new, _ in waiting])
                finally:
                    for (*_, future), place in zip(waiting, found, strict=True):
                        if not future.done():  # its client may be gone
                            future.set_result(place)
        finally:
            left, self._waiting = self._waiting, []
            self._task, self._reading = None, False
            for *_, future in left:  # after a cancel: their jobs are stored
                if not future.done():
                    future.set_result(None)

    async def _read(self, jobs: list[Job], new: list[bool]) -> list[Place | None]:
        at, asked = self._positions.now(), self._asked.copy()
        found = await self._positions.read(jobs)
        hindmost: dict[int, Place] = {}
        for job, counts, place in zip(jobs, new, found, strict=True):
            last = hindmost.get(job.priority)
            if counts and place is not None and (last is None or _is_behind(place, last)):
                hindmost[job.priority] = place
        self._last |= {priority: _LastRead(place, at, asked) for priority, place in hindmost.items()}
        return found


def _is_behind(place: Place, other: Place) -> bool:
    return place.position is None or (other.position is not None and place.position > other.position)
