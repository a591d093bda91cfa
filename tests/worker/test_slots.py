"""Slots: jobs run one after another in one task, and none finds anything of another's there; one job may be in a
worker's hands more than once, and what is stuck holds its slot."""

from __future__ import annotations

import asyncio
import threading
import time
from contextvars import ContextVar
from pathlib import Path

import pytest
from msgspec.structs import replace

from headrace.core.lifecycle.retry import Retry
from headrace.core.status import Status
from headrace.errors import NoContext
from headrace.worker.execution.context import Context
from headrace.worker.slots import STARTS_PER_TURN
from tests.support.shop import ENGINES, QUICK, Shop, open_shop
from tests.support.until import until

tenant: ContextVar[str] = ContextVar("tenant", default="nobody's")


async def test_what_a_handler_sets_in_its_context_is_gone_for_the_next(shop: Shop) -> None:
    async def sets(ctx: Context) -> str:
        found = tenant.get()
        tenant.set(str(ctx.job_id))
        return found

    shop.task(sets)
    ids = await shop.submit_many("sets", 20)
    async with shop.worker(concurrency=1):
        jobs = [await shop.ended(id) for id in ids]
    assert [job.result for job in jobs] == ["nobody's"] * 20


async def test_a_task_that_a_handler_leaves_behind_keeps_its_own_context(shop: Shop) -> None:
    """What it submits, or reports, must not be taken for the next job's."""
    found: list[tuple[str, str]] = []
    left: list[asyncio.Task[None]] = []
    gate = asyncio.Event()

    async def leaves(ctx: Context) -> None:
        async def later(own: str) -> None:
            await gate.wait()
            found.append((own, str(Context.current().job_id)))

        left.append(asyncio.create_task(later(str(ctx.job_id))))

    shop.task(leaves)
    ids = [await shop.submit("leaves") for _ in range(5)]
    async with shop.worker(concurrency=1):
        for id in ids:
            await shop.ended(id)
        gate.set()
        await asyncio.gather(*left)
    assert len(found) == 5
    assert all(own == current for own, current in found)


async def test_a_handler_that_cancels_its_task_does_not_cancel_the_next(shop: Shop) -> None:
    async def careless() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()

    async def quiet() -> str:
        await asyncio.sleep(0)
        return "undisturbed"

    shop.task(careless)
    shop.task(quiet)
    first = await shop.submit("careless", retry=Retry(0))
    ids = [await shop.submit("quiet") for _ in range(3)]
    async with shop.worker(concurrency=1):
        await shop.ended(first)
        jobs = [await shop.ended(id) for id in ids]
    assert [(job.status, job.result, job.attempt) for job in jobs] == [(Status.COMPLETED, "undisturbed", 1)] * 3


async def test_jobs_that_never_wait_leave_others_on_the_loop_their_turns(shop: Shop) -> None:
    turns: list[int] = []
    count = 0

    async def busy() -> None:
        turns.append(count)
        time.sleep(0.003)  # noqa: ASYNC251  # that is the point

    shop.task(busy)
    ids = [await shop.submit("busy") for _ in range(30)]

    async def tick() -> None:
        nonlocal count
        while True:
            count += 1
            await asyncio.sleep(0)

    async with shop.worker(concurrency=1):
        ticking = asyncio.create_task(tick())
        for id in ids:
            await shop.ended(id)
        ticking.cancel()
    assert len(turns) == len(set(turns)) == 30, "others had a turn between any two of them"


async def test_every_slot_is_filled_though_tasks_are_begun_a_few_at_a_time(shop: Shop) -> None:
    gate, inside = asyncio.Event(), 0

    async def waits() -> None:
        nonlocal inside
        inside += 1
        await gate.wait()

    shop.task(waits)
    ids = await shop.submit_many("waits", 3 * STARTS_PER_TURN + 2)
    async with shop.worker(concurrency=3 * STARTS_PER_TURN + 1):
        await until(lambda: inside == 3 * STARTS_PER_TURN + 1)
        gate.set()
        assert {(await shop.ended(id)).status for id in ids} == {Status.COMPLETED}


async def test_outside_a_handler_there_is_no_context(shop: Shop) -> None:
    async def inside() -> bool:
        return Context._current_or_none() is not None

    shop.task(inside)
    id = await shop.submit("inside")
    async with shop.worker():
        assert (await shop.ended(id)).result is True
    with pytest.raises(NoContext):
        Context.current()


# One job in a worker's hands more than once, and handlers that are stuck


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
            (run,) = worker._slots.runs.values()
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
        late.wait(45)

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
        (run,) = worker._slots.runs.values()
        await until(lambda: run.owned.started_at is not None)
        started = run.owned.started_at
        assert started is not None
        run.owned.started_at = started.replace(year=started.year + 1)  # as if the clock had jumped since
        await shop.reaches(id, Status.RUNNING)
        gate.set()
        await shop.ended(id)
