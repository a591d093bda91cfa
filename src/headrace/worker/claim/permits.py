"""Leads and permits: how long after its claim a job that spent a permit of a rate may begin."""

from __future__ import annotations

import logging
import math
import threading
from collections import deque
from datetime import datetime
from uuid import UUID

from headrace.core.explain.explanation import many
from headrace.core.limits.rate import MAX_LEAD_SECONDS
from headrace.runtime.clock import Clock

__all__ = ["Lead", "Permits"]

_log = logging.getLogger("headrace.worker")

MIN_LEAD_SECONDS = 0.05
"""The shortest lead, in seconds."""
FIRST_LEAD_SECONDS = 0.5
"""The lead of a worker that has learned nothing yet: its first claims take longer, and there may be many permits."""
MAX_SAMPLES, MIN_SAMPLES = 256, 16
"""How many calls are remembered, and how many of them however long ago."""
WINDOW_SECONDS = 60.0
LOG_PAUSE_SECONDS = 60.0
"""Seconds between two lines in the log about jobs that were too late."""


class Lead:
    """The lead that a worker requests: twice the time from claim to call that 99 of 100 calls keep to.

    It is learned only from jobs that spent a permit, on the loop and on threads. A lead that is too short costs permits
    (a late job loses its own), one that is too long costs some of the rate; neither lets too many begin.
    """

    def __init__(self, clock: Clock, wait: float = 0.0) -> None:
        """``wait``: how long jobs are kept waiting on purpose, by the collector of a bulk handler."""
        self.clock, self.wait = clock, wait
        self._took: deque[tuple[float, float]] = deque(maxlen=MAX_SAMPLES)
        self._lock = threading.Lock()
        self._seconds: float | None = None
        self._late, self._logged_at = 0, -math.inf

    @property
    def seconds(self) -> float:
        """The lead for the next claim."""
        if (seconds := self._seconds) is None:
            with self._lock:
                took = list(self._took)
                since = self.clock.monotonic() - WINDOW_SECONDS
                times = sorted(seconds for at, seconds in took if at >= since)
                if len(times) < MIN_SAMPLES:
                    times = sorted(seconds for _, seconds in took[-MIN_SAMPLES:])
                usual = 2 * times[math.ceil(0.99 * len(times)) - 1] if times else FIRST_LEAD_SECONDS
                seconds = self._seconds = min(max(MIN_LEAD_SECONDS, usual) + self.wait, MAX_LEAD_SECONDS)
        return seconds

    def learn(self, seconds: float, at: float) -> None:
        """Learn that so many seconds after its claim a job was about to be called."""
        with self._lock:
            self._took.append((at, max(0.0, seconds - self.wait)))
            self._seconds = None

    def missed(self, lead: float, at: float) -> None:
        """Note that a job is given back because it did not begin in time; say so now and then."""
        with self._lock:
            self._late += 1
            if at < self._logged_at + LOG_PAUSE_SECONDS:
                return
            late, self._late, self._logged_at = self._late, 0, at
        message = "%s given back, not begun within %.3f s of the claim; what a rate let them begin with is lost"
        _log.info(message, many(late, "job"), lead)


class Permits:
    """The permits that the jobs of one claim have spent. Each job begins within the lead of the claim, or not at all.

    ``at`` and ``since``: when the claim was first sent, by the clock and monotonic.
    """

    __slots__ = ("_at", "_lead", "_seconds", "_since", "by", "jobs")

    def __init__(self, jobs: frozenset[UUID], lead: Lead, seconds: float, at: datetime, since: float) -> None:
        self.jobs, self._lead, self._seconds, self._at, self._since = jobs, lead, seconds, at, since
        self.by = since + seconds
        """Until when they may begin (monotonic)."""

    def left(self) -> float:
        """How many seconds are left to begin; below 0 none, and the job is given back. What it took is learned."""
        clock = self._lead.clock
        monotonic = clock.monotonic()
        self._lead.learn(monotonic - self._since, monotonic)
        # By both clocks: where the machine was suspended, monotonic time has stood still.
        left = min(self.by - monotonic, self._seconds - (clock.now() - self._at).total_seconds())
        if left < 0:
            self._lead.missed(self._seconds, monotonic)
        return left
