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
    failed: int
    stale: int
    stuck_threads: int
    silence: float
    """Seconds since the store last heard of it."""
