"""Suspects on a worker: of jobs in quarantine, which may have killed other workers, it runs one at a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from headrace.core.job import Job
from headrace.core.lifecycle.suspects import QUARANTINE, REQUIREMENT
from headrace.core.matching.match import Profile, serves
from headrace.engine import Claimed
from headrace.engine.bus import Hint, Topic
from headrace.worker.claim.buffer import Buffer
from headrace.worker.claim.fetcher import Fetcher
from headrace.worker.claim.permits import Lead, Permits
from headrace.worker.owned_job import OwnedJob

if TYPE_CHECKING:
    from headrace.worker.slots import Slots

__all__ = ["SuspectFetcher", "Suspects"]

MAX_WAIT_SECONDS = 1.0
REST_SECONDS = 0.25
"""Seconds between two claims that gave nothing, at least: other jobs fall due all the time."""


class Suspects:
    """The jobs in quarantine that a worker owns. They get free slots first, since they are few, and never wait in the
    buffer."""

    def __init__(self, slots: Slots) -> None:
        self.waiting = Buffer()
        """Those that have no slot yet."""
        self.turned_away = False
        """Whether its fetcher found no room."""
        self.wants_slot = False
        """Whether there was no room for want of a slot: then the next one that comes free is for a suspect, if any."""
        self.wake: Callable[[], None] = lambda: None
        """Has its fetcher check again."""
        self.lead = Lead(slots.host.clock)
        """How long after its claim a suspect that spent a permit of a rate may begin: its start is written first."""
        self._slots = slots
        self._owned: set[OwnedJob] = set()

    @property
    def any_here(self) -> bool:
        """Whether this worker owns jobs in quarantine, as far as it knows."""
        return bool(self._owned)

    def _runs_one(self) -> bool:
        """Whether it owns one that has not yielded its slot: such a one waits for others, maybe in quarantine."""
        slots = self._slots
        # The heartbeat may have given some back silently, because the loop was blocked.
        self._owned = {owned for owned in self._owned if slots.owned.get(owned.job.id.int) is owned}
        return any((run := slots.runs.get(owned)) is None or not run.yielded for owned in self._owned)

    # -- for its fetcher

    def room(self) -> tuple[int, int]:
        """How many to request: one, or none."""
        room = self._has_room()
        self.turned_away = not room
        return int(room), int(room)

    def _has_room(self) -> bool:
        slots = self._slots
        if not slots.may_begin():
            return False
        if self._runs_one():
            self.asked()  # no other would take a slot that comes free now
            return False
        if not (slots.has_slot or slots.turns_over):
            self.wants_slot = True
            return False
        return True

    def asked(self) -> None:
        """Leave free slots to other jobs again: what there was to be claimed is here, or nothing is to be claimed."""
        if self.wants_slot:
            self.wants_slot = False
            self._slots.hungry()

    def take(self, jobs: Sequence[Job], queue_priorities: Mapping[str, int], permits: Permits | None = None) -> None:
        """Begin what was claimed, as soon as there are slots."""
        claimed = self._slots.own(jobs, permits, self._settled)
        self._owned.update(claimed)
        self.waiting.add(claimed, queue_priorities)
        self._slots.dispatch()

    # -- through

    def begin(self) -> None:
        """Begin those that wait, as long as there are slots; wake the fetcher if there is room again."""
        slots = self._slots
        while len(self.waiting) and slots.has_slot and slots.may_begin() and (owned := self.waiting.pop()) is not None:
            self._begin(owned)
        if self.turned_away and self._has_room():
            self.turned_away = False
            self.wake()

    def _begin(self, owned: OwnedJob) -> None:
        handler = owned.handler
        if handler.bulk is None:
            self._slots.run_alone(owned)
        else:
            next(one for one in self._slots.collectors if one.handler is handler).call([owned])

    async def clear_the_way(self) -> None:
        """Wait until what happened here so far is stored: the finishes on their way, since the job that begins next may
        kill the worker, and the starts of what runs, since one of these may, and the store must know that they ran."""
        slots = self._slots
        running = [owned for owned in slots.runs if owned.start_due]
        for owned in running:
            owned.write_start()
        for owned in running:
            await owned.landed()
        if slots.unacknowledged:
            for owned in [one for one in slots.owned.values() if one.ending is not None and not one.over]:
                await owned.landed()

    def gives_up(self, now: datetime) -> bool:
        """Whether they have waited too long for a slot, so that other workers should have them."""
        return len(self.waiting) > 0 and not self._slots.has_slot and self.waiting.waited(now) > MAX_WAIT_SECONDS

    # -- out

    def _settled(self, owned: OwnedJob, stored: bool) -> None:
        self._slots.settled(owned, stored)
        self._owned.discard(owned)
        self.wake()


class SuspectFetcher(Fetcher):
    """Claims jobs in quarantine. It sleeps as long as the store has no profile of any that this worker could run."""

    _taker: Suspects

    def _serves(self, profile: Profile) -> bool:
        offers = {**self._worker.offers, **QUARANTINE}
        return REQUIREMENT in profile.requires and serves(profile, self._tasks, offers)

    def _room(self) -> tuple[int, int]:
        if not self._served:
            self._taker.asked()
            self._worker.idle(self)
            return 0, 0
        return super()._room()

    async def _claim(self, n: int, free: int) -> tuple[Claimed, Permits | None] | None:
        try:
            return await super()._claim(n, free)
        finally:
            self._taker.asked()

    def _hinted(self, hint: Hint) -> None:
        # What is submitted is not in quarantine. A sweep names no queues.
        if hint.topic is Topic.SETTINGS or not hint.names:
            self.wake()

    def _pause(self, claimed: Claimed) -> float:
        return max(REST_SECONDS, super()._pause(claimed))
