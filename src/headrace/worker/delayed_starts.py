"""Starts that were not stored when their handlers were called: written a moment later, sooner if somebody listens.

A start may ride with its finish. To somebody who listens, that would be late news of every job that takes a while. So
while there is an audience, starts are written sooner, those since the last look in one write; but only so many a
second, for workers are not told which jobs are listened to: what an audience costs is bounded by time, not by jobs.
"""

from __future__ import annotations

from collections.abc import Collection

from headrace.core.updates import Allowance
from headrace.engine.bus import Bus, Topic
from headrace.runtime.clock import Clock
from headrace.worker.owned_job import OwnedJob

__all__ = ["POLL_SECONDS", "Starts"]

WRITE_SECONDS = 0.5
"""Seconds after which a start that was not stored yet is written: well within the promised second."""
WATCHED_WRITE_SECONDS = 0.05
"""The same while somebody listens: a job that is over by then costs as little as ever."""
POLL_SECONDS = 0.05
"""Seconds between two looks while somebody listens."""
_BURST_STARTS, _STARTS_PER_SECOND = 500, 500
"""How many starts are written so soon at once after a quiet time, and then a second."""


class Starts:
    """Sees to the starts of the jobs whose handlers are being called."""

    def __init__(self, running: Collection[OwnedJob], bus: Bus, clock: Clock) -> None:
        self._running, self._bus, self._clock = running, bus, clock
        self._allowance = Allowance(_BURST_STARTS, _STARTS_PER_SECOND)

    def write_late(self) -> None:
        """Write those that may not be put off any longer, whoever listens."""
        for owned in self._waiting(WRITE_SECONDS):
            owned.write_start()

    def write_for_listeners(self) -> bool:
        """Write, if somebody may be listening, those that are news by now; whether somebody may be."""
        if not self._bus.wanted(Topic.CHANGED):
            return False
        if room := self._allowance.left(self._clock.monotonic()):
            news = self._waiting(WATCHED_WRITE_SECONDS)[:room]
            self._allowance.spend(len(news))
            for owned in news:
                owned.write_start()
        return True

    def _waiting(self, seconds: float) -> list[OwnedJob]:
        """Those whose handlers were called so long ago."""
        now = self._clock.now()
        waiting = [owned for owned in self._running if owned.start_due]
        # A clock that was set back must not put a start off until it has caught up.
        return [one for one in waiting if one.started_at and not 0 <= (now - one.started_at).total_seconds() < seconds]
