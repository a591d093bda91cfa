"""How concurrency keys take turns: read the keys of queued jobs as far as needed, and move their heads after a
selection.

A head is at the first job of its key or in front of it, never behind. So a transaction that cancels or takes a job need
not know of heads: the next claim that comes to the head corrects it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import datetime
from typing import Any

import msgspec

from headrace.core.lifecycle.claim import ClaimRequest
from headrace.core.limits.selection import Dealt, QueuedEntry, Turn, wanted
from headrace.core.limits.settings import Group
from headrace.engines.postgres.jobs.subqueues import Serving
from headrace.engines.postgres.store.arrays import columns
from headrace.engines.postgres.store.connection import Connection, sql
from headrace.engines.sql.encoding import micros

__all__ = ["MAX_READ_JOBS", "NOWHERE", "Stands", "Table", "Window", "arrive", "read", "stand", "stands", "stays"]

MAX_READ_JOBS = 100_000
"""Maximum jobs, and maximum keys, that a claim reads of a subqueue."""

_FIRST_WINDOW_JOBS = 20_000
"""Maximum jobs that a claim reads in its first window, of all subqueues together."""
_SPARE_KEYS = 8
"""How many more keys than wanted jobs are read of a subqueue: some keys may be at their limit."""
_WINDOW_FACTOR = 8
"""By what factor the next window is wider."""
_MAX_ARRIVALS = 10_000
"""How many arrivals are processed in one transaction."""

Stands = list[Any] | None
"""New heads of keys, as the arrays that ``stand.sql`` takes; None if none has changed."""
NOWHERE = ["{}"] * 7
_Stand = tuple[str, str, int, int | None, int, int, bool]
_TEXTS = frozenset({0, 1})


class Window(msgspec.Struct, frozen=True):
    """How far a claim reads each subqueue."""

    depths: list[int]
    """How many jobs of each subqueue."""
    reaches: list[int]
    """How many keys of each subqueue; 0 unless the gate of its task is locked."""
    shares: int = 1
    """By what factor more is read of each key than its share of the jobs."""

    @classmethod
    def of(cls, ask: ClaimRequest, serving: Serving, tasks: Collection[str]) -> Window:
        """Return the first window for a request, which is likely to be wide enough."""
        most = max(_FIRST_WINDOW_JOBS // max(len(serving.subqueues), 1), 10)
        counts = [wanted(group, ask, serving.limits) for group in serving.groups]
        reaches = [
            n + _SPARE_KEYS if n and group.task in tasks else 0 for n, group in zip(counts, serving.groups, strict=True)
        ]
        return cls([min(n, most) for n in counts], [min(n, most) for n in reaches])

    @property
    def wider(self) -> Window | None:
        """Return the next window, where this one was not wide enough; None if it is the widest."""
        depths, reaches = (
            [min(n * _WINDOW_FACTOR, MAX_READ_JOBS) for n in each] for each in (self.depths, self.reaches)
        )
        if (depths, reaches) == (self.depths, self.reaches):
            return None
        return Window(depths, reaches, self.shares * _WINDOW_FACTOR)


class _Key(msgspec.Struct, gc=False):
    """A key in a subqueue, its head as it was read, and its first jobs."""

    place: int
    task: str
    subqueue: int
    key: str
    said: tuple[int, int, int]
    last: int
    entries: list[QueuedEntry]
    whole: bool = True
    """Whether ``entries`` are all its jobs in this subqueue."""


class Table(msgspec.Struct):
    """The queued jobs and their keys, as far as they were read."""

    keys: list[_Key]
    groups: list[tuple[Group, list[QueuedEntry]]]
    last: dict[Turn, int]
    """When the keys last took their turn."""
    subqueues: dict[int, int]
    """In which subqueue each job was seen."""

    @property
    def all_read(self) -> list[tuple[Group, list[QueuedEntry]]]:
        """Return the groups without their unread entries, as if there were nothing behind what was read."""
        return [(group, [entry for entry in entries if not entry.unread]) for group, entries in self.groups]


async def arrive(connection: Connection, schema: str, serving: Serving, tasks: Collection[str]) -> bool:
    """Process arrivals of tasks with locked gates: move the heads of their keys; return whether these were all."""
    here = [
        (subqueue, one.task)
        for subqueue, one in zip(serving.subqueues, serving.groups, strict=True)
        if one.task in tasks
    ]
    if not here:
        return True
    subqueues, names = map(list, zip(*here, strict=True))
    came: int = await connection.fetchval(sql("arrive", schema), subqueues, names, _MAX_ARRIVALS)
    return came < _MAX_ARRIVALS


async def read(
    connection: Connection,
    schema: str,
    serving: Serving,
    window: Window,
    now: datetime,
    passed: Collection[int] = (),
) -> Table:
    """Read the first jobs of each subqueue and of the first keys in it, without the jobs in ``passed``."""
    slots = [serving.limits.task(group.task).max_per_key or MAX_READ_JOBS for group in serving.groups]
    most = [min(one * window.shares, depth) for one, depth in zip(slots, window.depths, strict=True)]
    reaches = [n and n + 1 for n in window.reaches]
    widest = max(window.depths, default=0)
    terms = (serving.subqueues, window.depths, most, reaches, widest * window.shares)
    rows: list[Any] = await connection.fetch(sql("in_subqueues", schema), *terms)
    plain: dict[int, list[QueuedEntry]] = {}
    keys: list[_Key] = []
    moment, late, before = micros(now), False, (0, None)
    entries, subqueues = list[QueuedEntry](), dict[int, int]()
    for number, key, stands, at, of, last, seq, rank, arrived_at, losses, act_by in rows:
        if (number, key) != before:  # the rows of one key come one after the other
            before, place, entries = (number, key), number - 1, []
            if key is None:
                plain[place] = entries
            else:
                group, subqueue = serving.groups[place], serving.subqueues[place]
                keys.append(_Key(place, group.task, subqueue, key, (stands, at, of), last, entries))
        if seq is not None:
            entry = QueuedEntry(seq, rank, arrived_at, losses, act_by is not None and act_by <= moment)
            late = late or entry.expired
            entries.append(entry)
            subqueues[seq] = serving.subqueues[number - 1]
    share = -(-widest * window.shares // max(len(keys), 1))
    table = Table([], [], {}, subqueues)
    for place, entries in plain.items():
        cut = len(entries) == window.depths[place]
        left = _without(entries, passed)
        table.groups.append((serving.groups[place], [*left, _unread(entries[-1])] if cut else left))
    beyond = _beyond(keys, reaches)
    for one in keys:
        if beyond.get(one.place) is one:
            rank, at, seq = one.said
            table.groups.append((serving.groups[one.place], [QueuedEntry(seq, rank, at, unread=True)]))
            continue
        table.keys.append(one)
        group, asked = serving.groups[one.place], min(most[one.place], share) + 1
        one.whole = len(one.entries) < asked
        table.last[one.task, one.key] = one.last
        # A key cannot be given more jobs than it has slots. Expired jobs take no slot, so then more may be wanted.
        cut = not one.whole and (asked < slots[one.place] or late)
        left = _without(one.entries, passed)
        cut = cut or (not one.whole and len(left) < len(one.entries))
        entries = [*left, _unread(one.entries[-1])] if cut else left
        table.groups.append((Group(group.queue, group.task, one.key, group.customer), entries))
    return table


def _without(entries: list[QueuedEntry], passed: Collection[int]) -> list[QueuedEntry]:
    return [entry for entry in entries if entry.seq not in passed] if passed else entries


def _unread(last: QueuedEntry) -> QueuedEntry:
    """Return an entry for what is behind the last one that was read; there may be nothing."""
    return QueuedEntry(last.seq, last.rank, last.arrived_at, unread=True)


def _beyond(keys: Iterable[_Key], reaches: list[int]) -> dict[int, _Key]:
    """Return the last key that was read of each subqueue, one more than wanted: it marks where unread keys begin."""
    subqueues: dict[int, list[_Key]] = {}
    for key in keys:
        subqueues.setdefault(key.place, []).append(key)
    return {
        place: max(read, key=lambda key: key.said) for place, read in subqueues.items() if len(read) == reaches[place]
    }


def stands(table: Table, dealt: Dealt) -> Stands:
    """Return the heads of keys that differ from what was read, once the selected jobs are given."""
    taken = {entry.seq for entry in dealt.taken}
    found: list[_Stand] = []
    for one in table.keys:
        turned = (one.task, one.key) in dealt.turned
        left = [entry for entry in one.entries if entry.seq not in taken]
        if not left and not one.whole:
            left = one.entries[-1:]  # the next job was not read, but is behind this one
        if not left:
            found.append((one.task, one.key, one.subqueue, None, 0, 0, turned))
            continue
        head = left[0]
        if turned or (head.rank, max(head.arrived_at, one.last), head.seq) != one.said:
            found.append((one.task, one.key, one.subqueue, head.rank, head.arrived_at, head.seq, turned))
    return _columns(found)


def stays(table: Table, seqs: Collection[int]) -> Stands:
    """Return the heads of the keys of these jobs, which were selected but not given."""
    firsts = ((one, [entry for entry in one.entries if entry.seq in seqs][:1]) for one in table.keys)
    return _columns(
        [
            (one.task, one.key, one.subqueue, entry.rank, entry.arrived_at, entry.seq, False)
            for one, first in firsts
            for entry in first
        ]
    )


def _columns(rows: list[_Stand]) -> Stands:
    return columns(rows, _TEXTS) if rows else None


def stand(schema: str, first: int = 2, now: str = "$1") -> str:
    """Return the statement that writes heads of keys; its arrays begin at parameter ``first``."""
    names = ("tasks", "keys", "subqueues", "ranks", "ats", "seqs", "turned")
    return sql("stand", schema, now=now, **{name: f"${first + place}" for place, name in enumerate(names)}).strip()
