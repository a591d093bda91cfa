"""Positions of new jobs: returned where that is cheap, left out where it would slow down submits."""

from __future__ import annotations

import asyncio
from datetime import datetime
from math import ceil
from typing import TYPE_CHECKING

from headrace.core.job import Job
from headrace.core.updates import Allowance
from headrace.errors import EngineError

if TYPE_CHECKING:
    from headrace.app import App

__all__ = ["Positions"]

MAX_READS_PER_SECOND = 20
READ_TIMEOUT_SECONDS = 0.25
"""Maximum seconds that a submit waits for its position."""
_MILLISECONDS_PER_SECOND, _BURST_MILLISECONDS = 30, 500
"""Milliseconds per second, and at once, that may be spent on reading positions: in a long queue each takes long."""

_UNKNOWN: tuple[None, None] = (None, None)


class Positions:
    """Reads positions of new jobs: one at a time, so many a second, and fewer where queues are long."""

    def __init__(self, app: App) -> None:
        self._app, self._busy = app, False
        self._count, self._time = (
            Allowance(MAX_READS_PER_SECOND, MAX_READS_PER_SECOND),
            Allowance(_BURST_MILLISECONDS, _MILLISECONDS_PER_SECOND),
        )

    async def of(self, job: Job) -> tuple[int | None, datetime | None]:
        """Return the position and the estimated start of a job; None where unknown, or when requested too often."""
        clock = self._app.host.clock
        begun = clock.monotonic()
        if self._busy or job.held or job.ended or not (self._count.left(begun) and self._time.left(begun)):
            return _UNKNOWN
        self._busy = True
        try:
            async with asyncio.timeout(READ_TIMEOUT_SECONDS):
                found = await self._app.jobs.position(job)
        except (EngineError, TimeoutError):  # the job is stored, whether its position is known or not
            return _UNKNOWN
        finally:
            self._busy = False
            self._count.spend(1)
            self._time.spend(ceil(1000 * (clock.monotonic() - begun)))
        return _UNKNOWN if found is None else (found.position, found.estimated_start)
