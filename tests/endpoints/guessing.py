"""An App that says what tests want of places and times."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from headrace import App
from headrace.client.api.stats import StatsApi
from headrace.core.job import Job
from headrace.core.updates import Place
from headrace.errors import Unavailable
from headrace.http.positions import Positions
from headrace.testing import FakeClock

__all__ = ["Guessing", "guessed"]


class Guessing(App):
    """An App whose jobs begin in so many seconds, and take 2.5."""

    def __init__(self, url: str, clock: FakeClock | None = None) -> None:
        super().__init__(url, clock=clock or FakeClock())
        self.asked, self.away, self.begins = 0, False, 5
        self.stats = _Stats(self)


async def guessed(positions: Positions, jobs: Sequence[Job]) -> list[Place | None]:
    """The positions of jobs of such an App, in place of ``Positions.places``."""
    app = positions._app
    assert isinstance(app, Guessing)
    return [Place(3, app.host.clock.now() + timedelta(seconds=app.begins))] * len(jobs)


class _Stats(StatsApi):
    _app: Guessing

    async def duration(self, task: str, *, quantile: float = 0.5) -> float | None:
        self._app.asked += 1
        if self._app.away:
            raise Unavailable("away")
        return 2.5
