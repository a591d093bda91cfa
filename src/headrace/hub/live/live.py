"""All that is live in a hub: who is connected, and what they share."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from headrace.hub.live.feed import SharedFeed
from headrace.hub.live.open import Connections
from headrace.hub.live.stats import SharedStats

if TYPE_CHECKING:
    from headrace.hub.hub import Hub

__all__ = ["Live"]


class Live:
    """The connections of a hub, and what is read once for all of them."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self.connections = Connections(hub.options.sockets)
        self.feed, self.stats = SharedFeed(hub.app), SharedStats(hub.app)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """While the hub serves. Who came with a key goes with it, and when the hub drains everybody goes."""
        undo = self._hub.door.on_revoked(self.connections.revoke)
        draining = asyncio.create_task(self._drain(), name="headrace-hub-drain")
        try:
            yield
        finally:
            undo()
            draining.cancel()
            self.feed.close()
            self.stats.close()

    async def _drain(self) -> None:
        await self._hub.draining.wait()
        self.connections.drain()
