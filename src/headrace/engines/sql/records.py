"""The shared part of the role ``records`` for all SQL engines."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec

from headrace.core.defaults import DELIVERY_RETENTION
from headrace.core.explain.position import BY_WORK, Position
from headrace.core.job import Job
from headrace.core.lifecycle import suspects
from headrace.core.limits.selection import Usage
from headrace.core.limits.settings import Bound
from headrace.core.matching import customers
from headrace.core.query import Count, Filter, Ledger, Page, as_seen
from headrace.core.stats.failures import FailureGroup
from headrace.core.stats.load import Load, Loads, merged_loads
from headrace.core.stats.verification import Invariant, ledger_book
from headrace.core.status import LIVE, Status
from headrace.engine import Check
from headrace.engines.sql.encoding import encode, micros, moment, usage_of
from headrace.engines.sql.search.finder import Finder
from headrace.engines.sql.templates import Fetch
from headrace.engines.sql.verification import book_of, settings_book

__all__ = [
    "SqlRecords",
    "ledger_check",
    "ledger_of",
    "load_asked",
    "loads_in",
    "position_asked",
    "position_of",
]


def _told_moment(at: datetime) -> str:
    """Return a moment as it is stored in the record of a job's messages."""
    text: str = msgspec.to_builtins(at)
    return text


class SqlRecords:
    """Part of the role ``records``: searches by a filter, count, ledger, invariants and usage."""

    def __init__(self, read: Fetch, search: Fetch, finder: Finder) -> None:
        """``search``: for statements that may read many jobs."""
        self._read, self._search, self._finder = read, search, finder

    async def find(self, filter: Filter, now: datetime, limit: int = 50, cursor: str | None = None) -> Page[Job]:
        return await self._finder.find(filter, now, limit, cursor)

    async def count_matching(self, filter: Filter, now: datetime, most: int | None = None) -> int:
        return await self._finder.count(filter, now, most)

    async def failures(
        self, filter: Filter, now: datetime, limit: int = 50, among: int | None = None
    ) -> list[FailureGroup]:
        return await self._finder.failures(filter, now, limit, among)

    async def count(self, now: datetime, *, history: bool = True) -> list[Count]:
        rows = await (self._search("count", micros(now)) if history else self._standing(micros(now)))
        counts = [
            Count(queue, Status(status), jobs, moment(at) if status in LIVE and at is not None else None, own=bool(own))
            for queue, status, jobs, at, own in rows
        ]
        return sorted(counts, key=lambda count: (count.queue, count.status, count.own))

    async def _standing(self, at: int) -> list[Any]:
        return await self._search("count_standing", at, Status.FAILED.value)

    async def ledger(self, *, users: bool = False) -> Ledger:
        return ledger_of(tuple((await self._search("ledger"))[0]), users=users)

    async def verify(self, book: str, now: datetime | None = None) -> Invariant:
        if book == "ledger":
            return ledger_book(await self.ledger())
        if book == "settings":
            return settings_book(await self._search("verify_settings"))
        if book == "messages":
            if now is None:
                return Invariant.of(book, 0)
            oldest = now - DELIVERY_RETENTION
            return book_of(book, await self._compare(book, micros(oldest), _told_moment(oldest)))
        return book_of(book, await self._compare(book))

    async def _compare(self, book: str, *args: Any) -> Sequence[Any]:
        """Return the result of the statement of an invariant, ``counting`` it."""
        raise NotImplementedError

    async def usage(self, rates: Sequence[Bound] = ()) -> Usage:
        held, names = await self._read("usage"), [encode(bound) for bound in rates]
        return usage_of(held, await self._read("spent", names) if names else [])


Asked = tuple[str, int, int, int, int, int, list[str], int]
"""Queue; rank, arrival and order number of the job; the moment; how many to read; statuses, and from when on."""


def position_asked(job: Job, now: datetime, window: float, most: int) -> Asked:
    """Return the parameters of the statement."""
    arrived_at = micros(as_seen(job, now).arrived_at)
    since = micros(now - timedelta(seconds=window))
    statuses = [status.value for status in BY_WORK]
    return job.queue, -job.priority, arrived_at, job.seq, micros(now), most, statuses, since


def position_of(ahead: int, keyed: int, more: int, ended: int, since: int, first_claimed_at: int | None) -> Position:
    """Return the position in the result of the statement."""
    return Position(
        ahead=ahead,
        keyed=keyed,
        more=bool(more),
        ended=ended,
        since=moment(since),
        first_claimed_at=None if first_claimed_at is None else moment(first_claimed_at),
    )


_OWN = (suspects.REQUIREMENT, customers.REQUIREMENT)
"""What profiles of subqueues require beside what was submitted."""


def load_asked(now: datetime, minutes: int, most: int, recent: int) -> tuple[int, int, int, list[str], int]:
    """Return the parameters of the statement."""
    since = micros(now - timedelta(minutes=minutes))
    return micros(now), most, recent, [status.value for status in BY_WORK], since


def loads_in(rows: Sequence[Any], since: int) -> Loads:
    """Return the loads in the result of the statement; ``since``: from when on ended jobs were to be counted."""
    found = [
        Load(
            queue=queue,
            task=task,
            requires=_submitted(requires),
            queued=queued,
            more=bool(more),
            oldest=None if oldest is None else moment(oldest),
            held=held,
            ended={ago: ended} if ended else {},
        )
        for queue, task, requires, queued, more, oldest, held, ended, ago, _ in rows
    ]
    return Loads(loads=merged_loads(found), since=moment(rows[0][-1] if rows else since))


def _submitted(requires: str) -> dict[str, Any]:
    if requires == "{}":
        return {}
    return {name: need for name, need in msgspec.json.decode(requires).items() if name not in _OWN}


def ledger_of(row: tuple[int, ...], *, users: bool = False) -> Ledger:
    """Return the ledger in the result of the statement; ``users``: without headrace's own jobs."""
    accepted, live, c, f, x, pruned, gone_c, gone_f, gone_x, own_live, *own = row
    ledger = Ledger.of(accepted, live, (c, f, x), pruned, (gone_c, gone_f, gone_x))
    return ledger.without(own_live, (own[0], own[1], own[2]), (own[3], own[4], own[5])) if users else ledger


def ledger_check(ledger: Ledger) -> Check:
    """Return whether all jobs that were ever submitted are accounted for."""
    if ledger.unaccounted:
        return Check("ledger", "fail", f"{ledger.unaccounted} jobs are unaccounted for: {ledger}", "report this")
    return Check("ledger", "ok", f"{ledger.accepted} submitted, all accounted for")
