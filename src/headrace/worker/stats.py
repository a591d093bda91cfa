"""How a worker is, as a value."""

from __future__ import annotations

import msgspec

from headrace.core.record import Record

__all__ = ["WorkerStats"]


class WorkerStats(msgspec.Struct, Record, frozen=True, kw_only=True):
    """How a worker is."""

    state: str
    busy: int
    """Handlers at work; those that have yielded their slots are not."""
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
