"""Jobs claimed ahead of a free slot: in which order they start, and how many are worth claiming."""

from __future__ import annotations

import heapq
import math
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime

from headrace.core.job import Job
from headrace.core.lifecycle.claim import Order, order
from headrace.worker.claim.permits import Permits
from headrace.worker.owned_job import OwnedJob

__all__ = ["MAX_READ_RUNS", "Buffer", "Pace"]

AHEAD_SECONDS = 0.25
MAX_AHEAD_JOBS = 2000
MAX_READ_RUNS = 1000
"""Maximum number of runs, the newest, that the worker reads to learn how long they take: most old ones have yielded."""


class Buffer:
    """Owned jobs that are not started yet; the heartbeat thread may empty it when the loop is blocked."""

    def __init__(self) -> None:
        self._line: deque[OwnedJob] = deque()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._line)

    def add(self, claimed: Sequence[OwnedJob], queue_priorities: Mapping[str, int]) -> None:
        """Add the jobs of one claim, in their order; those that are more urgent go before those buffered already."""

        def rank(owned: OwnedJob) -> Order:
            return order(owned.job, queue_priorities.get(owned.job.queue, 0))

        with self._lock:
            if claimed and self._line and rank(claimed[0]) < rank(self._line[-1]):
                self._line = deque(heapq.merge(self._line, claimed, key=rank))
            else:
                self._line.extend(claimed)

    def pop(self) -> OwnedJob | None:
        """The next job to start."""
        # Without the lock: other threads also take jobs out one by one, and only this thread adds any.
        try:
            return self._line.popleft()
        except IndexError:
            return None

    def empty(self) -> list[OwnedJob]:
        """Take everything out."""
        with self._lock:
            return list(iter(self.pop, None))

    def remove(self, chosen: Callable[[Job], bool]) -> list[OwnedJob]:
        """Take out the jobs of which this is true."""
        return self._take_out(lambda owned: chosen(owned.job))

    def remove_late(self, monotonic: float) -> list[tuple[Permits, OwnedJob]]:
        """Take out those that should have begun by now."""
        late = self._take_out(lambda owned: owned.permits is not None and owned.permits.by < monotonic)
        return [(owned.permits, owned) for owned in late if owned.permits is not None]

    def _take_out(self, chosen: Callable[[OwnedJob], bool]) -> list[OwnedJob]:
        with self._lock:
            found = [owned for owned in self._line if chosen(owned)]
            if found:
                self._line = deque(owned for owned in self._line if not chosen(owned))
        return found

    @property
    def begin_by(self) -> float:
        """When the first of them must have begun (monotonic)."""
        with self._lock:
            owned_jobs = list(self._line)
        return min((owned.permits.by for owned in owned_jobs if owned.permits is not None), default=math.inf)

    def waited(self, now: datetime) -> float:
        """For how many seconds the job that was claimed first has been here; 0 if there is none."""
        with self._lock:
            jobs = [owned.job for owned in self._line]
        # A clock that was set back must not keep them here until it has caught up.
        return abs((now - min((job.assigned_at or job.updated_at for job in jobs), default=now)).total_seconds())


class Pace:
    """How fast this worker starts jobs, learned from how long the recent ones took."""

    def __init__(self, concurrency: int) -> None:
        self._concurrency = concurrency
        self._mean: float | None = None

    def ran(self, seconds: float) -> None:
        """Learn that a job took so many seconds."""
        self._mean = seconds if self._mean is None else self._mean + 0.1 * (seconds - self._mean)

    def ahead(self, busy_since: float | None) -> int:
        """How many jobs to claim beyond the free slots: what can be started within a quarter second.

        ``busy_since``: for how long, on average, the slots have been busy now. It counts as soon as it exceeds what is
        known, so that nothing is hoarded behind jobs that have turned slow.
        """
        if self._mean is None:
            return 0
        seconds = max(self._mean, busy_since or 0.0, 1e-6)
        return min(int(AHEAD_SECONDS * self._concurrency / seconds), MAX_AHEAD_JOBS)
