"""Claims where something is limited: what is in line and what is in use is read, dealt by the core, and written, all in
one transaction of the thread that writes."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

import apsw

from headrace.core.claim import Ask, Grant
from headrace.core.limit import Dealt, Entry, Usage, deal, shut
from headrace.core.rule import Bound, Group, Limits, limits_of
from headrace.core.rules import Rules
from headrace.engines.record import encode, micros, rows_of_spent, usage_of
from headrace.engines.sqlite.connection import ask as statement

__all__ = ["Limiting", "usage"]

_IN_LINE = """
SELECT seq, rank, arrived_at, unstarted_losses, act_by FROM jobs
WHERE stage = 2 AND line = ? ORDER BY rank, arrived_at, seq"""
_REST_OF_KEY = """
SELECT seq, rank, arrived_at, unstarted_losses, act_by FROM jobs
WHERE stage = -1 AND line = ?1 AND turn_key = ?2 AND (rank, arrived_at, seq) > (?3, ?4, ?5)
ORDER BY rank, arrived_at, seq"""
# From key to key by the index: what stands behind a key's first job costs nothing. Of lines that are closed, one key.
_KEYS = """
WITH RECURSIVE keys (line, closed, key) AS (
  SELECT s.value ->> 0, s.value ->> 1, (SELECT min(turn_key) FROM jobs WHERE stage = -1 AND line = s.value ->> 0)
  FROM json_each(?1) s
  UNION ALL
  SELECT k.line, 0, (SELECT min(turn_key) FROM jobs WHERE stage = -1 AND line = k.line AND turn_key > k.key)
  FROM keys k WHERE k.key IS NOT NULL AND NOT k.closed
)
SELECT k.line, l.queue, p.task, k.key, t.last, j.seq, j.rank, j.arrived_at, j.unstarted_losses, j.act_by
FROM keys k CROSS JOIN lines l ON l.id = k.line CROSS JOIN profiles p ON p.id = l.profile
CROSS JOIN jobs j ON j.seq = (
  SELECT seq FROM jobs WHERE stage = -1 AND line = k.line AND turn_key = k.key ORDER BY rank, arrived_at, seq LIMIT 1)
LEFT JOIN turns_taken t ON t.task = p.task AND t.key = k.key
WHERE k.key IS NOT NULL"""
_SERVED = """
SELECT l.id, l.queue, p.task
FROM served s CROSS JOIN lines l ON l.id = s.line CROSS JOIN profiles p ON p.id = l.profile WHERE s.ask = ?"""
_HELD = """
SELECT l.queue, p.task, h.turn_key, h.jobs
FROM (SELECT line, turn_key, count(*) AS jobs FROM jobs WHERE stage = 3 GROUP BY 1, 2) h
CROSS JOIN lines l ON l.id = h.line CROSS JOIN profiles p ON p.id = l.profile"""
_GIVE = """
UPDATE jobs
SET status = ?2, stage = 3, rev = rev + 1, epoch = epoch + 1, worker = ?3, claim = ?4, assigned_at = ?5,
  accepted_at = ?6, act_by = ?7, updated_at = ?5, unnamed = 0
WHERE seq IN (SELECT value FROM json_each(?1))"""
_GIVEN = """
SELECT '[' || coalesce(group_concat(r.doc, ','), '') || ']'
FROM (SELECT value AS seq FROM json_each(?) ORDER BY key) e CROSS JOIN record r ON r.seq = e.seq"""
_AGAIN = """
SELECT j.seq FROM jobs j CROSS JOIN lines l ON l.id = j.line LEFT JOIN queues q ON q.name = l.queue
WHERE j.worker = ? AND j.claim = ? AND j.stage = 3 AND j.status <> 'running'
ORDER BY -coalesce(q.priority, 0), j.rank, j.arrived_at, j.seq"""
_SPEND = "INSERT OR REPLACE INTO spent (name, data, until) VALUES (?, ?, ?)"
_SPENT = "SELECT name, data FROM spent WHERE name IN (SELECT value FROM json_each(?))"
_TURN = "INSERT OR REPLACE INTO turns_taken (task, key, last) VALUES (?, ?, ?)"
_PROMOTED = 10_000


class Limiting:
    """The limits as one session knows them."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self.rev, self._limits = -1, Limits()
        """Of the settings that the limits were read from."""
        self._bounded: dict[tuple[int, int], bool] = {}
        """For each ask, and the rev of its lines, whether any of them is limited."""

    def of(self, connection: apsw.Connection, number: int, lines_rev: int) -> Limits | None:
        """The limits, if any may matter to this ask."""
        rev: int = connection.execute("SELECT settings_rev FROM books").get
        if rev != self.rev:
            rows: list[Any] = connection.execute("SELECT key, value FROM settings").fetchall()
            self.rev, self._limits, self._bounded = rev, limits_of(rows), {}
        bounded = self._bounded.get((number, lines_rev))
        if bounded is None:
            lines: list[Any] = connection.execute(_SERVED, (number,)).fetchall()
            bounded = any(self._limits.bounded(queue, task) for _, queue, task in lines)
            self._bounded[number, lines_rev] = bounded
        if bounded or connection.execute("SELECT EXISTS (SELECT 1 FROM jobs WHERE stage = -1)").get:
            return self._limits
        return None

    def claim(
        self, connection: apsw.Connection, number: int, ask: Ask, given: Grant, now: datetime, limits: Limits
    ) -> tuple[str, datetime | None]:
        """Within a transaction: promote what is due, deal, write; the records, and when a rate has a permit again."""
        connection.execute(statement("promote"), (micros(now), _PROMOTED))
        again: list[Any] = connection.execute(_AGAIN, (given.worker.bytes, given.claim)).fetchall()
        if again:
            return connection.execute(_GIVEN, (encode([seq for (seq,) in again]),)).get, None
        table = _Table(connection, micros(now))
        try:
            lines, used = table.lines(number, ask, now, limits)
            dealt = deal(lines, ask, now, self._rules, limits, used)
        finally:
            table.close()
        seqs = encode([entry.seq for entry in dealt.taken])
        accepted = None if given.accepted_at is None else micros(given.accepted_at)
        times = (micros(given.assigned_at), accepted, micros(given.act_by))
        connection.execute(_GIVE, (seqs, given.status.value, given.worker.bytes, given.claim, *times))
        _remember(connection, dealt, micros(now))
        return connection.execute(_GIVEN, (seqs,)).get, dealt.next_permit


class _Table:
    """What is in line, read no further than it is asked for."""

    def __init__(self, connection: apsw.Connection, now: int) -> None:
        self._connection, self._now = connection, now
        self._open: list[apsw.Cursor] = []

    def lines(
        self, number: int, ask: Ask, now: datetime, limits: Limits
    ) -> tuple[list[tuple[Group, Iterator[Entry]]], Usage]:
        """The lines of an ask, and those of each key in them, none of paused queues; and what is in use."""
        served: list[Any] = self._connection.execute(_SERVED, (number,)).fetchall()
        groups = {line: Group(queue, task) for line, queue, task in served if not limits.queue(queue).paused}
        whole, of_keys = limits.paces(groups.values()), any(rate.keyed for rate in limits.rates.values())
        used = usage(self._connection, whole)
        found = [(group, self._entries(_IN_LINE, line)) for line, group in groups.items()]
        ends = [(line, shut(group, ask, now, limits, used)) for line, group in groups.items()]
        keys: list[Any] = self._connection.execute(_KEYS, (encode(ends),)).fetchall()
        for line, queue, task, key, last, *row in keys:
            if last is not None:
                used.last[task, key] = last
            found.append((Group(queue, task, key), self._of_key(line, key, *row)))
        if of_keys:
            keyed = limits.paces(group for group, _ in found) - whole
            used.spent |= usage_of((), _spent(self._connection, keyed)).spent
        return found, used

    def _of_key(self, line: int, key: str, seq: int, rank: int, arrived_at: int, *rest: Any) -> Iterator[Entry]:
        """The first of a key, which was read; the others only if they are wanted."""
        yield self._entry(seq, rank, arrived_at, *rest)
        yield from self._entries(_REST_OF_KEY, line, key, rank, arrived_at, seq)

    def _entries(self, text: str, *terms: Any) -> Iterator[Entry]:
        cursor = self._connection.execute(text, terms)
        self._open.append(cursor)
        rows: Iterator[Any] = cursor
        for row in rows:
            yield self._entry(*row)

    def _entry(self, seq: int, rank: int, arrived_at: int, losses: int, act_by: int | None) -> Entry:
        return Entry(seq, rank, arrived_at, losses, act_by is not None and act_by <= self._now)

    def close(self) -> None:
        """Let go of what was not read to its end."""
        for cursor in self._open:
            cursor.close(True)


def usage(connection: apsw.Connection, paced: set[Bound]) -> Usage:
    """What is held, and what was used of these rates."""
    held: list[Any] = connection.execute(_HELD).fetchall()
    return usage_of(held, _spent(connection, paced))


def _spent(connection: apsw.Connection, paced: set[Bound]) -> list[Any]:
    return connection.execute(_SPENT, (encode([encode(bound) for bound in paced]),)).fetchall() if paced else []


def _remember(connection: apsw.Connection, dealt: Dealt, now: int) -> None:
    if dealt.spent:
        connection.executemany(_SPEND, rows_of_spent(dealt.spent))
        connection.execute("DELETE FROM spent WHERE until <= ?", (now,))
    connection.executemany(_TURN, [(task, key, now) for task, key in dealt.turned])
