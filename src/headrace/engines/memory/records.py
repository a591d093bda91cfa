"""Records of a memory store: find, count, history, ledger, verify, usage, position, load."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import islice
from uuid import UUID

from headrace.core.attempt import History
from headrace.core.explain.position import MAX_COUNTED_JOBS, PACE_WINDOW_SECONDS, Position
from headrace.core.job import Job
from headrace.core.lifecycle.claim import order
from headrace.core.lifecycle.decision import expired
from headrace.core.limits.selection import Usage
from headrace.core.limits.settings import Bound
from headrace.core.query import HISTORY, Count, Filter, Ledger, Page, as_seen, cursor_of, matches, seen_status
from headrace.core.stats.failures import FailureGroup, grouped
from headrace.core.stats.load import LOAD_MINUTES, MAX_LOAD_JOBS, Loads, loads_of
from headrace.core.stats.own_tasks import is_own
from headrace.core.stats.verification import Invariant, ledger_book
from headrace.core.status import LIVE, Status
from headrace.engines.memory.job_table import JobTable
from headrace.engines.memory.state import Role
from headrace.engines.memory.verification import verify

__all__ = ["Records"]


class Records(Role):
    """The role ``records`` of one session."""

    async def find(self, filter: Filter, now: datetime, limit: int = 50, cursor: str | None = None) -> Page[Job]:
        below, found = cursor_of(cursor), list[Job]()
        with self._state() as state:
            for job in reversed(state.table.records.values()):
                if (below is None or job.seq < below) and matches(job, filter, now):
                    if len(found) == limit:
                        return Page(tuple(found), str(found[-1].seq) if found else cursor)
                    found.append(as_seen(job, now))
        return Page(tuple(found))

    async def count_matching(self, filter: Filter, now: datetime, most: int | None = None) -> int:
        with self._state() as state:
            found = (job for job in reversed(state.table.records.values()) if matches(job, filter, now))
            return sum(1 for _ in islice(found, most))

    async def failures(
        self, filter: Filter, now: datetime, limit: int = 50, among: int | None = None
    ) -> list[FailureGroup]:
        with self._state() as state:
            return grouped((job for job in state.table.records.values() if matches(job, filter, now)), limit, among)

    async def count(self, now: datetime, *, history: bool = True) -> list[Count]:
        groups: dict[tuple[str, Status, bool], list[Job]] = {}
        with self._state() as state:
            for job in state.table.records.values():
                if not history and job.status in HISTORY:
                    continue
                groups.setdefault((job.queue, seen_status(job, now), is_own(job.task)), []).append(as_seen(job, now))
        return [
            Count(queue, status, len(jobs), min(job.arrived_at for job in jobs) if status in LIVE else None, own=own)
            for (queue, status, own), jobs in sorted(groups.items())
        ]

    async def history(self, id: UUID) -> History:
        with self._state() as state:
            attempts, events = state.table.attempts.get(id, {}), state.table.events.get(id, ())
            return History(tuple(attempts[number] for number in sorted(attempts)), tuple(events))

    async def ledger(self, *, users: bool = False) -> Ledger:
        with self._state() as state:
            table = state.table
            kept, pruned = (_by_kind(counts) for counts in (_lengths(table), table.pruned_as))
            ledger = Ledger.of(table.accepted, len(table.records) - sum(kept), kept, table.pruned, pruned)
            if not users:
                return ledger
            own = Counter(job.status for job in table.records.values() if is_own(job.task))
            own_kept = _by_kind(own)
            return ledger.without(own.total() - sum(own_kept), own_kept, _by_kind(table.own_pruned_as))

    async def verify(self, book: str, now: datetime | None = None) -> Invariant:
        if book == "ledger":
            return ledger_book(await self.ledger())
        with self._state() as state:
            return verify(state, book, now)

    async def usage(self, rates: Sequence[Bound] = ()) -> Usage:
        with self._state() as state:
            return state.usage

    async def position(
        self, job: Job, now: datetime, window: float = PACE_WINDOW_SECONDS, most: int = MAX_COUNTED_JOBS
    ) -> Position:
        with self._state() as state:
            return _position(state.table, job, now, window, most)

    async def load(
        self, now: datetime, minutes: int = LOAD_MINUTES, most: int = MAX_LOAD_JOBS, recent: int = MAX_COUNTED_JOBS
    ) -> Loads:
        with self._state() as state:
            return loads_of(state.table.records.values(), now, minutes)


def _lengths(table: JobTable) -> Mapping[Status, int]:
    return {status: len(index) for status, index in table.ended.items()}


def _by_kind(counts: Mapping[Status, int]) -> tuple[int, int, int]:
    return counts[Status.COMPLETED], counts[Status.FAILED], counts[Status.CANCELLED]


def _position(table: JobTable, job: Job, now: datetime, window: float, most: int) -> Position:
    """Return how many jobs are before this one, and the recent pace of its queue."""
    due = [table.records[id] for id in islice(table.deferred.upto(now), most + 1)]
    looked_at = list(islice(_before(table, as_seen(job, now), due, now), most + 1))
    ahead = [one for one in looked_at if not expired(one, now)][:most]
    since = now - timedelta(seconds=window)
    recent = list(islice(table.recent(since), most + 1))
    if len(recent) > most:
        since = max(since, min(one.finished_at for one in recent if one.finished_at is not None))
    done = [
        one.assigned_at
        for one in recent
        if one.queue == job.queue
        and one.assigned_at is not None
        and one.finished_at is not None
        and one.finished_at > since
    ]
    return Position(
        ahead=len(ahead),
        keyed=sum(one.concurrency_key is not None for one in ahead),
        more=max(len(looked_at), len(due)) > most,
        ended=len(done),
        since=since,
        first_claimed_at=min(done, default=None),
    )


def _before(table: JobTable, job: Job, due: list[Job], now: datetime) -> Iterator[Job]:
    place = order(job, 0)
    for (queue, *_), line in table.lines.items():
        if queue == job.queue:
            for id in line.before(place):
                yield table.records[id]
    for one in due:
        if one.queue == job.queue and order(as_seen(one, now), 0) < place:
            yield one
