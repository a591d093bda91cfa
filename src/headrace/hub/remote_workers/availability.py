"""Telling idle workers that there may be jobs: a few first, and more while those find some.

A worker that was told no_job and has a socket need not ask again and again. But a hint does not say how many jobs there
are, and to tell everybody of one job would make everybody claim.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import TYPE_CHECKING
from uuid import UUID

from headrace.engine.bus import Hint, Topic
from headrace.hub.auth.customers import OURS
from headrace.hub.remote_workers.messages import JobAvailable
from headrace.hub.remote_workers.remote_worker import RemoteWorker

if TYPE_CHECKING:
    from headrace.hub.remote_workers.fleet import Fleet

__all__ = ["Availability"]

ROUND_SECONDS = 0.1
"""Seconds between two rounds of telling."""
CLAIM_WAIT_SECONDS = 1.0
"""Seconds after which others are told, if none of those that were told has claimed."""
MAX_NOTIFIED_WORKERS = 64
"""Workers that are told at once, of those that are alike."""
MAX_NAMED_QUEUES = 20
"""Queues that are named; of more, none is."""


class _Wave:
    """Workers that are alike, and what they are told."""

    def __init__(self, at: float) -> None:
        self.queues: set[str] | None = set()
        """None: it may be any."""
        self.told: set[UUID] = set()
        self.count, self.next_at = 1, at

    def hear(self, names: tuple[str, ...]) -> None:
        if not names or self.queues is None or len(self.queues) + len(names) > MAX_NAMED_QUEUES:
            self.queues = None
        else:
            self.queues.update(names)


class Availability:
    """Who is told next, of those who are alike."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._waves: dict[bytes, _Wave] = {}
        self._ready: set[str] | None = set()
        """The queues in which there may be jobs since the last round; None: in any."""
        self._wake = asyncio.Event()

    def heard(self, hint: Hint) -> None:
        """There may be jobs in these queues."""
        names = {name for name in hint.names if not name.startswith(OURS)}
        if hint.topic is Topic.READY and (names or not hint.names):
            self._ready = None if self._ready is None or not hint.names else self._ready | names
            self._wake.set()

    def _begin(self) -> None:
        """Begin to tell whoever serves the queues in which there may be jobs."""
        ready, self._ready = self._ready, set()
        if ready is not None and not ready:
            return
        names = tuple(sorted(ready or ()))
        for like, worker in self._alike(names).items():
            wave = self._waves.get(like)
            if wave is None:
                wave = self._waves[like] = _Wave(self._fleet.monotonic())
            served = worker.wants.queues if worker.wants is not None else None
            wave.hear(names if served is None else tuple(name for name in names if name in served))

    def _alike(self, names: tuple[str, ...]) -> dict[bytes, RemoteWorker]:
        """One idle worker of each kind that serves one of these queues."""
        found: dict[bytes, RemoteWorker] = {}
        for worker in self._idle():
            if worker.like not in found and worker.wants is not None:
                queues = worker.wants.queues
                if not names or queues is None or not set(queues).isdisjoint(names):
                    found[worker.like] = worker
        return found

    def _idle(self) -> Iterator[RemoteWorker]:
        """Registered workers that can be told, have room, and do not wait for an answer already."""
        for worker in self._fleet.listening():
            if worker.wants is not None and not worker.given and not worker.full and not worker.buried:
                yield worker

    def claimed(self, like: bytes) -> None:
        """One of them has claimed: what it is given says how to go on."""
        if (wave := self._waves.get(like)) is not None:
            wave.next_at = self._fleet.monotonic() + CLAIM_WAIT_SECONDS

    def more(self, like: bytes) -> None:
        """One of them was given a job: there may be more."""
        if (wave := self._waves.get(like)) is not None:
            wave.count, wave.next_at = min(2 * wave.count, MAX_NOTIFIED_WORKERS), 0.0
            self._wake.set()

    def dry(self, like: bytes) -> None:
        """The store has nothing for them: no more of them are told."""
        self._waves.pop(like, None)

    async def run(self) -> None:
        """Tell them, round by round, until all have been told."""
        host = self._fleet.session.host
        while True:
            self._wake.clear()
            await host.wait(self._wake, CLAIM_WAIT_SECONDS if self._waves else None)
            self._begin()
            now, by_kind = self._fleet.monotonic(), dict[bytes, list[RemoteWorker]]()
            if any(wave.next_at <= now for wave in self._waves.values()):
                for worker in self._idle():
                    by_kind.setdefault(worker.like, []).append(worker)
            for like, wave in list(self._waves.items()):  # no await in here: none of them goes dry meanwhile
                if wave.next_at <= now:
                    self._tell(like, wave, by_kind.get(like, []), now)
            await host.sleep(ROUND_SECONDS)

    def _tell(self, like: bytes, wave: _Wave, idle: list[RemoteWorker], now: float) -> None:
        chosen = [worker for worker in idle if worker.id not in wave.told][: wave.count]
        if not chosen:
            del self._waves[like]  # all of them know
            return
        queues = () if wave.queues is None else tuple(sorted(wave.queues))
        for worker in chosen:
            wave.told.add(worker.id)
            if worker.line is not None:
                worker.line.push(JobAvailable(queues=queues))
        wave.count, wave.next_at = min(2 * wave.count, MAX_NOTIFIED_WORKERS), now + CLAIM_WAIT_SECONDS
