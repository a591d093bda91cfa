"""Open streams and sockets, and what they share; they end when the hub drains or their key is revoked."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Protocol

from headrace.http.problems import Problem
from headrace.hub.auth.caller import Caller
from headrace.hub.live.feed import SharedFeed
from headrace.hub.live.stats import SharedStats

if TYPE_CHECKING:
    from headrace.hub.hub import Hub

__all__ = ["DRAINING", "REVOKED", "Connection", "Connections", "Live"]


DRAINING = Problem(
    503,
    "draining",
    "This hub is going away",
    "connect again: another hub goes on where this one ends",
    headers={"Retry-After": "1"},
)
REVOKED = Problem(401, "key", "The key does not count any more", "it was revoked, or it expired")


class Connection(Protocol):
    """A stream or a socket."""

    @property
    def caller(self) -> Caller | None:
        """The caller; None: it has not authenticated yet."""
        ...

    def let_go(self, problem: Problem) -> None:
        """Close it with the reason, without waiting for it."""
        ...


class Connections:
    """All open connections."""

    def __init__(self, most: int) -> None:
        self._most, self._open = most, set[Connection]()
        self._draining = False
        self._revoked: set[str | None] = set()
        """The keys that were revoked since this hub began: a request with one may be on its way in."""

    def __len__(self) -> int:
        """Return how many are open."""
        return len(self._open)

    def check(self) -> None:
        """Check that there is room for another connection; :raises Problem: 503"""
        if self._draining:
            raise DRAINING
        if len(self._open) >= self._most:
            detail = f"this hub has {self._most} streams and sockets open, and takes no more"
            raise Problem(503, "too-many-sockets", "Too many are connected", detail, headers={"Retry-After": "5"})

    @contextmanager
    def holding(self, connection: Connection) -> Iterator[None]:
        """Count the connection while it is open."""
        self._open.add(connection)
        if self._draining:
            connection.let_go(DRAINING)
        elif connection.caller is not None and connection.caller.key in self._revoked:
            connection.let_go(REVOKED)
        try:
            yield
        finally:
            self._open.discard(connection)

    def revoke(self, key: str | None) -> None:
        """Close all connections of this key; None: those without one."""
        self._revoked.add(key)
        for one in list(self._open):
            if one.caller is not None and one.caller.key == key:
                one.let_go(REVOKED)

    def drain(self) -> None:
        """Accept no more connections, and close all that are open because the hub stops."""
        self._draining = True
        for one in list(self._open):
            one.let_go(DRAINING)


class Live:
    """The connections of a hub, and the data that is read once for all of them."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self.connections = Connections(hub.options.sockets)
        self.feed, self.stats = SharedFeed(hub.app), SharedStats(hub.app)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run while the hub serves; close connections when their key is revoked, and all when the hub drains."""
        undo = self._hub.authenticator.on_revoked(self.connections.revoke)
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
