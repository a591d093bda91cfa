"""An App that says what tests want of places and times."""

from __future__ import annotations

from datetime import timedelta

from headrace import App
from headrace.client.api.positions import QueuePosition
from headrace.errors import Unavailable
from headrace.testing import FakeClock

__all__ = ["Guessing"]


class Guessing(App):
    """An App whose jobs begin in so many seconds, and take 2.5."""

    def __init__(self, url: str, clock: FakeClock | None = None) -> None:
        super().__init__(url, clock=clock or FakeClock())
        self.asked, self.away, self.begins = 0, False, 5

    async def position(self, job: object) -> QueuePosition:
        return QueuePosition(3, self.host.clock.now() + timedelta(seconds=self.begins))

    async def estimated_processing_time(self, task: str, *, quantile: float = 0.5) -> float | None:
        self.asked += 1
        if self.away:
            raise Unavailable("away")
        return 2.5
