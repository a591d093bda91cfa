"""Collecting the jobs of a bulk handler: claimed ahead, until there are enough of them or they have waited enough."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from headrace.core.job import Job
from headrace.worker.claim.buffer import Buffer
from headrace.worker.claim.permits import Lead, Permits
from headrace.worker.execution.bulk import BulkCall
from headrace.worker.handler import Bulk, Handler
from headrace.worker.owned_job import OwnedJob

if TYPE_CHECKING:
    from headrace.worker.slots import Slots

__all__ = ["Collector"]

MAX_WAIT_SECONDS = 1.0


class Collector:
    """Collects the jobs of one bulk handler, and sets how many its own fetcher claims."""

    def __init__(self, handler: Handler, bulk: Bulk, slots: Slots) -> None:
        self.handler, self.bulk = handler, bulk
        self.waiting = Buffer()
        """The claimed jobs that are in no call yet."""
        self.wake: Callable[[], None] = lambda: None
        """Has its fetcher check again."""
        self._turned_away = False
        """Whether its fetcher wanted jobs while no slot was likely to come free soon."""
        self._slots = slots
        self.lead = Lead(slots.host.clock, bulk.wait)
        """How long after its claim a job that spent a permit of a rate may begin."""
        self._timer: asyncio.TimerHandle | None = None
        self._due = False
        self.calls: set[BulkCall] = set()

    @property
    def names(self) -> frozenset[str]:
        """The task names that its jobs may have."""
        return frozenset({self.handler.name, *self.handler.aliases})

    # -- for its fetcher

    def room(self) -> tuple[int, int]:
        """How many jobs to request, and how many of them could start at once."""
        self._turned_away = not self._hopeful
        if self._turned_away:
            return 0, 0
        wanted = max(0, self.bulk.size - len(self.waiting))
        return wanted, wanted if self._slots.has_slot else 0

    @property
    def _hopeful(self) -> bool:
        slots = self._slots
        return slots.may_begin() and (slots.has_slot or slots.turns_over)

    def call_back(self) -> None:
        """Wake the fetcher if slots have come free since it was turned away, but not whenever any job ends."""
        if self._turned_away and self._hopeful:
            self._turned_away = False
            self.wake()

    def take(self, jobs: Sequence[Job], queue_priorities: Mapping[str, int], permits: Permits | None = None) -> None:
        """Keep the claimed jobs until there are enough for a call."""
        self.waiting.add(self._slots.own(jobs, permits), queue_priorities)
        self._wait()
        self._slots.dispatch()

    # -- collecting

    def _wait(self) -> None:
        if self._timer is None and not self._due:
            self._timer = asyncio.get_running_loop().call_later(self.bulk.wait, self._waited)

    def _waited(self) -> None:
        self._timer = None
        if len(self.waiting):
            self._due = True
            self._slots.dispatch()

    @property
    def ready(self) -> bool:
        """Whether there is a call to be made."""
        return len(self.waiting) >= self.bulk.size or (self._due and len(self.waiting) > 0)

    def begin(self) -> None:
        """Make a call with the jobs that wait, as many as it takes."""
        owned_jobs: list[OwnedJob] = []
        while len(owned_jobs) < self.bulk.size and (owned := self.waiting.pop()) is not None:
            owned_jobs.append(owned)
        self._due = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if len(self.waiting):
            self._wait()
        if owned_jobs:
            self.call(owned_jobs)
            self.wake()

    def call(self, owned_jobs: Sequence[OwnedJob]) -> None:
        """Make a call with these jobs."""
        self.calls.add(BulkCall(self, self._slots, owned_jobs))

    def gives_up(self, now: datetime) -> bool:
        """Whether its jobs have waited too long for a slot, so that other workers should have them."""
        return not self._slots.has_slot and self.waiting.waited(now) > self.bulk.wait + MAX_WAIT_SECONDS

    def close(self) -> None:
        """Cancel the calls that have not ended."""
        if self._timer is not None:
            self._timer.cancel()
        for call in list(self.calls):
            call.abandon()
