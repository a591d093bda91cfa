"""Hints about changed jobs, while there are listeners, and never so many that they slow the writer of the changes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from uuid import UUID

from headrace.core.job import Job
from headrace.core.updates import Allowance
from headrace.engine.bus import Bus, Hint, Topic

__all__ = ["GAP_SECONDS", "MAX_HINT_JOBS", "ChangeHints", "hint_of"]

GAP_SECONDS = 0.02
"""Seconds between two hints of a session about changes."""
MAX_HINT_JOBS = 200
"""Maximum number of jobs that a hint names; that many ids fit into one notification of PostgreSQL."""
_BURST_JOBS, _JOBS_PER_SECOND = 2000, 1000
"""Maximum number of jobs a session names at once after a quiet time, and then in a second: a worker in full flow
changes many times as many, more than a listener could read."""
_FLOOD_GAP_SECONDS = 0.1
"""Seconds between two hints in full flow."""


def hint_of(ids: Sequence[UUID]) -> Hint:
    """One hint about these jobs."""
    return Hint(Topic.CHANGED, tuple(map(str, ids[:MAX_HINT_JOBS])), max(0, len(ids) - MAX_HINT_JOBS))


class ChangeHints:
    """The hints of one session about jobs that it changed: the first at once, others together after a moment. At most
    ``MAX_HINT_JOBS`` ids in ``GAP_SECONDS`` seconds. Of those beyond, only the number is sent."""

    def __init__(self, bus: Bus) -> None:
        self._bus, self._allowance = bus, Allowance(_BURST_JOBS, _JOBS_PER_SECOND)
        self._ids: set[UUID] = set()
        self._room = MAX_HINT_JOBS
        """How many more may be named in the next hint."""
        self._dropped = 0
        self._timer: asyncio.TimerHandle | None = None

    def tell(self, jobs: Iterable[Job]) -> None:
        """Send hints about these, soon, if there may be listeners."""
        if not self._bus.wanted(Topic.CHANGED):
            return
        ids = [job.id for job in jobs]
        if not ids:
            return
        if self._timer is None:
            self._room = min(MAX_HINT_JOBS, self._allowance.left(asyncio.get_running_loop().time()))
        named = ids[: self._room] if self._room < len(ids) else ids
        self._ids.update(named)
        self._room -= len(named)
        self._dropped += len(ids) - len(named)
        if self._timer is None:
            self._send()

    def close(self) -> None:
        """Send what waits."""
        self._send()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _send(self) -> None:
        self._timer = None
        if not self._ids and not self._dropped:
            return
        names, dropped = tuple(map(str, self._ids)), self._dropped
        self._ids, self._dropped = set(), 0
        # By the time of the loop, as its timers are: it goes on where a test moves the clock by hand.
        loop = asyncio.get_running_loop()
        self._allowance.spend(len(names))
        self._room = min(MAX_HINT_JOBS, self._allowance.left(loop.time()))
        self._timer = loop.call_later(GAP_SECONDS if self._room == MAX_HINT_JOBS else _FLOOD_GAP_SECONDS, self._send)
        self._bus.send(Hint(Topic.CHANGED, names, dropped))
