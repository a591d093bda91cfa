"""Claiming: a fetcher requests as many jobs as the worker can start soon, and sleeps until there may be more."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from headrace.core.lifecycle.claim import ClaimRequest
from headrace.core.limits.settings import limits_of
from headrace.core.matching.match import Profile, serves
from headrace.engine import Claimed, Dead, Profiles
from headrace.engine.bus import Hint, Topic
from headrace.errors import EngineError, StoreLost, Unavailable
from headrace.runtime.retries import Pauses
from headrace.runtime.service import Service
from headrace.worker.claim.permits import Permits

if TYPE_CHECKING:
    from headrace.worker.claim.collector import Collector
    from headrace.worker.claim.suspects import Suspects
    from headrace.worker.slots import Slots
    from headrace.worker.worker import Worker

__all__ = ["Fetcher"]

_log = logging.getLogger("headrace.worker")

POLL_FIRST_SECONDS, POLL_MAX_SECONDS = 1.0, 5.0
_PAUSE_SECONDS = 0.02
_FIRST_RETRY_SECONDS, _MAX_RETRY_SECONDS = 0.05, 2.0
FRESH_SECONDS = 0.005
"""Seconds for which a fetcher relies on a claim that returned all there was."""
_MAX_CLAIM_JOBS = 1000


class Fetcher(Service):
    """Claims jobs for the slots or for the collector of a bulk handler, as many as that has room for."""

    def __init__(
        self,
        worker: Worker,
        taker: Slots | Collector | Suspects,
        tasks: frozenset[str],
        saturated: Callable[[], frozenset[str]],
    ) -> None:
        """``saturated``: tasks of which nothing is to be claimed for now."""
        super().__init__()
        self._worker, self._taker, self._tasks, self._saturated = worker, taker, tasks, saturated
        self._engine, self._host, self._queues = worker.engine, worker.host, worker.queues
        self._served: frozenset[int] = frozenset()
        self._asked = self._served
        """The profiles of the last claim: a beat may add others meanwhile."""
        self._profiles: dict[int, Profile] = {}
        self.profiles_rev = -1
        """The rev of the profiles that it knows of."""
        self._settings_rev = -1
        self._priorities: dict[str, int] = {}
        self._wake = asyncio.Event()
        self._hints = 0
        """How many hints came since the last claim."""
        self._content_until = -math.inf
        """Until when there is nothing more to be claimed, however many slots come free (monotonic)."""
        self._polls = Pauses(self._host, POLL_FIRST_SECONDS, POLL_MAX_SECONDS, factor=1.5, spread=(0.75, 1.25))
        self._retries = Pauses(self._host, _FIRST_RETRY_SECONDS, _MAX_RETRY_SECONDS, spread=(0.5, 1.0))
        self._unheed: Callable[[], None] | None = None
        self.request: int | None = None
        """The claim that is under way: what it is given is here, or may be any moment."""

    def wake(self) -> None:
        """Check again, because there may be room or jobs."""
        self._wake.set()

    def slot_freed(self) -> None:
        """Check again if there may be more jobs than there was room for."""
        if self._host.clock.monotonic() >= self._content_until:
            self._wake.set()

    async def stop(self) -> None:
        """Claim no more."""
        self.stopping.set()
        self.wake()
        await super().stop()

    async def main(self) -> None:
        """Claim while there is room; otherwise wait for a hint, the next due moment, or the next poll."""
        unlisten = self._engine.bus.listen(frozenset({Topic.READY, Topic.SETTINGS}), self._hinted)
        try:
            while not self.stopping.is_set():
                self._wake.clear()
                hints, self._hints, self._content_until = self._hints, 0, -math.inf
                wanted, free = self._room()
                if wanted <= 0:
                    await self._host.wait(self._wake, POLL_MAX_SECONDS)
                    continue
                held_back = bool(self._saturated())
                answer = await self._claim(min(wanted, _MAX_CLAIM_JOBS), free)
                if answer is None:
                    continue
                claimed, permits = answer
                if not held_back and _gave_all(claimed, free, hints):
                    self._content_until = self._host.clock.monotonic() + FRESH_SECONDS
                if claimed.jobs:
                    self._polls.reset()
                    self._worker.taken()
                    self._worker.writer.changes.tell(claimed.jobs)
                    self._taker.take(claimed.jobs, self._priorities, permits)
                fresh = await self._catch_up(claimed) or self._heed(claimed.full)
                if len(claimed.jobs) < wanted and not fresh and not self._wake.is_set():
                    if not claimed.jobs and claimed.profiles_rev == self.profiles_rev:
                        self._worker.idle(self)
                    await self._host.wait(self._wake, self._pause(claimed))
        finally:
            unlisten()
            self._heed(False)

    def _room(self) -> tuple[int, int]:
        """How many jobs to request, and how many of them could start at once."""
        return self._taker.room()

    def _heed(self, full: bool) -> bool:
        """Listen for freed slots as long as a limit keeps jobs waiting; whether one may just have been missed."""
        if not full and self._unheed is not None:
            self._unheed()
            self._unheed = None
        elif full and self._unheed is None:
            self._unheed = self._engine.bus.listen(frozenset({Topic.FREED}), self._freed)
            return True
        return False

    def _freed(self, hint: Hint) -> None:
        # Jobs end all the time elsewhere: one request to the store for each of them would be too many.
        asyncio.get_running_loop().call_later(_PAUSE_SECONDS, self._wake.set)

    def _hinted(self, hint: Hint) -> None:
        everybody = hint.topic is Topic.SETTINGS or self._queues is None or not hint.names
        if everybody or not set(self._queues or ()).isdisjoint(hint.names):
            self._hints += 1
            self._wake.set()

    async def _claim(self, n: int, free: int) -> tuple[Claimed, Permits | None] | None:
        """Claim, again until the store replies; what it gave and the permits it spent, or None if that is of no use."""
        if self.profiles_rev < 0 and not await self.know_profiles():
            return None
        self.request, self._asked = self._host.dice.token(), self._served
        try:
            wanted, lead = self._wanted(), self._taker.lead.seconds
            return await self._ask(
                ClaimRequest(n=n, free=free, profiles=wanted, queues=self._queues, lead=lead), self.request
            )
        finally:
            self.request = None

    def _wanted(self) -> frozenset[int]:
        """The profiles to request."""
        if saturated := self._saturated():
            return frozenset(id for id in self._served if self._profiles[id].task not in saturated)
        return self._served

    async def _ask(self, ask: ClaimRequest, request: int) -> tuple[Claimed, Permits | None] | None:
        retries, worker, clock, dealt = self._retries, self._worker.id, self._host.clock, None
        retries.reset()
        since, now = clock.monotonic(), clock.now()
        while True:
            try:
                await self._host.make_sure(self._engine)
                since, now = clock.monotonic(), clock.now()
                answer = await self._engine.jobs.claim(worker, ask, request, now)
            except StoreLost:
                raise
            except EngineError as error:
                if retries.is_first:
                    _log.warning("no jobs could be claimed, trying on: %s", error)
                # A request with a lost reply may have claimed jobs: repeat the same request, even when stopping.
                unknown = isinstance(error, Unavailable) and error.outcome == "unknown"
                if unknown and dealt is None:
                    dealt = now, since  # perhaps: the permits of what is given again were spent then
                if self.stopping.is_set() and (not unknown or retries.seconds > 1.0):
                    return None
                await retries.sleep()
                continue
            if isinstance(answer, Dead):
                await self._worker.died(worker)
                return None
            self._worker.polled()
            permits = None
            if answer.paced:
                permits = Permits(answer.paced, self._taker.lead, ask.lead, *(dealt or (now, since)))
            return answer, permits

    async def _catch_up(self, claimed: Claimed) -> bool:
        """Learn new profiles and settings; whether it is worth claiming again at once."""
        try:
            if claimed.profiles_rev != self.profiles_rev:
                await self.know_profiles()
            if claimed.settings_rev != self._settings_rev:
                limits = limits_of((doc.key, doc.value) for doc in await self._engine.documents.settings("queue:"))
                self._priorities = {name: rule.priority for name, rule in limits.queues.items()}
                self._settings_rev = claimed.settings_rev
        except StoreLost:
            raise
        except EngineError as error:
            _log.warning("settings could not be read, trying on: %s", error)
        return self._served != self._asked

    async def know_profiles(self) -> bool:
        """Read the profiles for all fetchers of the worker; whether the store replied."""
        try:
            known = await self._engine.documents.profiles()
        except StoreLost:
            raise
        except EngineError as error:
            _log.warning("the store cannot be asked, trying on: %s", error)
            await self._host.wait(self.stopping, 1.0)
            return False
        self._learn(known)
        for fetcher in self._worker.fetchers:
            if fetcher is not self and fetcher._learn(known):
                fetcher.wake()
        return True

    def _learn(self, known: Profiles) -> bool:
        """Note which profiles to serve; whether that changed anything."""
        before = self._served
        self._profiles = {one.id: one for one in known.profiles if self._serves(one)}
        self._served, self.profiles_rev = frozenset(self._profiles), known.rev
        return self._served != before

    def _serves(self, profile: Profile) -> bool:
        return serves(profile, self._tasks, self._worker.offers)

    def _pause(self, claimed: Claimed) -> float:
        poll = self._polls.next()
        if claimed.next_due is None:
            return poll
        return min(poll, max(0.0, (claimed.next_due - self._host.clock.now()).total_seconds()) + 0.001)


def _gave_all(claimed: Claimed, free: int, hints: int) -> bool:
    """Whether a claim gave all there was: then another one is not worth it just because a job ends a moment later.

    A fetcher that gets more jobs than hints claims again when these are done: jobs come faster than hints, or no
    hints come.
    """
    given = len(claimed.jobs)
    return given < free and given <= hints and not claimed.full
