"""Claims where something is limited: what is in line and what is in use is read, dealt by the core, and written, all in
one transaction of the thread that writes."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

import apsw

from headrace.core.claim import Ask, Grant
from headrace.core.limit import Dealt, Entry, Usage, deal, remembered
from headrace.core.rule import Group, Limits, limits_of
from headrace.core.rules import Rules
from headrace.engines.record import encode, micros, moment, rows_of_spent, spent_of, usage_of
from headrace.engines.sqlite.connection import ask as statement

__all__ = ["Limiting"]

_IN_LINE = """
SELECT seq, rank, arrived_at, unstarted_losses, act_by FROM jobs
WHERE stage = 2 AND line = ? ORDER BY rank, arrived_at, seq"""
_OF_KEY = """
SELECT seq, rank, arrived_at, unstarted_losses, act_by FROM jobs
WHERE stage = -1 AND line = ? AND turn_key = ? ORDER BY rank, arrived_at, seq"""
_FIRST_KEY = "SELECT min(turn_key) FROM jobs WHERE stage = -1 AND line = ?"
_NEXT_KEY = f"{_FIRST_KEY} AND turn_key > ?"
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
_SPENT = "SELECT data FROM spent WHERE name = ?"
_PROMOTED = 10_000


class Limiting:
    """The limits as one session knows them."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._rev, self._limits = -1, Limits()
        self._bounded: dict[tuple[int, int], bool] = {}
        """For each ask, and the rev of its lines, whether any of them is limited."""

    def of(self, connection: apsw.Connection, number: int, lines_rev: int) -> Limits | None:
        """The limits, if any may matter to this ask."""
        rev: int = connection.execute("SELECT settings_rev FROM books").get
        if rev != self._rev:
            rows: list[Any] = connection.execute("SELECT key, value FROM settings").fetchall()
            self._rev, self._limits, self._bounded = rev, limits_of(rows), {}
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
            lines = table.lines(number, limits, usage := _usage(connection))
            dealt = deal(lines, ask, now, self._rules, limits, usage)
        finally:
            table.close()
        seqs = encode([entry.seq for entry in dealt.taken])
        accepted = None if given.accepted_at is None else micros(given.accepted_at)
        times = (micros(given.assigned_at), accepted, micros(given.act_by))
        connection.execute(_GIVE, (seqs, given.status.value, given.worker.bytes, given.claim, *times))
        _spend(connection, dealt, micros(now))
        return connection.execute(_GIVEN, (seqs,)).get, dealt.next_permit


class _Table:
    """What is in line, read no further than it is asked for."""

    def __init__(self, connection: apsw.Connection, now: int) -> None:
        self._connection, self._now = connection, now
        self._open: list[apsw.Cursor] = []

    def lines(self, number: int, limits: Limits, usage: Usage) -> Iterator[tuple[Group, Iterator[Entry]]]:
        """The lines of an ask, and those of each key that is not full; none of paused queues."""
        served: list[Any] = self._connection.execute(_SERVED, (number,)).fetchall()
        for line, queue, task in served:
            if limits.queue(queue).paused:
                continue
            yield self._known(Group(queue, task), limits, usage), self._entries(_IN_LINE, line)
            most, key = limits.task(task).max_per_key, self._connection.execute(_FIRST_KEY, (line,)).get
            while key is not None:
                if most is None or usage.held.get(("key", task, key), 0) < most:
                    yield self._known(Group(queue, task, key), limits, usage), self._entries(_OF_KEY, line, key)
                key = self._connection.execute(_NEXT_KEY, (line, key)).get

    def _known(self, group: Group, limits: Limits, usage: Usage) -> Group:
        """The group, once what must be known of its past is."""
        for bound in remembered(group, limits):
            if (
                bound not in usage.spent
                and (data := self._connection.execute(_SPENT, (encode(bound),)).get) is not None
            ):
                usage.spent[bound] = spent_of(data)
        return group

    def _entries(self, text: str, *terms: Any) -> Iterator[Entry]:
        cursor = self._connection.execute(text, terms)
        self._open.append(cursor)
        rows: Iterator[Any] = cursor
        for seq, rank, arrived_at, losses, act_by in rows:
            yield Entry(seq, rank, moment(arrived_at), losses, act_by is not None and act_by <= self._now)

    def close(self) -> None:
        """Let go of what was not read to its end."""
        for cursor in self._open:
            cursor.close(True)


def _usage(connection: apsw.Connection) -> Usage:
    held: list[Any] = connection.execute(_HELD).fetchall()
    return usage_of(held)


def _spend(connection: apsw.Connection, dealt: Dealt, now: int) -> None:
    if dealt.spent:
        connection.executemany(_SPEND, rows_of_spent(dealt.spent))
        connection.execute("DELETE FROM spent WHERE until <= ?", (now,))
