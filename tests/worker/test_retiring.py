"""A worker that is retired: it claims no more, and finishes what it runs, however long that takes."""

from __future__ import annotations

import asyncio

from headrace import App, Status
from tests.support.until import until


async def test_it_finishes_what_it_runs_and_gives_back_the_rest() -> None:
    app, began, gate = App("memory://"), asyncio.Event(), asyncio.Event()

    @app.task
    async def long() -> str:
        began.set()
        await gate.wait()
        return await child.run()

    @app.task
    async def child() -> str:
        return "done"

    async with app:
        job = await long.submit()
        worker, other = app.worker(concurrency=1, grace=0.0), app.worker(concurrency=1)
        async with worker:
            await began.wait()
            waits = await child.submit()
            worker.retire()
            await until(lambda: worker.stats.state == "draining")
            assert (await waits.refresh()).status is Status.QUEUED
            async with other:  # which takes its place
                assert await waits.result(timeout=45) == "done"
                gate.set()
                assert await job.result(timeout=45) == "done"
                await worker.done()
        assert worker.stats.state == "stopped"
        assert ((await job.refresh()).charged, worker.stats.released) == (1, 0)


async def test_told_to_stop_it_stops_with_its_grace() -> None:
    app, began = App("memory://"), asyncio.Event()

    @app.task
    async def endless() -> None:
        began.set()
        await asyncio.Event().wait()

    async with app:
        job, worker = await endless.submit(), app.worker(grace=0.0)
        async with worker:
            await began.wait()
            worker.retire()
            await until(lambda: worker.stats.state == "draining")
            worker.request_stop()
            await worker.done()
        after = await job.refresh()
    assert (after.status, after.charged, worker.stats.released) == (Status.QUEUED, 0, 1)
