"""Jobs claimed ahead of a free slot, in claim order."""

from __future__ import annotations

import heapq
import math
import threading
from collections import deque
from collections.abc import Callable, Container, Sequence
from uuid import UUID

from headrace.core.claim import Order
from headrace.worker.lead import Permits
from headrace.worker.owned_job import OwnedJob

__all__ = ["Buffer"]


class Buffer:
    """Owned jobs that are not started yet; the heartbeat thread may empty it when the loop is blocked."""

    def __init__(self) -> None:
        self._line: deque[OwnedJob] = deque()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._line)

    def add(self, claimed: Sequence[OwnedJob], order: Callable[[OwnedJob], Order]) -> None:
        """Add the jobs of one claim, in their order; those that are more urgent go before those buffered already."""
        with self._lock:
            if claimed and self._line and order(claimed[0]) < order(self._line[-1]):
                self._line = deque(heapq.merge(self._line, claimed, key=order))
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

    def remove(self, id: UUID) -> list[OwnedJob]:
        """Take one job out, if it is in the buffer."""
        return self._take_out(lambda owned: owned.job.id == id)

    def remove_of(self, tasks: Container[str]) -> list[OwnedJob]:
        """Take the jobs of these tasks out."""
        return self._take_out(lambda owned: owned.job.spec.task in tasks)

    def remove_late(self, monotonic: float) -> list[tuple[Permits, OwnedJob]]:
        """Take out those that should have begun by now."""
        late = self._take_out(lambda owned: owned.permits is not None and owned.permits.by < monotonic)
        return [(owned.permits, owned) for owned in late if owned.permits is not None]

    @property
    def begin_by(self) -> float:
        """When the first of them must have begun (monotonic)."""
        with self._lock:
            owned_jobs = list(self._line)
        return min((owned.permits.by for owned in owned_jobs if owned.permits is not None), default=math.inf)

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
