"""Claims where something is limited: what is in line and what is in use is read while the gates are held, dealt by the
core, and written, all in one transaction."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from itertools import repeat
from typing import Any

from headrace.core.claim import Ask, Grant, order
from headrace.core.job import Job
from headrace.core.limit import Dealt, Entry, Turn, deal, shut
from headrace.core.rule import Bound, Group, Limits
from headrace.core.rules import Rules
from headrace.engine import MAX_BATCH, Claimed, Dead
from headrace.engines.postgres.arrays import literal_of_texts
from headrace.engines.postgres.connection import Connection, sql
from headrace.engines.postgres.lines import Serving
from headrace.engines.postgres.pool import Pool
from headrace.engines.postgres.rows import Reader
from headrace.engines.record import encode, micros, moment, rows_of_spent, usage_of

__all__ = ["Limiting", "limited_head"]

_ROWS = 20_000
"""Jobs that are read at most in one go."""

_GROWTH = 8
"""How many times as many are read where that was too little."""
_FAR = 100_000
"""No claim looks further down a line."""

_Line = tuple[int, str | None]
"""The place of a line among those that are served, and a key in it."""

_Turns = tuple[list[str], list[str], list[str], list[str]]
"""Who had a turn, as ``give.sql`` takes it."""


def limited_head(schema: str) -> str:
    """The statement for what a claim must know before it deals."""
    return sql("limited_head", schema, usage=sql("usage", schema).strip())


class Limiting:
    """The claims of one session that limits matter to."""

    def __init__(self, hot: Pool, schema: str, rules: Rules) -> None:
        self._hot, self._schema, self._rules = hot, schema, rules

    async def claim(self, given: Grant, ask: Ask, serving: Serving, now: datetime) -> Claimed | Dead | None:
        """What is given; None: the lines or the settings are others by now."""
        names = _gates(serving)
        while True:
            async with self._hot.transaction() as connection:
                held = await connection.fetch(sql("gates", self._schema), names) if names else []
                if len(held) == len(names):
                    return await self._claim(connection, given, ask, serving, now)
            await self._hot.fetch(sql("add_gates", self._schema), names)

    async def _claim(
        self, connection: Connection, given: Grant, ask: Ask, serving: Serving, now: datetime
    ) -> Claimed | Dead | None:
        # Every statement sees what was committed before it: before this, whoever held the gates has let go of them.
        head: Any = await connection.fetchrow(limited_head(self._schema), given.worker, given.claim)
        if not head["alive"]:
            return Dead()
        if (head["lines_rev"], head["settings_rev"]) != (serving.lines_rev, serving.settings_rev):
            return None
        due = head["next_due"]
        if head["again"]:
            rows: list[Any] = await connection.fetch(sql("claimed", self._schema), given.worker, given.claim)
            again = Reader().jobs(rows)
            again.sort(key=lambda job: order(job, serving.priorities.get(job.queue, 0)))
            return self._claimed(head, again, due)
        while due is not None and due <= micros(now):
            count: int = await connection.fetchval(sql("promote", self._schema), micros(now), MAX_BATCH)
            due = await connection.fetchval(f"SELECT min(available_at) FROM {self._schema}.jobs WHERE stage = 1")
            if count < MAX_BATCH:
                break
        held = list(zip(head["queues"] or (), head["tasks"] or (), head["keys"] or (), head["jobs"] or (), strict=True))
        dealt, turns = await self._deal(connection, ask, serving, held, now)
        places = {entry.seq: place for place, entry in enumerate(dealt.taken)}
        reader = Reader()
        jobs = [reader.claimed(row, given) for row in await self._give(connection, given, dealt, turns)]
        jobs.sort(key=lambda job: places[job.seq])
        await self._spend(connection, dealt, now)
        soon: list[int] = [] if due is None else [due]
        if dealt.next_permit is not None:
            soon.append(micros(dealt.next_permit))
        if len(jobs) < len(places):  # others took some of it: worth asking again at once
            soon = [micros(now)]
        return self._claimed(head, jobs, min(soon, default=None))

    async def _deal(
        self, connection: Connection, ask: Ask, serving: Serving, held: Sequence[Any], now: datetime
    ) -> tuple[Dealt, _Turns]:
        limits = serving.limits
        depth, shares = min(ask.n, max(_ROWS // max(len(serving.lines), 1), 10)), 1
        whole, of_keys = limits.paces(serving.groups), any(rate.keyed for rate in limits.rates.values())
        spent = await self._spent(connection, whole)
        used = usage_of(held, spent)
        closed = [shut(group, ask, now, limits, used) for group in serving.groups]
        while True:
            groups, last = await self._lines(connection, serving, closed, depth, shares, now)
            keyed = limits.paces(group for group, _ in groups) - whole if of_keys else set[Bound]()
            usage = usage_of(held, [*spent, *await self._spent(connection, keyed)])
            usage.last = last.copy()
            dealt = deal(groups, ask, now, self._rules, limits, usage)
            if not dealt.cut or depth >= _FAR:
                return dealt, _turns(dealt, last, limits)
            depth, shares = min(depth * _GROWTH, _FAR), shares * _GROWTH

    async def _spent(self, connection: Connection, bounds: set[Bound]) -> list[Any]:
        return await connection.fetch(sql("spent", self._schema), [encode(one) for one in bounds]) if bounds else []

    async def _lines(
        self,
        connection: Connection,
        serving: Serving,
        closed: list[bool],
        depth: int,
        shares: int,
        now: datetime,
    ) -> tuple[list[tuple[Group, list[Entry]]], dict[Turn, int]]:
        """What is in line, up to so many of each line, and of each key so many times its share of that; and when keys
        last had their turn. Of lines that are closed, one key."""
        tasks = [group.task for group in serving.groups]
        slots = [serving.limits.task(task).max_per_key or _FAR for task in tasks]
        most = [min(one * shares, depth) for one in slots]
        terms = (serving.lines, depth, most, tasks, shares, closed)
        rows: list[Any] = await connection.fetch(sql("in_line", self._schema), *terms)
        lines: dict[_Line, list[Entry]] = {}
        last: dict[Turn, int] = {}
        at, late = micros(now), False
        for place, key, seq, rank, arrived_at, losses, act_by, keys, turned in rows:
            if keys is not None:
                last.update(zip(zip(repeat(tasks[place - 1]), keys), turned, strict=True))
                continue
            entry = Entry(seq, rank, arrived_at, losses, act_by is not None and act_by <= at)
            late = late or entry.expired
            lines.setdefault((place - 1, key), []).append(entry)
        share = -(-depth * shares // max(sum(key is not None for _, key in lines), 1))
        groups: list[tuple[Group, list[Entry]]] = []
        for (place, key), entries in lines.items():
            group, read = serving.groups[place], depth
            if key is not None:
                group, read = Group(group.queue, group.task, key), min(most[place], share)
            # Of a key that has no more slots, no more is wanted; but those that expired take none.
            if len(entries) == read and (key is None or read < slots[place] or late):
                entries.append(_unread(entries[-1]))
            groups.append((group, entries))
        return groups, last

    async def _give(self, connection: Connection, given: Grant, dealt: Dealt, turns: _Turns) -> list[Any]:
        if not dealt.taken:
            return []
        accepted = None if given.accepted_at is None else micros(given.accepted_at)
        times = (micros(given.assigned_at), accepted, micros(given.act_by))
        terms = (given.worker, given.claim, given.status.value, *times, *turns)
        return await connection.fetch(sql("give", self._schema), [entry.seq for entry in dealt.taken], *terms)

    async def _spend(self, connection: Connection, dealt: Dealt, now: datetime) -> None:
        if dealt.spent:
            names, data, until = map(list, zip(*rows_of_spent(dealt.spent), strict=True))
            await connection.execute(sql("spend", self._schema), names, data, until, micros(now))

    @staticmethod
    def _claimed(head: Any, jobs: list[Job], due: int | None) -> Claimed:
        return Claimed(tuple(jobs), head["profiles_rev"], head["settings_rev"], None if due is None else moment(due))


def _gates(serving: Serving) -> list[str]:
    """What must be held while this ask is dealt: one for each task, queue and rate that is limited."""
    names: set[str] = set()
    limits: Limits = serving.limits
    for group in serving.groups:
        if limits.task(group.task).limited:
            names.add(f"task:{group.task}")
        if limits.queue(group.queue).limited:
            names.add(f"queue:{group.queue}")
        names |= {f"rate:{name}" for name in (*limits.queue(group.queue).rates, *limits.task(group.task).rates)}
    return sorted(names)


def _unread(last: Entry) -> Entry:
    """What stands behind the last that was read of a line, and may be nothing."""
    return Entry(last.seq, last.rank, last.arrived_at, unread=True)


def _turns(dealt: Dealt, last: dict[Turn, int], limits: Limits) -> _Turns:
    again: dict[str, list[str]] = {}
    tasks, keys = list[str](), list[str]()
    for turn in dealt.turned:
        # Without a gate others may be about the same keys: then all of them are written in one order, as if new.
        if turn in last and limits.task(turn[0]).limited:
            again.setdefault(turn[0], []).append(turn[1])
        else:
            tasks.append(turn[0])
            keys.append(turn[1])
    return sorted(again), [literal_of_texts(again[task]) or "" for task in sorted(again)], tasks, keys
