"""The shop floor: one job may be in a worker's hands more than once, and what is stuck holds its slot."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest
from msgspec.structs import replace

from headrace.core.retry import Retry
from headrace.core.status import Status
from tests.support.shop import ENGINES, QUICK, Shop, open_shop
from tests.support.until import until


async def test_a_job_is_tried_again_while_its_last_attempt_is_stuck_in_a_thread(shop: Shop) -> None:
    gates = [threading.Event(), threading.Event()]
    calls: list[int] = []

    def slow() -> int:
        calls.append(1)
        gates[len(calls) - 1].wait(30)
        return len(calls)

    shop.task(slow)
    id = await shop.submit("slow", timeout=600)
    try:
        async with shop.worker(concurrency=4) as worker:
            await until(lambda: len(calls) == 1)
            (run,) = worker._floor.runs.values()
            run.stop("timed_out")  # as when its time is up
            await until(lambda: len(calls) == 2)
            assert worker.stats.busy == 2  # each attempt has a slot of its own
            gates[0].set()
            await until(lambda: worker.stats.busy == 1)
            (row,) = await shop.engine.workers.list()

            async def beats(n: int) -> bool:
                return (await shop.engine.workers.list())[0].beats >= n

            # The job is still named in the beats: the end of the old thread did not take it out of our hands.
            await until(lambda: beats(row.beats + 2))
            assert (await shop.get(id)).worker == worker.id
            gates[1].set()
            job = await shop.ended(id)
            await until(lambda: worker.stats.busy == 0)
    finally:
        for gate in gates:
            gate.set()
    assert (job.status, job.result) == (Status.COMPLETED, 2)
    assert await shop.outcomes(id) == ["timed_out", "completed"]


@pytest.mark.parametrize("kind", ENGINES)
async def test_a_thread_that_stops_soon_after_its_time_does_not_end_the_worker(kind: str, tmp_path: Path) -> None:
    late = threading.Event()

    def tardy() -> None:
        late.wait(30)

    async with open_shop(kind, tmp_path, replace(QUICK, cancel_grace=30.0)) as shop:  # that is what soon means
        shop.task(tardy)
        async with shop.worker(concurrency=1) as worker:
            id = await shop.submit("tardy", timeout=0.2, retry=Retry(0))
            await shop.ended(id)
            late.set()
            await until(lambda: worker.stats.busy == 0)
            again = await shop.submit("tardy", timeout=30.0)
            assert (await shop.ended(again)).status is Status.COMPLETED
            assert not worker.exhausted


async def test_a_clock_that_was_set_back_does_not_put_a_start_off(shop: Shop) -> None:
    gate = asyncio.Event()

    async def slow() -> None:
        await gate.wait()

    shop.task(slow)
    id = await shop.submit("slow")
    async with shop.worker() as worker:
        await until(lambda: worker.stats.busy == 1)
        (run,) = worker._floor.runs.values()
        await until(lambda: run.started_at is not None)
        assert run.started_at is not None
        run.hold.started_at = run.started_at.replace(year=run.started_at.year + 1)  # as if the clock had jumped since
        await shop.reaches(id, Status.RUNNING)
        gate.set()
        await shop.ended(id)
