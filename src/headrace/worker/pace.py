"""The pace of a worker: how many jobs are worth claiming ahead of a free slot."""

from __future__ import annotations

__all__ = ["LOOKED_AT", "Pace"]

AHEAD_SECONDS = 0.25
AHEAD_MOST = 2000
LOOKED_AT = 1000
"""How many runs, the newest, are looked at to learn how long they take: of thousands most have yielded their slots."""


class Pace:
    """How fast this worker starts jobs, learned from how long the recent ones took."""

    def __init__(self, concurrency: int) -> None:
        self._concurrency = concurrency
        self._mean: float | None = None

    def ran(self, seconds: float) -> None:
        """Learn that a job took so many seconds."""
        self._mean = seconds if self._mean is None else self._mean + 0.1 * (seconds - self._mean)

    def ahead(self, busy_since: float | None) -> int:
        """How many jobs to claim beyond the free slots: what can be started within a quarter second.

        ``busy_since``: for how long, on average, the slots have been busy now. It counts as soon as it exceeds what is
        known, so that nothing is hoarded behind jobs that have turned slow.
        """
        if self._mean is None:
            return 0
        seconds = max(self._mean, busy_since or 0.0, 1e-6)
        return min(int(AHEAD_SECONDS * self._concurrency / seconds), AHEAD_MOST)
