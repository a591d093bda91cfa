"""When to ask for a job again."""

from __future__ import annotations

import pytest

from headrace.core.job import Job
from headrace.endpoints.retry_after import MAX_RETRY_AFTER_SECONDS, POSITION_CACHE_SECONDS, Estimates
from headrace.http.positions import Positions
from headrace.testing import FakeClock
from tests.endpoints.guessing import Guessing, guessed


async def test_estimates_follow_the_queue_and_the_task(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Positions, "places", guessed)
    clock = FakeClock()
    app = Guessing("memory://", clock)

    @app.task
    async def work() -> None: ...

    async def job(**options: float) -> Job:
        handle = await work._with_options(options).submit()
        assert handle.last is not None
        return handle.last

    async with app:
        estimates = Estimates(app)
        assert await estimates.retry_after(await job()) == 8
        assert await estimates.retry_after(await job(delay=100)) == 103
        assert await estimates.retry_after(await job(delay=1e6)) == MAX_RETRY_AFTER_SECONDS
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
        clock.advance(POSITION_CACHE_SECONDS)
        assert await estimates.after_submit(await job()) == 53
        ended = await app.jobs.handle((await job()).id).cancel()
        assert await estimates.retry_after(ended) == 0
