"""How a worker is, as a value."""

from __future__ import annotations

import msgspec

__all__ = ["WorkerStats"]


class WorkerStats(msgspec.Struct, frozen=True, kw_only=True):
    """How a worker is."""

    state: str
    busy: int
    buffered: int
    done: int
    """Attempts that completed or were snoozed."""
    failed: int
    """Attempts that failed or timed out."""
    released: int
    """Attempts that were handed back, or stopped by a cancel."""
    stale: int
    """Attempts whose end had no say any more: the job had another owner."""
    stuck_threads: int
    silence: float
    """Seconds since the store last heard of it."""
