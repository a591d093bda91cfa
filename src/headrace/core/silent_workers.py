"""When a worker counts as silent: the one rule for everything that shows workers.

Burying is another matter, judged by looks and not by clocks: see ``core.liveness``. But where nobody is left to
bury the dead they must not be shown as living.
"""

from __future__ import annotations

from datetime import datetime

from headrace.core.moments import length

__all__ = ["silent_since", "told_silence"]


def silent_since(beat_at: datetime, now: datetime, lease: float) -> datetime | None:
    """Since when a worker is silent: its last beat, if that is longer ago than its lease; else None."""
    return beat_at if (now - beat_at).total_seconds() > lease else None


def told_silence(since: datetime, now: datetime) -> str:
    """For how long it has been silent, in words."""
    return f"silent for {length((now - since).total_seconds())}"
