"""Positions of new jobs: told where that is cheap, left out where it would cost submits their speed."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import TYPE_CHECKING

from headrace.core.feed import Allowance
from headrace.core.job import Job
from headrace.errors import EngineError

if TYPE_CHECKING:
    from headrace.app import App

__all__ = ["Positions"]

_PER_SECOND = 20
_PATIENCE = 0.25
"""Seconds that a submit waits for a number, at most."""
_REST = 30
"""After each, so many times as long as it took none is looked for: it is a small part of all that is done."""

_UNKNOWN: tuple[None, None] = (None, None)


class Positions:
    """The positions that a hub tells: one at a time, and so many a second, fewer where queues are long."""

    def __init__(self, app: App) -> None:
        self._app, self._allowance = app, Allowance(_PER_SECOND, _PER_SECOND)
        self._rests_until = float("-inf")

    async def of(self, job: Job) -> tuple[int | None, datetime | None]:
        """The position and the estimated start of a job; None where it is not known, or was asked for too often."""
        clock = self._app.host.clock
        begun = clock.monotonic()
        if begun < self._rests_until or job.held or job.ended or not self._allowance.left(begun):
            return _UNKNOWN
        self._allowance.spend(1)
        self._rests_until = float("inf")
        try:
            async with asyncio.timeout(_PATIENCE):
                found = await self._app.position(job)
        except (EngineError, TimeoutError):  # the job is stored, whatever is known of its place
            return _UNKNOWN
        finally:
            now = clock.monotonic()
            self._rests_until = now + _REST * (now - begun)
        return _UNKNOWN if found is None else (found.position, found.estimated_start)
