"""Duties: loops that one holder does at a time, so that work is not done twice; harmless if it is."""

from __future__ import annotations

import asyncio
import logging
from abc import abstractmethod
from datetime import timedelta
from typing import ClassVar
from uuid import UUID

from headrace.engine import Engine
from headrace.engine.bus import Hint, Topic
from headrace.errors import EngineError, Overloaded, StoreLost, Unavailable
from headrace.runtime.host import Host
from headrace.runtime.retries import Pauses
from headrace.runtime.service import Service
from headrace.runtime.writes.writer import Writer

__all__ = ["BRIEF_LEASE_SECONDS", "Duty", "Elector"]

_log = logging.getLogger("headrace.maintenance")

_FIRST_PAUSE_SECONDS, _MAX_PAUSE_SECONDS = 0.5, 10.0
BRIEF_LEASE_SECONDS = 5.0
"""Seconds for which a holder that is no worker takes a duty: its death cannot be proved, its lease has to end."""
_RENEW_LEASE_RATIO = 0.6
"""Of a lease, after which it is renewed; one that lapses for want of time is taken over, and that does no harm."""


class Elector:
    """Holds a duty for one holder: taken when free, renewed well before its lease ends, given back on stop."""

    def __init__(self, engine: Engine, host: Host, holder: UUID, duty: str, seconds: float) -> None:
        self.engine, self.host, self.holder, self.duty = engine, host, holder, duty
        self.seconds = self.longest = seconds
        """For how long it is taken; and the longest that others take it for."""
        self.token: int | None = None
        self.asked_at = float("-inf")
        """When the duty was last requested (monotonic)."""
        self._ask_at = float("-inf")

    async def leads(self) -> bool:
        """Whether the duty is ours now; requests it from the store when it is time to.

        Because the renewal is a write, a store that replies to reads but takes no writes stops its leader here, before
        the leader judges workers that cannot write either.
        """
        asked = self.host.clock.monotonic()
        if asked < self._ask_at:
            return self.token is not None
        await self.host.make_sure(self.engine)
        means = self.holder, self.seconds, self.host.clock.now(), self.longest
        token = await self.engine.documents.lease(self.duty, *means)
        if token != self.token:
            _log.debug("%s: %s", self.duty, "taken over" if token is not None else "left to another")
            if token is not None:
                self._announce()
        self.token = token
        self.asked_at = asked
        # Those that stand by make their requests out of step with one another.
        spread = 1.0 if token is not None else 0.75 + self.host.dice.chance() / 4
        pause = self.seconds * _RENEW_LEASE_RATIO
        if token is None and pause > BRIEF_LEASE_SECONDS and await self._ends_soon():
            pause = BRIEF_LEASE_SECONDS
        self._ask_at = asked + pause * spread
        return token is not None

    async def _ends_soon(self) -> bool:
        """Whether the holder of the duty took it briefly: if it dies, no other process notices."""
        soon = self.host.clock.now() + timedelta(seconds=BRIEF_LEASE_SECONDS)
        return await self.engine.documents.holder(self.duty, soon) is None

    def briefly(self) -> None:
        """From now on take the duty for a short time only: the holder is not a worker."""
        self.seconds = min(self.seconds, BRIEF_LEASE_SECONDS)

    def hurry(self) -> None:
        """Request the duty at the next occasion: it may be free."""
        self._ask_at = float("-inf")

    def renamed(self, holder: UUID) -> None:
        """Go on for another holder; what the one before had is not ours any more."""
        self.holder, self.token = holder, None
        self.hurry()

    @property
    def asks_in(self) -> float:
        """Seconds until the duty must be requested again."""
        return max(0.0, self._ask_at - self.host.clock.monotonic())

    async def resign(self) -> None:
        """Give the duty back, if we have it; where the store is away, the lease runs out by itself."""
        token, self.token, self._ask_at = self.token, None, float("-inf")
        if token is None:
            return
        try:
            await self.engine.documents.unlease(self.duty, self.holder)
            self._announce()
        except EngineError as error:
            _log.debug("%s was not given back: %s", self.duty, error)

    def _announce(self) -> None:
        """Notify the others that the duty changed hands, or is free."""
        self.engine.bus.send(Hint(Topic.SETTINGS, (self.duty,)))


class Duty(Service):
    """A loop of ticks, made only while the duty is ours; survives every error, and logs it once per outage."""

    name: ClassVar[str]
    share: ClassVar[float] = 1.0
    """For how much of a worker's lease the duty is taken: how long it may be left undone when its holder dies."""
    topics: ClassVar[frozenset[Topic]] = frozenset({Topic.SETTINGS})
    """What it listens for."""

    def __init__(self, engine: Engine, writer: Writer, host: Host, holder: UUID) -> None:
        super().__init__()
        self.engine, self.writer, self.host, self.rules = engine, writer, host, engine.rules
        self.elector = Elector(engine, host, holder, f"duty:{self.name}", self.share * engine.rules.lease)
        self.wake = asyncio.Event()
        self._due = float("-inf")
        self._failures = 0
        self._pauses = Pauses(host, _FIRST_PAUSE_SECONDS, _MAX_PAUSE_SECONDS, spread=(0.75, 1.0))

    @abstractmethod
    async def tick(self) -> int:
        """One round; how much was done."""

    @abstractmethod
    def pause(self) -> float:
        """Seconds until the next round is worth making."""

    async def start(self) -> None:
        """Begin."""
        if self._task is None:
            self.wake = asyncio.Event()  # like the one of the service: made anew for the loop it runs on
            self._due = float("-inf")
        await super().start()

    def nudge(self) -> None:
        """Make the next round at once: something changed."""
        self._due = float("-inf")
        self.wake.set()

    def hurry(self) -> None:
        """Request the duty at once: it may be free."""
        self.elector.hurry()
        self.wake.set()

    def briefly(self) -> None:
        """Take the duty for a holder that is not a worker."""
        self.elector.briefly()

    def renamed(self, worker: UUID) -> None:
        """Go on for the worker's new id."""
        self.elector.renamed(worker)
        self.wake.set()

    async def stand_by(self) -> float:
        """What is to be done while another has the duty; the seconds until it is worth requesting again."""
        return self.elector.asks_in

    async def between(self) -> float:
        """What is to be done between two ticks while the duty is ours; the seconds until the next time."""
        return float("inf")

    async def stop(self) -> None:
        """End after the round under way, and give the duty back."""
        self.stopping.set()
        self.wake.set()
        await super().stop()

    async def main(self) -> None:
        """Tick until stopped."""
        unlisten = self.engine.bus.listen(self.topics, self.heard)
        try:
            while not self.stopping.is_set():
                self.wake.clear()
                await self.host.wait(self.wake, await self.round())
        finally:
            unlisten()
            await self.elector.resign()

    def heard(self, hint: Hint) -> None:
        """React to a hint: the duty changed hands, or is free."""
        if self.elector.token is None and (not hint.names or self.elector.duty in hint.names):
            self.hurry()

    async def round(self) -> float:
        """One tick, if the duty is ours and it is time; the seconds to wait before the next round."""
        clock = self.host.clock
        try:
            if not await self.elector.leads():
                self._due = float("-inf")
                return self._recovered(await self.stand_by())
            if clock.monotonic() >= self._due:
                self._due = float("inf")
                await self.tick()
                # A nudge during the tick calls for another one.
                self._due = min(self._due, clock.monotonic() + self.pause())
            pause = await self.between()
            return self._recovered(max(0.0, min(self._due - clock.monotonic(), self.elector.asks_in, pause)))
        except StoreLost:
            raise  # it does not come back: the worker ends by it
        except (Unavailable, Overloaded) as error:
            if not self._failures:
                _log.warning("%s waits for the store: %s", self.name, error)
        except Exception:
            # A loop that dies of one bad row would leave every job uncared for.
            if not self._failures:
                _log.exception("%s failed and goes on", self.name)
        self._failures += 1
        self._due = float("-inf")
        return self._pauses.next()

    def _recovered(self, pause: float) -> float:
        if self._failures:
            _log.warning("%s goes on after %d failed rounds", self.name, self._failures)
            self._failures = 0
            self._pauses.reset()
        return pause

    def _jitter(self) -> float:
        return 0.75 + self.host.dice.chance() / 4
