"""Claims with limits.

One transaction of the writing thread reads what is queued and what is in use, lets the core select, and writes the
result.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any
from uuid import UUID

import apsw

from headrace.core.defaults import Rules
from headrace.core.lifecycle.claim import ClaimRequest, Grant
from headrace.core.limits.selection import Dealt, QueuedEntry, Usage, refusal, select_jobs, wanted
from headrace.core.limits.settings import Bound, Group, Limits
from headrace.engines.limits_cache import LimitsCache
from headrace.engines.sql.encoding import encode, micros, rows_of_spent, usage_of
from headrace.engines.sqlite.store.connection import ask as statement

__all__ = ["MAX_PROMOTED_JOBS", "Limiting"]

MAX_PROMOTED_JOBS = 10_000
"""How many due jobs one statement queues."""
_KEYS_FACTOR = 8
"""By what factor more keys are read, if those that were read were not enough."""


class Limiting:
    """The limits as one session knows them."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._limits_cache = LimitsCache()
        self._bounded: dict[tuple[int, int], bool] = {}
        """Whether any subqueue of a request is limited, by the number of the request and the rev of its subqueues."""

    @property
    def rev(self) -> int:
        """The rev of the settings that the limits were read from."""
        return self._limits_cache.rev

    def of(
        self, connection: apsw.Connection, ask: ClaimRequest, number: int, subqueues_rev: int, now: int
    ) -> Limits | None:
        """Return the limits, if one may matter to this request, or if jobs with keys are queued or due; otherwise None.

        :raises ConfigError: the request selects customers in queues that are not set so
        """
        rev: int = connection.execute("SELECT settings_rev FROM books").get
        if rev != self._limits_cache.rev:
            rows: list[Any] = connection.execute("SELECT key, value FROM settings").fetchall()
            self._limits_cache.read(rev, rows)
            self._bounded = {}
        limits = self._limits_cache.limits
        if ask.customers is not None:
            if (why := refusal(ask, limits)) is not None:
                raise why
            return limits
        bounded = self._bounded.get((number, subqueues_rev))
        if bounded is None:
            subqueues: list[Any] = connection.execute(statement("served"), (number,)).fetchall()
            bounded = any(limits.bounded(queue, task) for _, queue, task in subqueues)
            self._bounded[number, subqueues_rev] = bounded
        if bounded or connection.execute(statement("keyed"), (now, MAX_PROMOTED_JOBS)).get:
            return limits
        return None

    def claim(
        self, connection: apsw.Connection, number: int, ask: ClaimRequest, given: Grant, now: datetime, limits: Limits
    ) -> tuple[str, Dealt | None, bool]:
        """Select and write the result; return the records of the jobs, the selection (None for a repeated request), and
        whether it is a repeated request of which all is started.

        Runs within a transaction, after what is due was promoted.
        """
        again: list[Any] = connection.execute(statement("again"), (given.worker.bytes, given.claim)).fetchall()
        if again:
            waiting = [seq for seq, started in again if not started]
            return connection.execute(statement("given"), (encode(waiting),)).get, None, not waiting
        dealt = self._deal(connection, number, ask, given.worker, now, limits)
        seqs = encode([entry.seq for entry in dealt.taken])
        accepted = None if given.accepted_at is None else micros(given.accepted_at)
        times = (micros(given.assigned_at), accepted, micros(given.act_by))
        connection.execute(statement("give"), (seqs, given.status.value, given.worker.bytes, given.claim, *times))
        _remember(connection, dealt, micros(now))
        return connection.execute(statement("given"), (seqs,)).get, dealt, False

    def _deal(
        self, connection: apsw.Connection, number: int, ask: ClaimRequest, worker: UUID, now: datetime, limits: Limits
    ) -> Dealt:
        subqueues: list[Any] = connection.execute(statement("occupied"), (number,)).fetchall()
        subqueues = [subqueue for subqueue in subqueues if not limits.queue(subqueue[1]).paused]
        held, times = _held(connection), 1
        held_of = list[str | None]()
        if ask.customers is not None:
            held_of = _held_of(connection, worker)
            subqueues = [subqueue for subqueue in subqueues if ask.customers.admits(subqueue[3], held_of)]
        while True:
            used = usage_of(held)
            table = _Table(connection, micros(now), limits, used)
            try:
                groups = table.groups(subqueues, ask, times)
                if limits.rates:
                    paced = limits.paces(group for group, _ in groups)
                    used.spent = usage_of((), _spent(connection, paced)).spent
                dealt = select_jobs(groups, ask, now, self._rules, limits, used, held_of)
            finally:
                table.close()
            if not dealt.cut:
                return dealt
            times *= _KEYS_FACTOR


class _Table:
    """The queued jobs and their keys, read only as far as the selection needs them."""

    def __init__(self, connection: apsw.Connection, now: int, limits: Limits, used: Usage) -> None:
        self._connection, self._now = connection, now
        self._limits, self._used = limits, used
        self._open: list[apsw.Cursor] = []

    def groups(self, subqueues: list[Any], ask: ClaimRequest, times: int) -> list[tuple[Group, Iterator[QueuedEntry]]]:
        """Return the groups in these subqueues; of keys only the first that may have a slot, ``times`` as many as are
        wanted."""
        found = list[tuple[Group, Iterator[QueuedEntry]]]()
        for subqueue, queue, task, customer, keyed, *first in subqueues:
            group = Group(queue, task, None, customer)
            most = wanted(group, ask, self._limits)
            if first[0] is not None and most:
                found.append((group, self._of_subqueue(subqueue, self._entry(*first))))
            if keyed and most:
                found += self._of_keys(subqueue, group, most * times)
        return found

    def _of_keys(self, subqueue: int, of: Group, most: int) -> Iterator[tuple[Group, Iterator[QueuedEntry]]]:
        queue, task, whose = of.queue, of.task, of.customer
        slots, used, told = self._limits.task(task).max_per_key, self._used, False
        for key, last, at, *row in self._rows(statement("heads"), subqueue):
            free = None if slots is None else slots - used.held.get(("key", task, key), 0)
            entry = self._entry(*row)
            if free is not None and free < 1:
                if not told:  # one such key is enough for the selection to see that a limit keeps jobs waiting
                    yield Group(queue, task, key, whose), iter((entry,))
                told = True
                continue
            if most == 0:
                yield of, iter((QueuedEntry(entry.seq, entry.rank, at, unread=True),))
                break
            most -= 1
            if last:
                used.last[task, key] = last
            # If the first job takes the only free slot of the key, no others of the key are wanted.
            alone = free == 1 and not entry.expired
            yield Group(queue, task, key, whose), iter((entry,)) if alone else self._of_key(subqueue, key, entry)

    def _of_subqueue(self, subqueue: int, first: QueuedEntry) -> Iterator[QueuedEntry]:
        """Yield the jobs without keys: the first, which was read already, and the others when they are wanted."""
        yield first
        yield from self._entries(statement("rest_of_subqueue"), subqueue, first.rank, first.arrived_at, first.seq)

    def _of_key(self, subqueue: int, key: str, first: QueuedEntry) -> Iterator[QueuedEntry]:
        """Yield the jobs of a key: the first, which was read already, and the others when they are wanted."""
        yield first
        yield from self._entries(statement("rest_of_key"), subqueue, key, first.rank, first.arrived_at, first.seq)

    def _entries(self, text: str, *terms: Any) -> Iterator[QueuedEntry]:
        for row in self._rows(text, *terms):
            yield self._entry(*row)

    def _rows(self, text: str, *terms: Any) -> Iterator[Any]:
        cursor = self._connection.execute(text, terms)
        self._open.append(cursor)
        return cursor

    def _entry(self, seq: int, rank: int, arrived_at: int, losses: int, act_by: int | None) -> QueuedEntry:
        return QueuedEntry(seq, rank, arrived_at, losses, act_by is not None and act_by <= self._now)

    def close(self) -> None:
        """Close the cursors, also those that were not read to the end."""
        for cursor in self._open:
            cursor.close(True)


def _held(connection: apsw.Connection) -> list[Any]:
    return connection.execute(statement("usage")).fetchall()


def _held_of(connection: apsw.Connection, worker: UUID) -> list[str | None]:
    rows: list[Any] = connection.execute(statement("held_of"), (worker.bytes,)).fetchall()
    return [customer for (customer,) in rows]


def _spent(connection: apsw.Connection, paced: set[Bound]) -> list[Any]:
    return (
        connection.execute(statement("spent"), (encode([encode(bound) for bound in paced]),)).fetchall()
        if paced
        else []
    )


def _remember(connection: apsw.Connection, dealt: Dealt, now: int) -> None:
    if dealt.spent:
        connection.executemany(statement("spend"), rows_of_spent(dealt.spent))
        connection.execute("DELETE FROM spent WHERE until <= ?", (now,))
    if dealt.turned:
        connection.execute(statement("turn"), (encode(list(dealt.turned)), now))
