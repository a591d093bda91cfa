"""Slots: jobs run one after another in one task, and none finds anything of another's there."""

from __future__ import annotations

import asyncio
import time
from contextvars import ContextVar

import pytest

from headrace.core.retry import Retry
from headrace.core.status import Status
from headrace.errors import NoContext
from headrace.worker.context import Context
from tests.support.shop import Shop

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


async def test_outside_a_handler_there_is_no_context(shop: Shop) -> None:
    async def inside() -> bool:
        return Context.current_or_none() is not None

    shop.task(inside)
    id = await shop.submit("inside")
    async with shop.worker():
        assert (await shop.ended(id)).result is True
    with pytest.raises(NoContext):
        Context.current()
