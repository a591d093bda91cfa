"""The pruner: removes ended jobs and records of gone workers when their retention is over, notes how deep queues are,
and adds up what workers hand in, minutes to hours and hours to days."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import datetime
from uuid import UUID

from headrace.core.defaults import Retention
from headrace.core.lifecycle.departure import kept_since
from headrace.core.status import Status
from headrace.engine import MAX_BATCH, MAX_ROLL, Engine
from headrace.maintenance.depths import note_depths
from headrace.maintenance.duty import Duty
from headrace.runtime.host import Host
from headrace.runtime.signatures import forget_stored
from headrace.runtime.totals import FinishTotals
from headrace.runtime.writes.writer import Writer

__all__ = ["Pruner"]

_log = logging.getLogger("headrace.pruner")

_ROUND_PAUSE_SECONDS = 60.0
_MIN_PAUSE_RATIO = 300
"""After a round that read all that is old, the next such round comes no sooner than this many times as long as it took.
The rounds between read what has become old since. Else jobs with a long retention of their own would be read in every
round."""
_FORGET_SECONDS = 3600.0
"""Seconds between two checks for secrets that count no more, and for records of workers that are old."""
_EMPTY_PAUSE_SECONDS = 240.0
"""Seconds until queues are counted again that were all empty: an idle store is left alone."""
_BATCH_PAUSE_SECONDS = 0.01
"""Seconds between two batches, so that a long prune does not delay claims."""


class Pruner(Duty):
    """Deletes in batches, once a minute; live jobs are never touched. Then it regroups rollups."""

    name = "pruner"
    share = 4.0  # old jobs can wait

    def __init__(
        self,
        engine: Engine,
        writer: Writer,
        host: Host,
        holder: UUID,
        retention: Retention | None = None,
        *,
        limit: int = MAX_BATCH,
        sums: FinishTotals | None = None,
    ) -> None:
        """``sums``: where the depths of queues are noted."""
        super().__init__(engine, writer, host, holder)
        self._sums = sums
        self.retention = retention or engine.rules.retention
        self.pruned = 0
        """How many since the start."""
        self._limit = limit
        self._done: Mapping[Status, datetime] | None = None
        """Up to where everything that is old was read."""
        self._all_again_at = self._forget_at = self._depths_at = float("-inf")

    def pause(self) -> float:
        """Seconds until the next round."""
        return _ROUND_PAUSE_SECONDS * self._jitter()

    async def tick(self) -> int:
        """Remove what is past its retention; how many jobs."""
        now, monotonic = self.host.clock.now(), self.host.clock.monotonic
        before, total, took = self.retention.cutoffs(now), 0, 0.0
        since = self._done if monotonic() < self._all_again_at else None
        while True:
            began = monotonic()
            removed = await self.engine.jobs.delete(before, self._limit, now=now, since=since)
            took = monotonic() - began
            total += removed
            self.pruned += removed
            if removed < self._limit or self.stopping.is_set():
                break
            await self.host.sleep(_BATCH_PAUSE_SECONDS)
        if removed < self._limit:
            self._done = before
            if since is None:
                self._all_again_at = monotonic() + _MIN_PAUSE_RATIO * took
        if total:
            _log.info("pruned %d jobs past their retention", total)
        if self._sums is not None and monotonic() >= self._depths_at:
            busy = await note_depths(self.engine, self._sums, now)
            self._depths_at = monotonic() + (0.0 if busy else _EMPTY_PAUSE_SECONDS)
        while not self.stopping.is_set() and await self.engine.rollups.roll(self.host.clock.now()) >= MAX_ROLL:
            await self.host.sleep(_BATCH_PAUSE_SECONDS)
        if monotonic() >= self._forget_at:
            await forget_stored(self.engine, now)
            await self._prune_workers(now)
            self._forget_at = monotonic() + _FORGET_SECONDS
        return total

    async def _prune_workers(self, now: datetime) -> None:
        """Remove the records of workers that went so long ago that a failed job of then is pruned."""
        before = kept_since(self.retention, now)
        while await self.engine.workers.forget_gone(before, self._limit) >= self._limit and not self.stopping.is_set():
            await self.host.sleep(_BATCH_PAUSE_SECONDS)
