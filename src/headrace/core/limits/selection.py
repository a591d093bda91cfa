"""Selection under limits: which jobs a worker may be given now, within the limits of queues, tasks, keys and rates.

Limits are enforced only by claims: from what is held at that moment, in the commit of the claim. So a slot is never
given back; it is free as soon as its job has left its owner, in whatever way.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime

import msgspec

from headrace.core.defaults import Rules
from headrace.core.lifecycle.claim import ClaimRequest, stops
from headrace.core.limits.rate import Rate, Spent, micros, next_permit, permits, spend, trimmed
from headrace.core.limits.settings import Bound, Group, Limits
from headrace.errors import ConfigError

__all__ = ["Dealt", "QueuedEntry", "Turn", "Usage", "forgets", "lapses", "refusal", "select_jobs", "wanted"]

Turn = tuple[str, str]
"""A task and a key that take turns."""


class QueuedEntry(msgspec.Struct, frozen=True, gc=False):
    """A queued job, with what the selection must know of it."""

    seq: int
    rank: int
    """Smaller goes first."""
    arrived_at: int
    """In microseconds since 1970, as stores keep it."""
    unstarted_losses: int = 0
    expired: bool = False
    unread: bool = False
    """It is no job, but marks the position from which jobs were not read."""


class Usage(msgspec.Struct):
    """What is held and spent while jobs are selected; grows with each job that is given."""

    held: dict[Bound, int] = {}
    """How many jobs of a bound are held."""
    spent: dict[Bound, Spent] = {}
    """What was used of a rate."""
    last: dict[Turn, int] = {}
    """When a key last had its turn, in microseconds since 1970."""


class Dealt(msgspec.Struct):
    """The reply of ``select_jobs``: the jobs that the worker is given, in order, and what must be stored with that."""

    taken: list[QueuedEntry]
    spent: dict[Bound, Spent]
    """What must be remembered of rates."""
    turned: dict[Turn, int]
    """The keys that took a turn now, and how many jobs they were given."""
    next_permit: datetime | None = None
    """When a rate that kept a job waiting has a permit again."""
    full: dict[Bound, int] = {}
    """Bounds that kept a job waiting, and how many jobs are held of each."""
    cut: bool = False
    """It ended before jobs that were not read: with more of them, more can be given."""


def lapses(spent: Spent) -> datetime:
    """Return the moment from which on what was spent of a rate no longer counts and may be forgotten."""
    return max(until for until, _ in spent)


def forgets(last: int, before: datetime, *, in_line: bool) -> bool:
    """Return whether the last turn of a key is forgotten when a job of that key is pruned.

    ``last`` is the turn in microseconds since 1970, ``before`` the latest moment up to which jobs are pruned. A key
    with a queued job keeps its turn; so does one that took a turn since.
    """
    return not in_line and last <= micros(before)


def refusal(ask: ClaimRequest, limits: Limits) -> ConfigError | None:
    """Return why a request is refused: it selects customers in queues that are not by customer; None: it is not."""
    if ask.customers is None:
        return None
    if ask.queues is None:
        if any(rule.by_customer for rule in limits.queues.values()):
            return None
        mixed, where = "QUEUE", "in all queues"
    else:
        mixed = next((queue for queue in ask.queues if not limits.queue(queue).by_customer), "")
        if not mixed:
            return None
        where = f"in queue {mixed!r}"
    return ConfigError(
        f"{where} the jobs of all customers stand in one line, so a worker cannot choose among them:"
        f" headrace queues set {mixed} --by-customer"
    )


def wanted(group: Group, ask: ClaimRequest, limits: Limits) -> int:
    """Return the maximum jobs of a queue and a task that can be given: limited ones only into free slots."""
    if limits.closed(group.queue, group.task):
        return 0
    return min(ask.n, ask.free) if limits.bounded(group.queue, group.task) else ask.n


class _Kind:
    """The bounds of jobs of one queue and one task, whatever their keys."""

    __slots__ = ("concurrency", "limited", "max_per_key", "paced", "paced_by_key", "place", "task")

    def __init__(self, group: Group, limits: Limits) -> None:
        plain = Group(group.queue, group.task)
        self.task, self.place = group.task, -limits.queue(group.queue).priority
        self.limited = limits.bounded(group.queue, group.task)
        self.max_per_key = limits.task(group.task).max_per_key
        self.concurrency = list(limits.concurrency(plain).items())
        self.paced = list(limits.paced(plain).items())
        self.paced_by_key = any(rate.keyed for rate in limits.named(plain).values())


class _Source(msgspec.Struct, eq=False):
    """One group in a selection, with its jobs that are left.

    Of thousands, few are given anything: the bounds of a group are computed when they are needed.
    """

    group: Group
    kind: _Kind
    entries: Iterator[QueuedEntry]
    head: QueuedEntry
    turn: Turn | None
    concurrency: list[tuple[Bound, int]] | None = None
    paced: Sequence[tuple[Bound, Rate]] = ()

    def __lt__(self, other: _Source) -> bool:
        """Of two at the same position, the unread one goes first: it may be a job that has left its subqueue."""
        return self.head.unread and not other.head.unread

    def room(self, limits: Limits, usage: Usage, now: datetime, dealt: Dealt) -> bool:
        """Return whether one more may be given."""
        concurrency = self.concurrency
        if concurrency is None:
            concurrency = self._bind(limits)
        for bound, most in concurrency:
            if (held := usage.held.get(bound, 0)) >= most:
                dealt.full[bound] = held
                return False
        return not self.paced or _permitted(self.paced, usage, now, dealt)

    def take(self, usage: Usage, now: datetime, lead: float, dealt: Dealt) -> bool:
        """Count one that is given where there was room; return whether there is still."""
        free, held = True, usage.held
        for bound, most in self.concurrency or ():
            held[bound] = count = held.get(bound, 0) + 1
            free = free and count < most
        if not self.paced:
            return free
        for bound, rate in self.paced:
            usage.spent[bound] = dealt.spent[bound] = spend(rate, usage.spent.get(bound, ()), now, lead=lead)
        return free and _permitted(self.paced, usage, now, dealt)

    def _bind(self, limits: Limits) -> list[tuple[Bound, int]]:
        kind, key = self.kind, self.group.key
        self.paced = kind.paced
        self.concurrency = kind.concurrency
        if key is not None and kind.max_per_key is not None:
            self.concurrency = [*kind.concurrency, (("key", kind.task, key), kind.max_per_key)]
        if key is not None and kind.paced_by_key:
            self.paced = list(limits.paced(self.group).items())
        return self.concurrency


_Place = tuple[int, int, int, int, int, _Source]
"""The position of a group: smaller goes first. Two have the same order number, which is the last but one, only if one
of them is unread: an engine may still know a job by the subqueue that it was moved from."""


def select_jobs(
    lines: Iterable[tuple[Group, Iterable[QueuedEntry]]],
    ask: ClaimRequest,
    now: datetime,
    rules: Rules,
    limits: Limits,
    usage: Usage,
    held_of: Iterable[str | None] = (),
) -> Dealt:
    """Return those of queued jobs, group by group in order, that the request is given, as ``core.lifecycle.claim.pick``
    would, but never beyond a limit. A limited job is given only into a free slot, since in a buffer it would occupy its
    limit. A job that a rate counts may begin until ``ask.lead`` seconds from now, and its permit is spent as of then.
    An ``unread`` entry may end a group: a caller that cannot read all of it learns whether that mattered. ``held_of``:
    the customers of the jobs that the worker holds, for ``ask.customers``."""
    dealt, at = Dealt([], {}, {}, None, {}), micros(now)
    whose, mine = ask.customers, set(held_of)
    taken, turned = dealt.taken, dealt.turned
    table = _laid_out(lines, limits, usage)
    while table and len(taken) < ask.n:
        source = heapq.heappop(table)[-1]
        entry, limited = source.head, source.kind.limited
        if whose is not None and not whose.admits(source.group.customer, mine):
            continue  # nor any behind it: they are of the same customer
        if limited and (len(taken) >= ask.free or not source.room(limits, usage, now, dealt)):
            continue  # none behind it can be given either: they share its limits
        if entry.unread:
            dealt.cut = True
            break
        if stops(len(taken), entry.unstarted_losses, ask, rules):
            break
        if not entry.expired:
            taken.append(entry)
            if whose is not None:
                mine.add(source.group.customer)
            if source.turn is not None:
                usage.last[source.turn] = at
                turned[source.turn] = turned.get(source.turn, 0) + 1
            if limited and not source.take(usage, now, ask.lead, dealt):
                continue  # the next one need not even be looked up
        head = next(source.entries, None)
        if head is not None:
            source.head = head
            heapq.heappush(table, _place(source, usage.last, turned))
    return dealt


def _laid_out(lines: Iterable[tuple[Group, Iterable[QueuedEntry]]], limits: Limits, usage: Usage) -> list[_Place]:
    kinds: dict[tuple[str, str], _Kind] = {}
    table: list[_Place] = []
    for group, entries in lines:
        kind = kinds.get((group.queue, group.task))
        if kind is None:
            kind = kinds[group.queue, group.task] = _Kind(group, limits)
        rest = iter(entries)
        head = next(rest, None)
        if head is not None:
            turn = None if group.key is None else (kind.task, group.key)
            table.append(_place(_Source(group, kind, rest, head, turn), usage.last, {}))
    heapq.heapify(table)
    return table


def _place(source: _Source, last: Mapping[Turn, int], turned: Mapping[Turn, int]) -> _Place:
    """Put a key that was served recently behind what arrived before that: keys take turns."""
    head = source.head
    arrived, turn = head.arrived_at, 0
    if source.turn is not None and (latest := last.get(source.turn, arrived)) > arrived:
        arrived, turn = latest, turned.get(source.turn, 0)
    return (source.kind.place, head.rank, arrived, turn, head.seq, source)


def _permitted(paced: Sequence[tuple[Bound, Rate]], usage: Usage, now: datetime, dealt: Dealt) -> bool:
    for bound, rate in paced:
        spent = usage.spent.get(bound, ())
        if permits(rate, spent, now) < 1:
            if (less := trimmed(rate, spent, now)) is not None:
                usage.spent[bound] = dealt.spent[bound] = less
            soon = next_permit(rate, spent, now)
            dealt.next_permit = soon if dealt.next_permit is None else min(dealt.next_permit, soon)
            return False
    return True
