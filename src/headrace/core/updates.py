"""Updates of one job with the token to resume from, and changes of many jobs in a feed.

A feed remembers a bounded number of the jobs it sent, however many change.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from heapq import heappop, heappush
from math import inf
from typing import Any, Self
from uuid import UUID

import msgspec

from headrace.core.attempt import History
from headrace.core.codec.record import Record, plain
from headrace.core.entry import BEGIN, Cursor, Entry
from headrace.core.job import Job
from headrace.core.status import DEFERRED

__all__ = ["Allowance", "Changed", "Memory", "Place", "ResumeToken", "Update", "happened_since"]


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_WRITTEN = re.compile(r"(\d{1,18})-(\d{1,16})-(\d{1,9})\.(\d{1,18})-(\d{1,9})\.(\d{1,18})", re.ASCII)


class ResumeToken(msgspec.Struct, frozen=True):
    """How much of a job a reader has received."""

    rev: int
    at: datetime
    """When the job was last changed, as sent."""
    log: Cursor = BEGIN
    """The last line of its log."""
    item: Cursor = BEGIN
    """The last item of its stream."""

    def __str__(self) -> str:
        """Return it as an opaque text for programs to keep and send back."""
        (log, line), (stream, item) = self.log, self.item
        return f"{self.rev}-{(self.at - _EPOCH) // _MICROSECOND}-{log}.{line + 1}-{stream}.{item + 1}"

    @classmethod
    def read(cls, text: str) -> Self | None:
        """Return the token of a text; None: it is none."""
        found = _WRITTEN.fullmatch(text)
        if found is None:
            return None
        rev, at, log, line, stream, item = map(int, found.groups())
        return cls(rev, _EPOCH + at * _MICROSECOND, (log, line - 1), (stream, item - 1))


class Place(msgspec.Struct, frozen=True):
    """The position of a queued job in its queue."""

    position: int | None
    """The first is 1; None: there are too many before it to count."""
    estimated_start: datetime | None = None
    """None: it cannot be estimated."""
    approximate: bool = False
    """Whether the position was counted on from others, or keys take turns, so that it may be another."""

    def like(self, other: Place) -> bool:
        """Return whether it is the same position, whatever is estimated from it."""
        known = self.estimated_start is None, other.estimated_start is None
        return self.position == other.position and known[0] == known[1]


class Update(msgspec.Struct, frozen=True, kw_only=True):
    """What a follower of a job is sent at once."""

    job: Job
    """As it is now."""
    before: Job | None
    """As it was last sent; the same as ``job``: unchanged. None: this is the first update."""
    mark: ResumeToken
    """The token after this update, entries included."""
    history: History = History()
    """Its attempts and the actions on it since the last update, where updates may have skipped some; with the first
    update, since the token that the reader sent."""
    logs: tuple[Entry, ...] = ()
    items: tuple[Entry, ...] = ()
    place: Place | None = None
    """Its position, if that has changed."""
    over: bool = False
    """Whether the job has ended, and this is the last update."""


def happened_since(history: History, mark: ResumeToken) -> History:
    """Return what happened after a token.

    By time: what happened within the same microsecond as the last sent change counts as sent.
    """
    return History(
        tuple(one for one in history.attempts if one.finished_at > mark.at),
        tuple(one for one in history.events if one.at > mark.at),
    )


class Changed(msgspec.Struct, Record, frozen=True):
    """Jobs that changed, and how many changes were left out."""

    jobs: tuple[Job, ...]
    """Each as it is now, whatever changed since it was last sent."""
    dropped: int = 0
    """How many changes, of any jobs, were not read: there were too many at once."""

    def to_dict(self) -> dict[str, Any]:
        """Return the change as JSON values, each of its jobs by its own rule."""
        return {"jobs": plain(self.jobs), "dropped": self.dropped}


class Allowance:
    """A rate limit: so many at once, then so many a second; time is an argument. ``max_debt``: no more is owed, so that
    one large expense is over in time."""

    def __init__(self, burst: int, rate: int, max_debt: float = inf) -> None:
        self._burst, self._rate, self._max_debt = burst, rate, max_debt
        self._left, self._at = float(burst), 0.0

    def left(self, now: float) -> int:
        """Return how many there may be now."""
        passed, self._at = max(0.0, now - self._at), now
        self._left = min(self._burst, self._left + passed * self._rate)
        return max(0, int(self._left))

    def spend(self, count: int) -> None:
        """Count so many."""
        self._left = max(self._left - count, -self._max_debt)


_Mark = tuple[int, datetime, str]


class Memory:
    """The state of each job when it was last sent: the newest ``most`` live ones, and as many ended ones."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._live: dict[UUID, _Mark] = {}
        self._ended: dict[UUID, _Mark] = {}
        self._due: list[tuple[datetime, UUID]] = []
        """A heap of moments at which jobs fall due; some of the jobs have changed since."""

    def __contains__(self, id: UUID) -> bool:
        """Return whether it is remembered."""
        return id in self._live or id in self._ended

    @property
    def live(self) -> list[UUID]:
        """Return the jobs that may still change by themselves."""
        return list(self._live)

    def note(self, seen: Job) -> bool:
        """Remember a job as it is now; return whether it has changed."""
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
        """Forget it."""
        self._live.pop(id, None)
        self._ended.pop(id, None)

    def fallen_due(self, now: datetime) -> list[UUID]:
        """Return those that fell due since the last call."""
        found: list[UUID] = []
        while self._due and self._due[0][0] <= now:
            _, id = heappop(self._due)
            if id in self._live:
                found.append(id)
        return found

    @property
    def next_due(self) -> datetime | None:
        """Return when the next one falls due."""
        return self._due[0][0] if self._due else None
