"""An App that says what tests want of places and times."""

from __future__ import annotations

from datetime import timedelta

from headrace import App
from headrace.client.api.jobs import JobsApi
from headrace.client.api.positions import QueuePosition
from headrace.client.api.stats import StatsApi
from headrace.errors import Unavailable
from headrace.testing import FakeClock

__all__ = ["Guessing"]


class Guessing(App):
    """An App whose jobs begin in so many seconds, and take 2.5."""

    def __init__(self, url: str, clock: FakeClock | None = None) -> None:
        super().__init__(url, clock=clock or FakeClock())
        self.asked, self.away, self.begins = 0, False, 5
        self.jobs, self.stats = _Jobs(self), _Stats(self)


class _Jobs(JobsApi):
    _app: Guessing

    async def position(self, job: object) -> QueuePosition:
        return QueuePosition(3, self._host.clock.now() + timedelta(seconds=self._app.begins))


class _Stats(StatsApi):
    _app: Guessing

    async def duration(self, task: str, *, quantile: float = 0.5) -> float | None:
        self._app.asked += 1
        if self._app.away:
            raise Unavailable("away")
        return 2.5
