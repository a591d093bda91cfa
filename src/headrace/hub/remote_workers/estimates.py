"""How long jobs of a task usually take, for workers: looked up beside their claims, never before them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from headrace.client.api.stats import running_times
from headrace.errors import HeadraceError

if TYPE_CHECKING:
    from headrace.hub.remote_workers.fleet import Fleet

__all__ = ["Estimates"]

CACHE_SECONDS, UNKNOWN_SECONDS = 60.0, 1.0
"""Seconds for which a result is used; and one that nothing is known."""
MAX_TASKS = 1000
"""Tasks that are remembered."""
_MEDIAN_SHARE = 0.5
"""Half of the runs take no longer."""


class Estimates:
    """The known running times of tasks."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._known: dict[str, tuple[float, float | None]] = {}
        self._looking: dict[str, asyncio.Task[None]] = {}

    def of(self, task: str) -> float | None:
        """Return the seconds of the last look-up; None: nothing is known yet."""
        at, seconds = self._known.get(task, (float("-inf"), None))
        cached = UNKNOWN_SECONDS if seconds is None else CACHE_SECONDS
        if self._fleet.monotonic() - at > cached and task not in self._looking and len(self._looking) < 10:
            self._looking[task] = asyncio.create_task(self._look(task), name="headrace-hub-estimate")
        return seconds

    def finished(self, task: str, seconds: float | None) -> None:
        """Note how long a job took, where nothing is known of its task: until its workers have reported more."""
        if seconds is not None and self._known.get(task, (0.0, None))[1] is None:
            self._keep(task, seconds)

    def _keep(self, task: str, seconds: float | None) -> None:
        while len(self._known) >= MAX_TASKS:
            del self._known[next(iter(self._known))]
        self._known[task] = self._fleet.monotonic(), seconds

    async def _look(self, task: str) -> None:
        found: float | None = None
        before = self._known.get(task)
        try:
            found = (await running_times(self._fleet.session, task)).quantile(_MEDIAN_SHARE)
        except HeadraceError:
            pass  # it is looked up another time
        finally:
            # A job that ended meanwhile says more than the store, which does not know yet what its worker measured.
            if self._known.get(task) is before:
                self._keep(task, before[1] if found is None and before is not None else found)
            del self._looking[task]

    def close(self) -> None:
        """Stop all look-ups."""
        for task in list(self._looking.values()):
            task.cancel()
