"""Where jobs stand, on every engine."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from headrace import Status
from headrace.client.api.positions import QueuePosition
from headrace.errors import JobNotFound
from tests.support.apps import ENGINES, Sums, busy_worker, url_of
from tests.support.until import until


@pytest.fixture(params=ENGINES)
async def sums(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Sums]:
    made = Sums(url_of(request.param, tmp_path))
    async with made.app:
        yield made


async def test_by_priority_and_arrival(sums: Sums) -> None:
    low, first, second = [await sums.add.options(priority=one).submit(1) for one in (10, 50, 50)]
    other = await sums.multiply.submit(1, 1)
    for job, place in ((low, 3), (first, 1), (second, 2), (other, 1)):
        assert await sums.app.jobs.position(job.id) == QueuePosition(place, None), "nobody is there to take it"
        assert await sums.app.jobs.position(await job.refresh()) == await sums.app.jobs.position(str(job.id))


async def test_only_what_is_in_line_has_a_position(sums: Sums) -> None:
    scheduled, over = await sums.add.options(delay=60).submit(1), await sums.add.submit(1)
    await over.cancel()
    waiting = await sums.add.options(after=[scheduled]).submit(1)
    for job in (scheduled, over, waiting):
        assert await sums.app.jobs.position(job.id) is None
    with pytest.raises(JobNotFound):
        await sums.app.jobs.position(sums.app.host.new_id())


async def test_a_start_is_estimated_where_something_tells(sums: Sums) -> None:
    job = await sums.add.options(queue="busy").submit(1)
    await busy_worker(sums.app.session.engine, "add")
    assert await sums.app.jobs.position(job.id) == QueuePosition(1, None), "nothing was done of late"
    async with sums.app.worker(queues=["fast"]):
        for _ in range(3):
            done = await sums.add.options(queue="fast").submit(1)
            assert await done.result(timeout=45) == 2
    await until(lambda: _rolled_up(sums))
    await sums.app.queues.pause("fast")
    held = await sums.add.options(queue="fast").submit(1)
    assert await sums.app.jobs.position(held.id) == QueuePosition(1, None), "a paused queue starts nothing"
    await sums.app.queues.resume("fast")
    found = await sums.app.jobs.position(held.id)
    assert found is not None
    assert found.estimated_start is not None
    assert found.estimated_start >= (await held.refresh()).created_at
    assert (await held.refresh()).status is Status.QUEUED


async def test_an_estimate_needs_one_finished_job_and_no_report_of_it(sums: Sums) -> None:
    app = sums.app
    assert await app.stats.duration("add") is None
    async with app.worker():
        assert await (await sums.add.submit(1)).result(timeout=45) == 2
        assert not await app.session.engine.rollups.read(
            app.host.clock.now() - timedelta(days=1), app.host.clock.now() + timedelta(days=1)
        ), "the worker has reported nothing yet"
        took = await app.stats.duration("add")
    assert took is not None
    assert took < 10


async def _rolled_up(sums: Sums) -> bool:
    return await sums.app.stats.duration("add") is not None
