"""The depths of queues, noted once a minute as rollups, which a worker sends with its beat."""

from __future__ import annotations

from uuid import UUID

from headrace.core.stats.depth import depths_of
from headrace.engine import Engine
from headrace.maintenance.duty import Duty
from headrace.runtime.host import Host
from headrace.runtime.totals import FinishTotals
from headrace.runtime.writes.writer import Writer

__all__ = ["Depths"]

_ROUND_PAUSE_SECONDS = 60.0


class Depths(Duty):
    """Counts the queues once a minute, whoever holds the duty; it counts live jobs, so history costs nothing."""

    name = "depths"
    share = 4.0  # a chart without a few minutes is a chart

    def __init__(self, engine: Engine, writer: Writer, host: Host, holder: UUID, sums: FinishTotals) -> None:
        super().__init__(engine, writer, host, holder)
        self._sums = sums

    def pause(self) -> float:
        """Seconds until the next round: a little less than a minute, so that each minute has one."""
        return _ROUND_PAUSE_SECONDS * self._jitter()

    async def tick(self) -> int:
        """Note the depth of every queue; how many queues."""
        now = self.host.clock.now()
        found = depths_of(await self.engine.records.count(now, history=False))
        self._sums.deep(found, now)
        return len(found)
