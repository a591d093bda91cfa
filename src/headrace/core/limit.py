"""Limits: who may be given to a worker now, when queues, tasks, keys and rates say how many there may be at once.

Limits are enforced where jobs are given away and nowhere else: from what is held at that moment, in the commit of the
claim. So a slot needs no giving back; it is free as soon as its job has left its owner, however that came about.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta

import msgspec

from headrace.core.claim import Ask, stops
from headrace.core.rate import Rate, Spent, micros, next_permit, permits, spend
from headrace.core.rule import Bound, Group, Limits
from headrace.core.rules import Rules

__all__ = ["REMEMBERED", "Dealt", "Entry", "Turn", "Usage", "deal", "lapses"]

Turn = tuple[str, str]
"""A task and a key, whose turn is remembered."""

REMEMBERED = timedelta(hours=1)
"""How long a turn is remembered at least: a key that has waited for longer is first anyway."""


class Entry(msgspec.Struct, frozen=True, gc=False):
    """A job that waits in line, as far as it matters here."""

    seq: int
    rank: int
    """Smaller goes first."""
    arrived_at: int
    """In microseconds since 1970, as stores keep it."""
    unstarted_losses: int = 0
    expired: bool = False


class Usage(msgspec.Struct):
    """What is in use while jobs are given away; grows with each that is."""

    held: dict[Bound, int] = {}
    """How many jobs of a bound are held."""
    spent: dict[Bound, Spent] = {}
    """What was used of a rate."""
    last: dict[Turn, int] = {}
    """When a key last had its turn, in microseconds since 1970."""


class Dealt(msgspec.Struct):
    """Who is given to the worker, in order."""

    taken: list[Entry]
    spent: dict[Bound, Spent]
    """What has to be remembered of rates."""
    turned: dict[Turn, int]
    """The keys that had a turn now, and how many jobs they were given."""
    next_permit: datetime | None = None
    """When a rate that kept somebody waiting has a permit again."""
    full: dict[Bound, int] = {}
    """Bounds that kept somebody waiting, and how many are held of each."""


def lapses(spent: Spent) -> datetime:
    """From when on it says nothing, and may be forgotten."""
    return max(until for until, _ in spent)


class _Kind:
    """What jobs of one queue and one task are bound by, whatever their keys."""

    __slots__ = ("concurrency", "limited", "max_per_key", "paced", "paced_by_key", "place", "task")

    def __init__(self, group: Group, limits: Limits) -> None:
        plain = Group(group.queue, group.task)
        self.task, self.place = group.task, -limits.queue(group.queue).priority
        self.limited = limits.bounded(group.queue, group.task)
        self.max_per_key = limits.task(group.task).max_per_key
        self.concurrency = list(limits.concurrency(plain).items())
        self.paced = list(limits.paced(plain).items())
        self.paced_by_key = [rate for rate in limits.named(plain).values() if rate.keyed]


class _Hand:
    """One group on the table: the next of its jobs, and what it is bound by."""

    __slots__ = ("concurrency", "entries", "head", "kind", "paced", "turn")

    def __init__(self, group: Group, entries: Iterator[Entry], kind: _Kind, limits: Limits) -> None:
        self.kind, self.entries = kind, entries
        self.head: Entry | None = next(entries, None)
        self.concurrency: list[tuple[Bound, int]] = kind.concurrency
        self.paced: list[tuple[Bound, Rate]] = kind.paced
        self.turn: Turn | None = None
        if group.key is not None:
            self.turn = (kind.task, group.key)
            if kind.max_per_key is not None:
                self.concurrency = [*kind.concurrency, (("key", kind.task, group.key), kind.max_per_key)]
            if kind.paced_by_key:
                self.paced = list(limits.paced(group).items())

    def order(self, usage: Usage, dealt: Dealt) -> tuple[int, int, int, int, int]:
        """A key that has been given to lately goes behind what arrived before that: keys take turns."""
        head = self.head
        assert head is not None
        arrived, turn = head.arrived_at, 0
        if self.turn is not None and (last := usage.last.get(self.turn)) is not None and last > arrived:
            arrived, turn = last, dealt.turned.get(self.turn, 0)
        return (self.kind.place, head.rank, arrived, turn, head.seq)


def deal(
    lines: Iterable[tuple[Group, Iterable[Entry]]],
    ask: Ask,
    now: datetime,
    rules: Rules,
    limits: Limits,
    usage: Usage,
) -> Dealt:
    """Of jobs in line, group by group in their order, those the ask is given, as ``core.claim.pick`` would, but never
    beyond a limit. A limited job is given only into a free slot: none waits in a buffer for what it occupies."""
    dealt, at = Dealt([], {}, {}, None, {}), micros(now)
    kinds: dict[tuple[str, str], _Kind] = {}
    hands: list[_Hand] = []
    for group, entries in lines:
        kind = kinds.get((group.queue, group.task))
        if kind is None:
            kind = kinds[group.queue, group.task] = _Kind(group, limits)
        hands.append(_Hand(group, iter(entries), kind, limits))
    table = [(hand.order(usage, dealt), number) for number, hand in enumerate(hands) if hand.head is not None]
    heapq.heapify(table)
    while table and len(dealt.taken) < ask.n:
        _, number = heapq.heappop(table)
        hand = hands[number]
        entry = hand.head
        assert entry is not None
        if hand.kind.limited and (len(dealt.taken) >= ask.free or not _room(hand, usage, now, dealt)):
            continue  # none behind it can be given either: they share its limits
        if stops(len(dealt.taken), entry.unstarted_losses, ask, rules):
            break
        if not entry.expired:
            dealt.taken.append(entry)
            _take(hand, usage, now, at, dealt)
            if hand.kind.limited and not _room(hand, usage, now, dealt):
                continue  # who is next need not even be looked up
        hand.head = next(hand.entries, None)
        if hand.head is not None:
            heapq.heappush(table, (hand.order(usage, dealt), number))
    return dealt


def _room(hand: _Hand, usage: Usage, now: datetime, dealt: Dealt) -> bool:
    for bound, most in hand.concurrency:
        if usage.held.get(bound, 0) >= most:
            dealt.full[bound] = usage.held.get(bound, 0)
            return False
    for bound, rate in hand.paced:
        spent = usage.spent.get(bound, ())
        if permits(rate, spent, now) < 1:
            soon = next_permit(rate, spent, now)
            dealt.next_permit = soon if dealt.next_permit is None else min(dealt.next_permit, soon)
            return False
    return True


def _take(hand: _Hand, usage: Usage, now: datetime, at: int, dealt: Dealt) -> None:
    for bound, _ in hand.concurrency:
        usage.held[bound] = usage.held.get(bound, 0) + 1
    for bound, rate in hand.paced:
        usage.spent[bound] = dealt.spent[bound] = spend(rate, usage.spent.get(bound, ()), now)
    if hand.turn is not None:
        usage.last[hand.turn] = at
        dealt.turned[hand.turn] = dealt.turned.get(hand.turn, 0) + 1
