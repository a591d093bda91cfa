"""Handlers that go on although their attempts are over, and for how long already."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.worker.owned_job import OwnedJob
from headrace.worker.run import Run

__all__ = ["Stuck"]


class Stuck:
    """The stuck ones among the runs of a worker."""

    def __init__(self, runs: Mapping[OwnedJob, Run], patience: float) -> None:
        """``patience``: seconds a handler has to stop after its attempt is over."""
        self._runs, self._patience = runs, patience
        self._since: dict[Run, float] = {}
        self._now = 0.0

    def __len__(self) -> int:
        return sum(run.stuck for run in list(self._runs.values()))

    @property
    def hopeless(self) -> int:
        """How many handlers had time enough to stop, did not, and occupy a slot, as of the last look."""
        return sum(self._now - since >= self._patience for run, since in self._since.items() if not run.yielded)

    def look(self, monotonic: float) -> None:
        """Look which handlers are stuck now."""
        self._now = monotonic
        self._since = {run: self._since.get(run, monotonic) for run in self._runs.values() if run.stuck}
