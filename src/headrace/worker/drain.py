"""Draining: another process requests that a worker finishes what it has and leaves.

The wish is a setting under the worker's id. A hint reports it at once; without one the worker learns from the reply to
its next beat that settings have changed, and reads them. A worker that leaves removes the wish.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from uuid import UUID

from headrace.engine import Engine, Setting
from headrace.engine.bus import Hint
from headrace.errors import EngineError
from headrace.logs import short

__all__ = ["DRAIN", "Drain", "wish_about"]

_log = logging.getLogger("headrace.worker")

DRAIN = "drain:"
"""What the key of such a setting begins with; the id of a worker follows."""


async def wish_about(engine: Engine, worker: UUID) -> Setting | None:
    """The stored wish that this worker leaves, if there is one."""
    return next(iter(await engine.documents.settings(f"{DRAIN}{worker}")), None)


class Drain:
    """Reads whether its worker is to leave."""

    def __init__(self, engine: Engine, leave: Callable[[], None]) -> None:
        self._engine, self._leave = engine, leave
        self._rev = -1
        """Revision of the settings when it last read them."""

    def is_news(self, rev: int) -> bool:
        """Whether settings have changed since it last read them."""
        return rev != self._rev

    @staticmethod
    def concerns(hint: Hint, worker: UUID) -> bool:
        """Whether a hint about settings may be about this worker."""
        return not hint.names or f"{DRAIN}{worker}" in hint.names

    async def look(self, worker: UUID, rev: int | None = None) -> None:
        """Have the worker leave if that is wished; ``rev``: revision of the settings, from the reply to a beat."""
        if await wish_about(self._engine, worker) is not None:
            _log.info("worker %s was asked to leave: it claims no more, and finishes what it has", short(worker))
            self._leave()
        if rev is not None:
            self._rev = rev

    async def forget(self, worker: UUID) -> None:
        """Remove the wish: the worker is leaving."""
        try:
            wish = await wish_about(self._engine, worker)
            if wish is not None:
                await self._engine.documents.put_setting(wish.key, None, wish.rev)
        except EngineError as error:
            _log.debug("the wish that the worker leaves stays until another one is drained: %s", error)
