"""When to ask for a job again."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from headrace import App
from headrace.app import QueuePosition
from headrace.core.job import Job
from headrace.endpoints.estimates import ALIKE, LONGEST, Estimates
from headrace.errors import Unavailable
from headrace.testing import FakeClock


class Guessing(App):
    """An App whose jobs begin in so many seconds, and take 2.5."""

    def __init__(self, url: str, clock: FakeClock) -> None:
        super().__init__(url, clock=clock)
        self.asked, self.away, self.begins = 0, False, 5

    async def position(self, job: object) -> QueuePosition:
        return QueuePosition(3, self.host.clock.now() + timedelta(seconds=self.begins))

    async def estimated_processing_time(self, task: str, *, quantile: float = 0.5) -> float | None:
        self.asked += 1
        if self.away:
            raise Unavailable("away")
        return 2.5


async def test_estimates_follow_the_queue_and_the_task(tmp_path: Path) -> None:
    clock = FakeClock()
    app = Guessing("memory://", clock)

    @app.task
    async def work() -> None: ...

    async def job(**options: float) -> Job:
        handle = await work.with_options(options).submit()
        assert handle.last is not None
        return handle.last

    async with app:
        estimates = Estimates(app)
        assert await estimates.retry_after(await job()) == 8
        assert await estimates.retry_after(await job(delay=100)) == 103
        assert await estimates.retry_after(await job(delay=1e6)) == LONGEST
        assert app.asked == 1, "what is known of a task is believed for a while"
        app.away = True
        clock.advance(60)
        assert await estimates.retry_after(await job()) == 8, "and longer, while the store is away"
        assert app.asked == 2
        app.away = False
        assert await estimates.after_submit(await job()) == 8
        app.begins = 50
        assert await estimates.after_submit(await job()) == 8, "new jobs of one kind are told the same for a moment"
        assert await estimates.retry_after(await job()) == 53, "a job that is asked about, what is true of itself"
        assert await estimates.after_submit(await job(priority=90)) == 53, "as are those of another kind"
        assert await estimates.after_submit(await job(delay=100)) == 103
        clock.advance(ALIKE)
        assert await estimates.after_submit(await job()) == 53
        ended = await app.cancel((await job()).id)
        assert await estimates.retry_after(ended) == 0
