"""Reports of progress: the newest is written, not too often, and one write at a time."""

from __future__ import annotations

import asyncio

from headrace.core.job import Progress
from headrace.core.lifecycle import progress
from headrace.worker.owned_job import OwnedJob

__all__ = ["ProgressWriter"]

PROGRESS_EVERY = 0.25


class ProgressWriter:
    """Writes what one run reports of its progress."""

    def __init__(self, owned: OwnedJob, loop: asyncio.AbstractEventLoop) -> None:
        self._owned, self._loop = owned, loop
        self._report: Progress | None = None
        self._reported_at = float("-inf")
        self._reporting = False

    def report(self, report: Progress) -> None:
        """Write this report soon, unless a newer one comes first; called by the handler, on any thread."""
        fresh, self._report = self._report is None, report
        if fresh:
            self._loop.call_soon_threadsafe(self._schedule)

    def _schedule(self) -> None:
        if self._reporting:
            return  # one at a time: what a slow store has not taken yet must not pile up before the end
        since = self._loop.time() - self._reported_at
        if since >= PROGRESS_EVERY:
            self.write()
        else:
            self._loop.call_later(PROGRESS_EVERY - since, self.write)

    def write(self) -> None:
        """Write the newest report now, unless the attempt is over."""
        report, self._report = self._report, None
        if report is None or self._owned.ending is not None:
            return
        self._reported_at, self._reporting = self._loop.time(), True
        clock = self._owned.lanes.host.clock
        self._owned.write_start()
        self._owned.write(lambda job: progress(job, clock.now(), report), self._reported)

    def _reported(self, stored: bool) -> None:
        self._reporting = False
        if self._report is not None and stored:
            self._schedule()
