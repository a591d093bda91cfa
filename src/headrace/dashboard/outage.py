"""Outages of the store, as open pages find out: since when it does not answer, or takes no writes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

from headrace.errors import NotOpen, Unavailable

if TYPE_CHECKING:
    from headrace.app import App

__all__ = ["StoreWatch"]

T = TypeVar("T")

_log = logging.getLogger("headrace.dashboard")

PROBE_TIMEOUT_SECONDS = 2.0
"""Seconds after which a page that waits for the store probes it, and seconds that it may take to reply to a probe."""
PROBE_CACHE_SECONDS = 0.5
"""Seconds for which the result of a probe is cached: a store that is away gets two small reads a second, and no other,
however many pages are open."""
MAX_PROBE_SECONDS = 5.0
"""Seconds after which a probe without a reply is given up for another one: its connection may be dead for good."""
WRITE_EVERY_SECONDS, WRITE_AGAIN_SECONDS = 5.0, 1.0
"""Seconds between two small writes while pages are open; and after one that failed."""
WRITE_TIMEOUT_SECONDS = 2.0
"""Seconds after which pages say that a write waits: others may write for a moment."""


class StoreWatch:
    """Knows whether the store answers and takes writes, while pages are requested."""

    def __init__(self, app: App, on_return: Callable[[], object]) -> None:
        """``on_return`` is called when the store answers again."""
        self._app, self._on_return = app, on_return
        self.away_since: datetime | None = None
        """When a read first failed; None: the store answers."""
        self._asking: asyncio.Task[None] | None = None
        self._asked_until = 0.0
        self._ping: asyncio.Task[None] | None = None
        self._pinged_at = 0.0
        self._write: asyncio.Task[None] | None = None
        self._write_at = 0.0
        self._write_begun: tuple[float, datetime] | None = None
        """When the write that is under way began."""
        self._refused_since: datetime | None = None

    @property
    def unwritable_since(self) -> datetime | None:
        """When a write first failed, or began to wait; None: the store takes writes, as far as it is known."""
        if self._refused_since is not None or self._write_begun is None:
            return self._refused_since
        began, at = self._write_begun
        return at if self._monotonic() - began > WRITE_TIMEOUT_SECONDS else None

    async def read(self, make: Callable[[], Awaitable[T]]) -> T:
        """Return what ``make`` returns, which reads the store; :raises Unavailable: the store does not answer"""
        if self.away_since is not None:
            await self._probe(self.away_since)
        self._try_write()
        began = self._app.host.clock.now()
        making = asyncio.ensure_future(make())
        try:
            while not (await asyncio.wait({making}, timeout=PROBE_TIMEOUT_SECONDS))[0]:
                await self._probe(began)
            return making.result()
        except Unavailable:
            await self._probe(began)
            raise
        finally:
            if not making.done():
                making.cancel()
                making.add_done_callback(_retrieved)

    def _monotonic(self) -> float:
        return self._app.host.clock.monotonic()

    async def _probe(self, began: datetime) -> None:
        """Read something small, once for all requests; :raises Unavailable: the store has not answered since then"""
        if self.away_since is None or self._monotonic() >= self._asked_until:
            if self._asking is None or self._asking.done():
                self._asking = asyncio.create_task(self._ask(began))
            await asyncio.shield(self._asking)
        if self.away_since is not None:
            raise Unavailable("the store does not answer")

    async def _ask(self, began: datetime) -> None:
        ping = self._ping
        if ping is None or ping.done() or self._monotonic() - self._pinged_at > MAX_PROBE_SECONDS:
            if ping is not None:
                ping.cancel()
            ping = self._ping = asyncio.create_task(self._app.store.ping())
            ping.add_done_callback(_retrieved)
            self._pinged_at = self._monotonic()
        await asyncio.wait({ping}, timeout=PROBE_TIMEOUT_SECONDS)
        error = ping.exception() if ping.done() else TimeoutError(f"nothing within {PROBE_TIMEOUT_SECONDS:g} s")
        if isinstance(error, NotOpen):
            raise error
        self._asked_until = self._monotonic() + PROBE_CACHE_SECONDS
        if error is not None and self.away_since is None:
            self.away_since = began
            _log.warning("the store does not answer, and pages say so: %s", error)
        elif error is None and self.away_since is not None:
            _log.warning("the store answers again, after %s", self._app.host.clock.now() - self.away_since)
            self.away_since = self._refused_since = self._write_begun = self._write = None
            self._on_return()

    def _try_write(self) -> None:
        """Begin a small write, now and then: no page waits for it."""
        if self._write_begun is not None or self._monotonic() < self._write_at:
            return
        self._write_begun = self._monotonic(), self._app.host.clock.now()
        self._write = asyncio.create_task(self._app.store.ping(write=True))
        self._write.add_done_callback(self._written)

    def _written(self, write: asyncio.Task[None]) -> None:
        error = asyncio.CancelledError() if write.cancelled() else write.exception()
        if write is not self._write or self._write_begun is None:
            return  # from before the store was away
        (_, began), self._write_begun = self._write_begun, None
        # A store that may only be read is no outage.
        refused = isinstance(error, Unavailable)
        self._refused_since = (self._refused_since or began) if refused else None
        self._write_at = self._monotonic() + (WRITE_AGAIN_SECONDS if refused else WRITE_EVERY_SECONDS)


def _retrieved(task: asyncio.Future[Any]) -> None:
    """Mark an error as seen: no request waits for it any more."""
    if not task.cancelled():
        task.exception()
