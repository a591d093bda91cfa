"""Workers that this hub lost the connection to: it is recorded, so that they count as dead if they do not come back,
here or at another hub, before their grace is over."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING
from uuid import UUID

from headrace.core.lifecycle.liveness import time_to_return
from headrace.engine import Watched
from headrace.engine.bus import PARTED, Hint, Topic
from headrace.errors import EngineError, StoreLost

if TYPE_CHECKING:
    from headrace.hub.remote_workers.fleet import Fleet
    from headrace.hub.remote_workers.remote_worker import RemoteWorker

__all__ = ["Parting"]

_log = logging.getLogger("headrace.hub")

_RETRY_SECONDS = 1.0
"""Seconds until the next attempt to record a lost connection."""


class Parting:
    """Records connections that ended without a close frame. It declares no worker dead: the sweeper does that.

    The record holds for one beat of the worker, and is void with the next: so it does not concern a worker that any
    hub has heard since.
    """

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._near: dict[UUID, RemoteWorker] = {}
        self._far: dict[UUID, tuple[str, float]] = {}
        """The proof that named the connection, and the seconds between two beats of the worker."""
        self._wake = asyncio.Event()

    @property
    def patience(self) -> float:
        """Seconds within which a worker must be back after its socket was cut off."""
        return time_to_return(self._fleet.grace, self._fleet.beats.every)

    def near(self, worker: RemoteWorker) -> None:
        """Note that a socket of a worker was cut off; ignored if the worker has another one here."""
        if worker.link is not None:
            return
        worker.parted = True
        self._near[worker.id] = worker
        self._wake.set()

    def far(self, worker: UUID, proof: str, cadence: float) -> None:
        """Note that this worker's connection of a remote engine was cut off; ``cadence``: seconds between its beats."""
        self._far[worker] = proof, cadence
        self._wake.set()

    def hinted(self, hint: Hint) -> None:
        """Contradict another hub that has lost a worker which has a connection here, too."""
        for name in hint.names:
            if name.startswith(PARTED):
                with suppress(ValueError):  # anybody who may notify can send any name
                    worker = self._fleet.workers.get(UUID(name.removeprefix(PARTED)))
                    if worker is not None and worker.link is not None:
                        self._fleet.beats.soon(worker)

    async def run(self) -> None:
        """Record the lost connections."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            try:
                await self._note_near()
                await self._note_far()
            except StoreLost:
                raise
            except EngineError as error:
                _log.info("it is not on record yet which workers were cut off: %s", error)
            except Exception:
                _log.exception("workers were cut off, and that could not be put on record")
            if self._near or self._far:
                await self._fleet.session.host.sleep(_RETRY_SECONDS)
                self._wake.set()

    async def _note_near(self) -> None:
        for id, worker in list(self._near.items()):
            await self._fleet.beats.part(worker)
            self._near.pop(id, None)

    async def _note_far(self) -> None:
        if not self._far:
            return
        rows = await self._fleet.rows()
        for id, (proof, cadence) in list(self._far.items()):
            # Its newest beat names the newest of its connections: if that is another, it is back.
            if (row := rows.get(id)) is not None and row.proof == proof:
                await self.record(id, row.beats, time_to_return(self._fleet.grace, cadence))
            if self._far.get(id) == (proof, cadence):
                del self._far[id]

    async def record(self, worker: UUID, number: int, patience: float) -> None:
        """Record that the worker must be heard within so many seconds, if this is still its number."""
        engine = self._fleet.session.engine
        await engine.workers.watched(worker, Watched(number, 0, 0.0, grace=patience))
        engine.bus.send(Hint(Topic.SETTINGS, (f"{PARTED}{worker}",)))
