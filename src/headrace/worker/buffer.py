"""Jobs claimed ahead of a free slot, in claim order, and how many of them make sense."""

from __future__ import annotations

import heapq
import threading
from collections import deque
from collections.abc import Callable, Container, Sequence
from uuid import UUID

from headrace.core.claim import Order
from headrace.worker.owned_job import OwnedJob

__all__ = ["LOOKED_AT", "Buffer", "Pace"]

AHEAD_SECONDS = 0.25
AHEAD_MOST = 2000
LOOKED_AT = 1000
"""How many runs, the newest, are looked at to learn how long they take: of thousands most have yielded their slots."""


class Buffer:
    """Owned jobs that are not started yet; the heartbeat thread may empty it when the loop is blocked."""

    def __init__(self) -> None:
        self._line: deque[OwnedJob] = deque()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._line)

    def add(self, claimed: Sequence[OwnedJob], order: Callable[[OwnedJob], Order]) -> None:
        """Add what one claim brought, in its order; what is more urgent than what is buffered goes before it."""
        with self._lock:
            if claimed and self._line and order(claimed[0]) < order(self._line[-1]):
                self._line = deque(heapq.merge(self._line, claimed, key=order))
            else:
                self._line.extend(claimed)

    def pop(self) -> OwnedJob | None:
        """The next job to start."""
        # Without the lock: whoever else takes out does it one by one as well, and only this thread puts in.
        try:
            return self._line.popleft()
        except IndexError:
            return None

    def empty(self) -> list[OwnedJob]:
        """Take everything out."""
        with self._lock:
            return list(iter(self.pop, None))

    def remove(self, id: UUID) -> list[OwnedJob]:
        """Take one job out, if it is here."""
        return self._take_out(lambda owned: owned.job.id == id)

    def remove_of(self, tasks: Container[str]) -> list[OwnedJob]:
        """Take the jobs of these tasks out."""
        return self._take_out(lambda owned: owned.job.spec.task in tasks)

    def _take_out(self, chosen: Callable[[OwnedJob], bool]) -> list[OwnedJob]:
        with self._lock:
            found = [owned for owned in self._line if chosen(owned)]
            if found:
                self._line = deque(owned for owned in self._line if not chosen(owned))
        return found

    def oldest(self) -> OwnedJob | None:
        """The one that was claimed first, if any."""
        with self._lock:
            owned_jobs = list(self._line)
        return min(owned_jobs, key=lambda owned: owned.job.assigned_at or owned.job.updated_at, default=None)


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
        return min(int(AHEAD_SECONDS * self._concurrency / seconds), AHEAD_MOST)
