"""Workers behind this hub that are to leave: they are given no more jobs, and finish what they have."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING
from uuid import UUID

from headrace.engine.bus import Hint
from headrace.logs import short
from headrace.worker.drain import DRAIN, wish_about

if TYPE_CHECKING:
    from headrace.hub.remote_workers.fleet import Fleet
    from headrace.hub.remote_workers.remote_worker import RemoteWorker

__all__ = ["Leaving"]

_log = logging.getLogger("headrace.hub")


class Leaving:
    """Reads the requests that workers leave, when there may be new ones."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._rev = -1
        """The rev of the settings at the last read."""
        self._hinted = False

    def hinted(self, hint: Hint) -> bool:
        """Note a hint about settings; return whether it may be about a worker that is known here."""
        concerns = not hint.names or any(f"{DRAIN}{id}" in hint.names for id in self._fleet.workers)
        self._hinted = self._hinted or concerns
        return concerns

    async def look(self, rev: int | None = None) -> None:
        """Read which workers are to leave, if that may have changed; ``rev``: of the settings, by a beat's reply."""
        if not self._hinted and (rev is None or rev == self._rev):
            return
        self._hinted = False
        try:
            wishes = await self._fleet.session.engine.documents.settings(DRAIN)
        except BaseException:
            self._hinted = True  # the next call reads again
            raise
        self._rev = self._rev if rev is None else rev
        for wish in wishes:
            worker = self._fleet.workers.get(UUID(wish.key.removeprefix(DRAIN)))
            if worker is not None and not worker.leaving:
                self._leave(worker)

    async def look_for(self, worker: RemoteWorker) -> None:
        """Read whether a worker from another hub is to leave."""
        if not worker.leaving and await wish_about(self._fleet.session.engine, worker.id) is not None:
            self._leave(worker)

    def _leave(self, worker: RemoteWorker) -> None:
        _log.info("worker %s was asked to leave: it is given no more, and finishes what it has", short(worker.id))
        worker.leaving = True
        self._fleet.claims.withdraw_all(worker)
