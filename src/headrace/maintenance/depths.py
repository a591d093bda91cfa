"""The depths of queues, noted once a minute as rollups, which a worker sends with its beat."""

from __future__ import annotations

from datetime import datetime

from headrace.core.stats.depth import depths_of
from headrace.engine import Engine
from headrace.runtime.totals import FinishTotals

__all__ = ["note_depths"]


async def note_depths(engine: Engine, sums: FinishTotals, now: datetime) -> bool:
    """Note the depth of every queue; whether a job is live. It counts live jobs only, so history costs nothing."""
    found = depths_of(await engine.records.count(now, history=False))
    if found:
        sums.deep(found, now)
    return bool(found)
