"""Notifies idle workers that there may be jobs: a few first, and more while those find some.

A worker that got no_job and has a socket need not claim again and again. But a hint does not say how many jobs there
are, and to notify all workers of one job would make all of them claim.
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
"""Seconds between two rounds."""
CLAIM_WAIT_SECONDS = 1.0
"""Seconds after which others are notified, if none of the notified workers has claimed."""
MAX_NOTIFIED_WORKERS = 64
"""Workers of one kind that are notified at once, at first."""
MAX_NAMED_QUEUES = 20
"""Maximum of queues in a message; with more, it names none."""


class _Wave:
    """Workers of one kind that are being notified."""

    def __init__(self, at: float) -> None:
        self.queues: set[str] | None = set()
        """None: it may be any."""
        self.notified: set[UUID] = set()
        self.count, self.next_at = 1, at

    def hear(self, names: tuple[str, ...]) -> None:
        if not names or self.queues is None or len(self.queues) + len(names) > MAX_NAMED_QUEUES:
            self.queues = None
        else:
            self.queues.update(names)


class Availability:
    """Decides which worker of a kind is notified next."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._waves: dict[bytes, _Wave] = {}
        self._ready: set[str] | None = set()
        """The queues in which there may be jobs since the last round; None: in any."""
        self._wake = asyncio.Event()

    def heard(self, hint: Hint) -> None:
        """Note that there may be jobs in these queues."""
        names = {name for name in hint.names if not name.startswith(OURS)}
        if hint.topic is Topic.READY and (names or not hint.names):
            self._ready = None if self._ready is None or not hint.names else self._ready | names
            self._wake.set()

    def _begin(self) -> None:
        """Begin to notify the workers that serve the queues in which there may be jobs."""
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
        """Return one idle worker of each kind that serves one of these queues."""
        found: dict[bytes, RemoteWorker] = {}
        for worker in self._idle():
            if worker.like not in found and worker.wants is not None:
                queues = worker.wants.queues
                if not names or queues is None or not set(queues).isdisjoint(names):
                    found[worker.like] = worker
        return found

    def _idle(self) -> Iterator[RemoteWorker]:
        """Return the registered workers that have a connection and a free slot, and no waiting claim."""
        for worker in self._fleet.listening():
            if worker.wants is not None and not worker.given and not worker.full and not worker.buried:
                yield worker

    def claimed(self, like: bytes) -> None:
        """Note that one of them has claimed: what it is given says how to go on."""
        if (wave := self._waves.get(like)) is not None:
            wave.next_at = self._fleet.monotonic() + CLAIM_WAIT_SECONDS

    def more(self, like: bytes) -> None:
        """Note that one of them was given a job: there may be more."""
        if (wave := self._waves.get(like)) is not None:
            wave.count, wave.next_at = min(2 * wave.count, MAX_NOTIFIED_WORKERS), 0.0
            self._wake.set()

    def dry(self, like: bytes) -> None:
        """Note that the store has nothing for them: no more of them are notified."""
        self._waves.pop(like, None)

    async def run(self) -> None:
        """Notify them, round by round, until all have been notified."""
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
        chosen = [worker for worker in idle if worker.id not in wave.notified][: wave.count]
        if not chosen:
            del self._waves[like]  # all of them are notified
            return
        queues = () if wave.queues is None else tuple(sorted(wave.queues))
        for worker in chosen:
            wave.notified.add(worker.id)
            if worker.link is not None:
                worker.link.push(JobAvailable(queues=queues))
        wave.count, wave.next_at = min(2 * wave.count, MAX_NOTIFIED_WORKERS), now + CLAIM_WAIT_SECONDS
