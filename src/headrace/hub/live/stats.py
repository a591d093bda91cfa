"""The counts of the store, read once for all listeners, and sent when they have changed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from headrace.client.api.stats import Stats
from headrace.errors import HeadraceError

if TYPE_CHECKING:
    from headrace.app import App

__all__ = ["SharedStats"]

POLL_SECONDS = 1.0
"""Seconds between two reads."""
_MIN_PAUSE_RATIO = 20
"""The pause is also at least so many times as long as the last read took."""

_log = logging.getLogger("headrace.hub")


class SharedStats:
    """Reads the counts while it has listeners."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._last: Stats | None = None
        self._listeners: set[Callable[[Stats], None]] = set()
        self._task: asyncio.Task[None] | None = None

    async def join(self, listener: Callable[[Stats], None]) -> Stats:
        """Call the listener whenever the counts have changed; return the counts as they are now."""
        last = self._last or await self._app.stats.counts()
        self._listeners.add(listener)
        if self._task is None or self._task.done():
            self._last = last
            self._task = asyncio.create_task(self._run(), name="headrace-hub-stats")
        return last

    def leave(self, listener: Callable[[Stats], None]) -> None:
        """Remove the listener."""
        self._listeners.discard(listener)
        if not self._listeners:
            self.close()

    def close(self) -> None:
        """Stop reading."""
        if self._task is not None:
            self._task.cancel()
        self._task = self._last = None

    async def _run(self) -> None:
        clock, took = asyncio.get_running_loop().time, 0.0
        while True:
            await self._app.host.sleep(max(POLL_SECONDS, _MIN_PAUSE_RATIO * took))
            began = clock()
            try:
                stats = await self._app.stats.counts()
            except HeadraceError as error:
                _log.debug("the store cannot be counted for now: %s", error)
                continue
            finally:
                took = clock() - began
            if stats != self._last:
                self._last = stats
                for listener in list(self._listeners):
                    listener(stats)
