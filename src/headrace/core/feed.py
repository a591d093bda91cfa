"""What a feed gives, and what it remembers of the jobs it gave: a bounded number, however many change."""

from __future__ import annotations

from datetime import datetime
from heapq import heappop, heappush
from typing import Any
from uuid import UUID

import msgspec

from headrace.core.job import Job
from headrace.core.record import Record, plain
from headrace.core.status import DEFERRED

__all__ = ["Allowance", "Changed", "Memory"]


class Changed(msgspec.Struct, Record, frozen=True):
    """Jobs that changed, and how many changes were left out."""

    jobs: tuple[Job, ...]
    """Each as it is now, whatever it went through since it was given last."""
    dropped: int = 0
    """How many changes nobody looked at, of any jobs: there were too many at once."""

    def to_dict(self) -> dict[str, Any]:
        """The change as JSON values, each of its jobs by its own rule."""
        return {"jobs": plain(self.jobs), "dropped": self.dropped}


class Allowance:
    """So many at once, then so many a second; time is an argument."""

    def __init__(self, burst: int, rate: int) -> None:
        self._burst, self._rate = burst, rate
        self._left, self._at = float(burst), 0.0

    def left(self, now: float) -> int:
        """How many there may be now."""
        passed, self._at = max(0.0, now - self._at), now
        self._left = min(self._burst, self._left + passed * self._rate)
        return max(0, int(self._left))

    def spend(self, count: int) -> None:
        """Count so many."""
        self._left -= count


_Mark = tuple[int, datetime, str]


class Memory:
    """How each job stood when it was last given: the newest ``most`` live ones, and as many that have ended."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._live: dict[UUID, _Mark] = {}
        self._ended: dict[UUID, _Mark] = {}
        self._due: list[tuple[datetime, UUID]] = []
        """A heap of moments at which jobs fall due; also of some that have moved on since."""

    def __contains__(self, id: UUID) -> bool:
        """Whether it is remembered."""
        return id in self._live or id in self._ended

    @property
    def live(self) -> list[UUID]:
        """The jobs that may still change by themselves."""
        return list(self._live)

    def note(self, seen: Job) -> bool:
        """Remember a job as it is seen now; whether that is news."""
        mark = (seen.rev, seen.updated_at, seen.status.value)
        if self._live.pop(seen.id, None) == mark or self._ended.pop(seen.id, None) == mark:
            (self._ended if seen.ended else self._live)[seen.id] = mark
            return False
        kept = self._ended if seen.ended else self._live
        kept[seen.id] = mark
        if len(kept) > self._most:
            del kept[next(iter(kept))]
        if seen.status in DEFERRED:
            heappush(self._due, (seen.available_at, seen.id))
            if len(self._due) > 2 * self._most:
                self._due = [one for one in self._due if one[1] in self._live][: self._most]
                self._due.sort()
        return True

    def forget(self, id: UUID) -> None:
        """Remember it no longer."""
        self._live.pop(id, None)
        self._ended.pop(id, None)

    def fallen_due(self, now: datetime) -> list[UUID]:
        """Those whose moment has come since this was last asked."""
        found: list[UUID] = []
        while self._due and self._due[0][0] <= now:
            _, id = heappop(self._due)
            if id in self._live:
                found.append(id)
        return found

    @property
    def next_due(self) -> datetime | None:
        """When the next one falls due."""
        return self._due[0][0] if self._due else None
