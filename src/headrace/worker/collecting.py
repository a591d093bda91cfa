"""Collecting the jobs of a bulk handler: claimed ahead, until there are enough of them or they have waited enough."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol
from uuid import UUID

from headrace.core.claim import order
from headrace.core.job import Job
from headrace.handler import Bulk, Handler
from headrace.worker.buffer import Buffer
from headrace.worker.bulk import Call
from headrace.worker.hold import Hold

if TYPE_CHECKING:
    from headrace.worker.floor import Floor

__all__ = ["Collector", "Owner", "begin_calls"]

WAITED_TOO_LONG = 1.0


def begin_calls(floor: Floor) -> None:
    """Make the calls that are ready, as long as there are slots for them."""
    for collector in floor.collectors:
        while collector.ready and floor.has_slot and floor.may_begin():
            floor.called_last = True
            collector.begin()
        collector.call_back()


class Owner(Protocol):
    """What a collector needs of its worker."""

    id: UUID

    def idle(self, fetcher: object = None) -> None:
        """There was nothing to claim."""
        ...

    def taken(self) -> None:
        """There was."""
        ...


class Collector:
    """Collects the jobs of one bulk handler; has a fetcher of its own, which it tells how many to claim."""

    def __init__(self, handler: Handler, bulk: Bulk, floor: Floor) -> None:
        self.handler, self.bulk = handler, bulk
        self.waiting = Buffer()
        """Claimed, and in no call yet."""
        self.owner: Owner | None = None
        self.wake: Callable[[], None] = lambda: None
        """Has its fetcher look again."""
        self._turned_away = False
        """Its fetcher asked when there was no slot to be hoped for."""
        self._floor = floor
        self._timer: asyncio.TimerHandle | None = None
        self._due = False
        self.calls: set[Call] = set()

    @property
    def names(self) -> frozenset[str]:
        """What its jobs may be called."""
        return frozenset({self.handler.name, *self.handler.aliases})

    # -- for its fetcher

    @property
    def id(self) -> UUID:
        """In whose name to claim."""
        assert self.owner is not None, "a collector that fetches has a worker"
        return self.owner.id

    def room(self) -> tuple[int, int]:
        """How many jobs to ask for, and how many of them could be started at once."""
        self._turned_away = not self._hopeful
        if self._turned_away:
            return 0, 0
        wanted = max(0, self.bulk.size - len(self.waiting))
        return wanted, wanted if self._floor.has_slot else 0

    @property
    def _hopeful(self) -> bool:
        floor = self._floor
        return floor.may_begin() and (floor.has_slot or floor.turns_over)

    def call_back(self) -> None:
        """Slots may have come free: wake the fetcher if that is news to it. Not whenever any job ends: others' jobs
        are none of its business."""
        if self._turned_away and self._hopeful:
            self._turned_away = False
            self.wake()

    def take(self, jobs: Sequence[Job], queue_priorities: Mapping[str, int]) -> None:
        """Here they are."""
        if self.owner is not None:
            self.owner.taken()
        holds = self._floor.hold(jobs)
        self.waiting.add(holds, lambda hold: order(hold.job, queue_priorities.get(hold.job.spec.queue, 0)))
        self._wait()
        self._floor.dispatch()

    def idle(self) -> None:
        """There was nothing to claim."""
        if self.owner is not None:
            self.owner.idle(self)

    # -- collecting

    def _wait(self) -> None:
        if self._timer is None and not self._due:
            self._timer = asyncio.get_running_loop().call_later(self.bulk.wait, self._waited)

    def _waited(self) -> None:
        self._timer = None
        if len(self.waiting):
            self._due = True
            self._floor.dispatch()

    @property
    def ready(self) -> bool:
        """Whether there is a call to be made."""
        return len(self.waiting) >= self.bulk.size or (self._due and len(self.waiting) > 0)

    def begin(self) -> None:
        """Make a call with what there is."""
        holds: list[Hold] = []
        while len(holds) < self.bulk.size and (hold := self.waiting.pop()) is not None:
            holds.append(hold)
        self._due = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if len(self.waiting):
            self._wait()
        if holds:
            self.calls.add(Call(self, self._floor, holds))
            self.wake()

    def gives_up(self) -> bool:
        """Whether its jobs wait for a slot that does not come: others may have them."""
        oldest = self.waiting.oldest()
        if oldest is None or self._floor.has_slot:
            return False
        since = oldest.job.assigned_at or oldest.job.updated_at
        return (self._floor.host.clock.now() - since).total_seconds() > self.bulk.wait + WAITED_TOO_LONG

    def close(self) -> None:
        """Let go of calls that do not end."""
        if self._timer is not None:
            self._timer.cancel()
        for call in list(self.calls):
            call.abandon()
