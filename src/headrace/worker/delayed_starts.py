"""Starts that were not stored when their handlers were called: written a moment later, sooner if a process listens.

A start may ride with its finish, which a listener would learn late about every job that takes a while. So while there
are listeners, starts are written sooner, those since the last poll in one write; but only so many a second, since
workers do not know which jobs have listeners: time bounds what listeners cost, not the number of jobs.
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
"""The same while there are listeners: a job that is over by then costs as little as ever."""
POLL_SECONDS = 0.05
"""Seconds between two polls while there are listeners."""
_BURST_STARTS, _STARTS_PER_SECOND = 500, 500
"""Maximum number of starts written so soon after a quiet time, and then in a second."""


class Starts:
    """Writes the starts of the jobs that run."""

    def __init__(self, running: Collection[OwnedJob], bus: Bus, clock: Clock) -> None:
        self._running, self._bus, self._clock = running, bus, clock
        self._allowance = Allowance(_BURST_STARTS, _STARTS_PER_SECOND)

    def write_late(self) -> None:
        """Write those that may not be put off any longer, with or without listeners."""
        for owned in self._waiting(WRITE_SECONDS):
            owned.write_start()

    def write_for_listeners(self) -> bool:
        """Write, if there may be listeners, the starts that are old enough; whether there may be."""
        if not self._bus.wanted(Topic.CHANGED):
            return False
        if room := self._allowance.left(self._clock.monotonic()):
            starts = self._waiting(WATCHED_WRITE_SECONDS)[:room]
            self._allowance.spend(len(starts))
            for owned in starts:
                owned.write_start()
        return True

    def _waiting(self, seconds: float) -> list[OwnedJob]:
        """The starts of handlers that were called so long ago."""
        now = self._clock.now()
        waiting = [owned for owned in self._running if owned.start_due]
        # A clock that was set back must not put a start off until it has caught up.
        return [one for one in waiting if one.started_at and not 0 <= (now - one.started_at).total_seconds() < seconds]
