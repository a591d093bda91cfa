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
from headrace.core.rate import Spent, next_permit, permits, spend
from headrace.core.rule import Bound, Group, Limits
from headrace.core.rules import Rules

__all__ = ["Dealt", "Entry", "Usage", "deal", "lapses", "remembered", "turn_of"]


class Entry(msgspec.Struct, frozen=True, gc=False):
    """A job that waits in line, as far as it matters here."""

    seq: int
    rank: int
    """Smaller goes first."""
    arrived_at: datetime
    unstarted_losses: int = 0
    expired: bool = False


class Usage(msgspec.Struct):
    """What is in use while jobs are given away; grows with each that is."""

    held: dict[Bound, int] = {}
    """How many jobs of a bound are held."""
    spent: dict[Bound, Spent] = {}
    """What was used of a rate; and when a key last had its turn."""
    turns: dict[Bound, int] = {}
    """How many jobs of a key were given away just now."""


_REMEMBERED = timedelta(hours=1)
"""How long a key's turn is remembered: who has waited for longer is first anyway."""


def turn_of(group: Group) -> Bound | None:
    """What the last turn of a key is remembered by."""
    return None if group.key is None else ("turn", group.task, group.key)


def remembered(group: Group, limits: Limits) -> list[Bound]:
    """What must be known of the past before jobs of the group are dealt."""
    turn = turn_of(group)
    return [*limits.paced(group), *([] if turn is None else [turn])]


def lapses(bound: Bound, spent: Spent) -> datetime:
    """From when on it says nothing, and may be forgotten."""
    last = max(until for until, _ in spent)
    return last + _REMEMBERED if bound[0] == "turn" else last


class Dealt(msgspec.Struct):
    """Who is given to the worker, in order."""

    taken: list[Entry]
    spent: dict[Bound, Spent]
    """What has to be remembered of rates and turns."""
    next_permit: datetime | None = None
    """When a rate that kept somebody waiting has a permit again."""
    full: dict[Bound, int] = {}
    """Bounds that kept somebody waiting, and how many are held of each."""


class _Hand:
    """One group on the table: the next of its jobs, and what it is bound by."""

    def __init__(self, group: Group, entries: Iterator[Entry], limits: Limits) -> None:
        self.entries, self.place = entries, -limits.queue(group.queue).priority
        self.concurrency, self.paced = limits.concurrency(group), limits.paced(group)
        self.limited = limits.bounded(group.queue, group.task)
        self.turn = turn_of(group)
        self.head: Entry | None = next(entries, None)

    def order(self, usage: Usage) -> tuple[int, int, datetime, int, int]:
        """A key that has been given to lately goes behind what arrived before that: keys take turns."""
        assert self.head is not None
        arrived, turn = self.head.arrived_at, 0
        if self.turn is not None and (last := usage.spent.get(self.turn)) and last[0][0] > arrived:
            arrived, turn = last[0][0], usage.turns.get(self.turn, 0)
        return (self.place, self.head.rank, arrived, turn, self.head.seq)


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
    dealt = Dealt([], {}, None, {})
    hands = [_Hand(group, iter(entries), limits) for group, entries in lines]
    table = [(hand.order(usage), number) for number, hand in enumerate(hands) if hand.head is not None]
    heapq.heapify(table)
    while table and len(dealt.taken) < ask.n:
        _, number = heapq.heappop(table)
        hand = hands[number]
        entry = hand.head
        assert entry is not None
        if hand.limited and (len(dealt.taken) >= ask.free or not _room(hand, usage, now, dealt)):
            continue  # none behind it can be given either: they share its limits
        if stops(len(dealt.taken), entry.unstarted_losses, ask, rules):
            break
        if not entry.expired:
            dealt.taken.append(entry)
            _take(hand, usage, now, dealt)
        hand.head = next(hand.entries, None)
        if hand.head is not None:
            heapq.heappush(table, (hand.order(usage), number))
    return dealt


def _room(hand: _Hand, usage: Usage, now: datetime, dealt: Dealt) -> bool:
    for bound, most in hand.concurrency.items():
        if usage.held.get(bound, 0) >= most:
            dealt.full[bound] = usage.held.get(bound, 0)
            return False
    for bound, rate in hand.paced.items():
        spent = usage.spent.get(bound, ())
        if permits(rate, spent, now) < 1:
            soon = next_permit(rate, spent, now)
            dealt.next_permit = soon if dealt.next_permit is None else min(dealt.next_permit, soon)
            return False
    return True


def _take(hand: _Hand, usage: Usage, now: datetime, dealt: Dealt) -> None:
    for bound in hand.concurrency:
        usage.held[bound] = usage.held.get(bound, 0) + 1
    for bound, rate in hand.paced.items():
        usage.spent[bound] = dealt.spent[bound] = spend(rate, usage.spent.get(bound, ()), now)
    if hand.turn is not None:
        usage.spent[hand.turn] = dealt.spent[hand.turn] = ((now, 0),)
        usage.turns[hand.turn] = usage.turns.get(hand.turn, 0) + 1
