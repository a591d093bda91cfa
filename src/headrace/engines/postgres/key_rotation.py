"""Whose turn it is: the keys in line, read no further than they are wanted, and where they stand after that.

A head says where the first job of a key stands, or in front of that: who cancels a job, or takes it, need not know of
heads. Claims come by in order, and set right what they find.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import datetime
from typing import Any

import msgspec

from headrace.core.claim import Ask
from headrace.core.limits.limit import Dealt, Entry, Turn, wanted
from headrace.core.limits.rule import Group
from headrace.engines.postgres.arrays import columns
from headrace.engines.postgres.connection import Connection, sql
from headrace.engines.postgres.lines import Serving
from headrace.engines.record import micros

__all__ = ["FAR", "NOWHERE", "Stands", "Table", "Window", "arrive", "read", "stand", "stands", "stays"]

FAR = 100_000
"""No claim looks further down a line."""

_ROWS = 20_000
"""Jobs that are read at most in one go, at first."""
_SPARE = 8
"""How many keys are looked at beyond the jobs that are wanted: some may be full."""
_GROWTH = 8
"""How many times as many are read where that was too little."""
_ARRIVALS = 10_000
"""As many jobs that came are told to the heads at once."""

Stands = list[Any] | None
"""Where keys stand, as ``stand.sql`` takes it; None: as they were said to."""
NOWHERE = ["{}"] * 7
_Stand = tuple[str, str, int, int | None, int, int, bool]
_TEXTS = frozenset({0, 1})


class Window(msgspec.Struct, frozen=True):
    """How far a claim looks down each line."""

    depths: list[int]
    """How many jobs."""
    reaches: list[int]
    """How many keys; 0, unless the gate of the task is held."""
    shares: int = 1
    """How many times a key's share of the jobs is read of it."""

    @classmethod
    def of(cls, ask: Ask, serving: Serving, tasks: Collection[str]) -> Window:
        """What is likely to do."""
        most = max(_ROWS // max(len(serving.lines), 1), 10)
        counts = [wanted(group, ask, serving.limits) for group in serving.groups]
        reaches = [
            n + _SPARE if n and group.task in tasks else 0 for n, group in zip(counts, serving.groups, strict=True)
        ]
        return cls([min(n, most) for n in counts], [min(n, most) for n in reaches])

    @property
    def wider(self) -> Window | None:
        """Where that was too little; None: it goes no further."""
        depths, reaches = ([min(n * _GROWTH, FAR) for n in each] for each in (self.depths, self.reaches))
        if (depths, reaches) == (self.depths, self.reaches):
            return None
        return Window(depths, reaches, self.shares * _GROWTH)


class _Key(msgspec.Struct, gc=False):
    """A key in a line, where it was said to stand, and its first jobs."""

    place: int
    task: str
    line: int
    key: str
    said: tuple[int, int, int]
    last: int
    entries: list[Entry]
    whole: bool = True
    """These are all of its jobs in line."""


class Table(msgspec.Struct):
    """What was read of what is in line."""

    keys: list[_Key]
    groups: list[tuple[Group, list[Entry]]]
    last: dict[Turn, int]
    """When the keys last had their turn."""

    @property
    def all_read(self) -> list[tuple[Group, list[Entry]]]:
        """The groups, as if nobody were behind what was read."""
        return [(group, [entry for entry in entries if not entry.unread]) for group, entries in self.groups]


async def arrive(connection: Connection, schema: str, serving: Serving, tasks: Collection[str]) -> bool:
    """Put the keys of jobs that came into line in theirs, of tasks whose gates are held; whether that was all."""
    here = [(line, one.task) for line, one in zip(serving.lines, serving.groups, strict=True) if one.task in tasks]
    if not here:
        return True
    lines, names = map(list, zip(*here, strict=True))
    came: int = await connection.fetchval(sql("arrive", schema), lines, names, _ARRIVALS)
    return came < _ARRIVALS


async def read(
    connection: Connection,
    schema: str,
    serving: Serving,
    window: Window,
    now: datetime,
    passed: Collection[int] = (),
) -> Table:
    """What is in line: the first jobs of each line, and of its first keys; without those that are ``passed`` over."""
    slots = [serving.limits.task(group.task).max_per_key or FAR for group in serving.groups]
    most = [min(one * window.shares, depth) for one, depth in zip(slots, window.depths, strict=True)]
    reaches = [n and n + 1 for n in window.reaches]
    widest = max(window.depths, default=0)
    terms = (serving.lines, window.depths, most, reaches, widest * window.shares)
    rows: list[Any] = await connection.fetch(sql("in_line", schema), *terms)
    plain: dict[int, list[Entry]] = {}
    keys: list[_Key] = []
    moment, late, before = micros(now), False, (0, None)
    entries = list[Entry]()
    for number, key, stands, at, of, last, seq, rank, arrived_at, losses, act_by in rows:
        if (number, key) != before:  # those of one key come one after the other
            before, place, entries = (number, key), number - 1, []
            if key is None:
                plain[place] = entries
            else:
                group, line = serving.groups[place], serving.lines[place]
                keys.append(_Key(place, group.task, line, key, (stands, at, of), last, entries))
        if seq is not None:
            entry = Entry(seq, rank, arrived_at, losses, act_by is not None and act_by <= moment)
            late = late or entry.expired
            entries.append(entry)
    share = -(-widest * window.shares // max(len(keys), 1))
    table = Table([], [], {})
    for place, entries in plain.items():
        cut = len(entries) == window.depths[place]
        left = _without(entries, passed)
        table.groups.append((serving.groups[place], [*left, _unread(entries[-1])] if cut else left))
    beyond = _beyond(keys, reaches)
    for one in keys:
        if beyond.get(one.place) is one:
            rank, at, seq = one.said
            table.groups.append((serving.groups[one.place], [Entry(seq, rank, at, unread=True)]))
            continue
        table.keys.append(one)
        group, asked = serving.groups[one.place], min(most[one.place], share) + 1
        one.whole = len(one.entries) < asked
        table.last[one.task, one.key] = one.last
        # Of a key that has no more slots, no more is wanted; but those that expired take none.
        cut = not one.whole and (asked < slots[one.place] or late)
        left = _without(one.entries, passed)
        cut = cut or (not one.whole and len(left) < len(one.entries))
        entries = [*left, _unread(one.entries[-1])] if cut else left
        table.groups.append((Group(group.queue, group.task, one.key), entries))
    return table


def _without(entries: list[Entry], passed: Collection[int]) -> list[Entry]:
    return [entry for entry in entries if entry.seq not in passed] if passed else entries


def _unread(last: Entry) -> Entry:
    """What stands behind the last that was read of a line, and may be nothing."""
    return Entry(last.seq, last.rank, last.arrived_at, unread=True)


def _beyond(keys: Iterable[_Key], reaches: list[int]) -> dict[int, _Key]:
    """The first key of each line that is not looked at: it only says from where on keys were not read."""
    lines: dict[int, list[_Key]] = {}
    for key in keys:
        lines.setdefault(key.place, []).append(key)
    return {place: max(read, key=lambda key: key.said) for place, read in lines.items() if len(read) == reaches[place]}


def stands(table: Table, dealt: Dealt) -> Stands:
    """Where the keys stand, if not as they were said to, once what was dealt is given."""
    taken = {entry.seq for entry in dealt.taken}
    found: list[_Stand] = []
    for one in table.keys:
        turned = (one.task, one.key) in dealt.turned
        left = [entry for entry in one.entries if entry.seq not in taken]
        if not left and not one.whole:
            left = one.entries[-1:]  # the next one stands behind it
        if not left:
            found.append((one.task, one.key, one.line, None, 0, 0, turned))
            continue
        head = left[0]
        if turned or (head.rank, max(head.arrived_at, one.last), head.seq) != one.said:
            found.append((one.task, one.key, one.line, head.rank, head.arrived_at, head.seq, turned))
    return _columns(found)


def stays(table: Table, seqs: Collection[int]) -> Stands:
    """Where the keys of these jobs stand, because they were not given after all."""
    firsts = ((one, [entry for entry in one.entries if entry.seq in seqs][:1]) for one in table.keys)
    return _columns(
        [
            (one.task, one.key, one.line, entry.rank, entry.arrived_at, entry.seq, False)
            for one, first in firsts
            for entry in first
        ]
    )


def _columns(rows: list[_Stand]) -> Stands:
    return columns(rows, _TEXTS) if rows else None


def stand(schema: str, first: int = 2, now: str = "$1") -> str:
    """The statement that writes where keys stand, with its arrays from this parameter on."""
    names = ("tasks", "keys", "lines", "ranks", "ats", "seqs", "turned")
    return sql("stand", schema, now=now, **{name: f"${first + place}" for place, name in enumerate(names)}).strip()
