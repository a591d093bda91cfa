"""The metrics of the last minutes, hour and day, read in small parts: what is over is read once for a while."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from headrace.core.stats.metrics import LONGEST_WINDOW, JobSums, WindowMetrics
from headrace.core.stats.rollup import Step, begin_of, parts_of

if TYPE_CHECKING:
    from headrace.client.session import Session

__all__ = ["RecentMetrics"]

_SETTLED_AFTER = timedelta(minutes=5)
"""A minute is kept from so long after its beginning on: by then workers have sent what they finished in it."""
_REFRESH_SECONDS = 600.0
"""Seconds after which everything is read anew: a worker that could not reach the store sends later than that."""


class RecentMetrics:
    """Reads the rows of the last minutes each time, and those of the day before them only now and then."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self._lock = asyncio.Lock()
        self._kept = JobSums()
        self._until: datetime | None = None
        """The time up to which sums are kept."""
        self._read_at = 0.0

    async def windows(self) -> dict[str, WindowMetrics]:
        """Return the metrics of each window that ends now."""
        clock, read = self.session.host.clock, self.session.engine.rollups.read
        async with self._lock:
            now = clock.now()
            edge = begin_of(now - _SETTLED_AFTER, Step.MINUTE)
            until, age = self._until, clock.monotonic() - self._read_at
            if until is None or until > edge or until < edge - LONGEST_WINDOW or age > _REFRESH_SECONDS:
                self._kept, self._until = JobSums(), begin_of(now - LONGEST_WINDOW, Step.HOUR)
                until, self._read_at = self._until, clock.monotonic()
            for since, end in parts_of(until, edge):
                self._kept.add(await read(since, end), since, end)
                self._until = end
            self._kept.forget(now - LONGEST_WINDOW)
            # A worker's clock may be ahead of this one.
            recent, end = JobSums(), now + LONGEST_WINDOW
            recent.add(await read(edge, end), edge, end)
            return self._kept.windows(now, recent)
