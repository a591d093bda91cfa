"""Streams under workers that die, lose their jobs or lose touch: items are neither lost nor doubled."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from headrace.core.entry import Append, Entry, Kind
from headrace.core.lifecycle.loss import lose
from headrace.core.lifecycle.retry import Retry
from headrace.core.status import Cause, Status
from headrace.errors import Unstorable
from headrace.runtime.writes.writer import Writer
from headrace.worker.execution.context import Context
from headrace.worker.execution.run import Run
from headrace.worker.execution.writers import MAX_WRITE_ENTRIES
from headrace.worker.worker import Worker
from tests.support.faults import LosesReplies
from tests.support.shop import Shop
from tests.support.until import until


async def items(shop: Shop, id: object) -> list[tuple[int, int, str]]:
    """What was kept: attempt, number, value."""
    found, after = list[Entry](), (0, -1)
    while page := await shop.engine.entries.tail(id, Kind.ITEM, after):  # type: ignore[arg-type]
        found += page
        after = page[-1].cursor
    return [(entry.attempt, entry.number, entry.data) for entry in found]


async def freeze(worker: Worker, until: asyncio.Event) -> None:
    """Let a worker beat no more, and add nothing before it is let go on."""
    keep = worker.writer.append

    async def late(append: Append) -> bool:
        await until.wait()
        return await keep(append)

    worker.writer.append = late  # type: ignore[method-assign]
    heartbeat = worker._heartbeat
    assert heartbeat is not None
    await heartbeat.stop()


async def test_a_stream_whose_worker_died_is_resumed_by_another(shop: Shop) -> None:
    runs, half, go_on = list[int](), asyncio.Event(), asyncio.Event()

    async def count(ctx: Context, n: int) -> AsyncIterator[int]:
        runs.append(ctx.stream_position)
        for number in range(ctx.stream_position + 1, n + 1):
            yield number
            if len(runs) == 1 and number == 5000:
                half.set()
                await go_on.wait()  # and then goes on as if nothing had happened

    shop.task(count)
    twin = shop.engine.another_session()
    await twin.open()
    dead = shop.worker(engine=twin)
    await dead.start()
    id = await shop.submit("count", payload={"n": 10_000})
    await asyncio.wait_for(half.wait(), 45)
    await freeze(dead, go_on)
    async with shop.worker(maintain=True):
        job = await shop.ended(id)
    assert (job.status, job.result) == (Status.COMPLETED, 10_000)
    kept = await items(shop, id)
    assert [int(value) for _, _, value in kept] == list(range(1, 10_001)), "none is lost, none twice"
    assert [number for _, number, _ in kept] == list(range(1, 10_001))
    assert {attempt for attempt, _, _ in kept} == {1, 2}
    assert runs == [0, sum(attempt == 1 for attempt, _, _ in kept)]
    go_on.set()
    await dead.end()
    await twin.close()
    assert await items(shop, id) == kept, "what it had to add came too late"


async def test_what_a_worker_adds_after_it_lost_the_job_is_refused(shop: Shop) -> None:
    began, go_on, closed = asyncio.Event(), asyncio.Event(), asyncio.Event()
    runs = list[Context]()

    async def count(ctx: Context) -> AsyncIterator[int]:
        runs.append(ctx)
        mine = len(runs)
        try:
            yield mine
            await ctx.flush()
            began.set()
            if mine == 1:
                await go_on.wait()
            yield mine
        finally:
            if mine == 1:
                closed.set()

    shop.task(count)
    async with shop.worker(concurrency=2):
        id = await shop.submit("count")
        await asyncio.wait_for(began.wait(), 45)
        await until(lambda: _has(shop, id, 1))
        rules, now = shop.engine.rules, shop.host.clock.now()
        await shop.writer.decide(id, lambda job, _: lose(job, Cause.LEASE, now, 0.5, rules))
        await shop.ended(id)
        go_on.set()
        await asyncio.wait_for(closed.wait(), 45)
    assert (await shop.get(id)).result == 2
    assert await items(shop, id) == [(1, 1, "1"), (2, 0, "null"), (2, 1, "2"), (2, 2, "2")]


async def _has(shop: Shop, id: object, n: int) -> bool:
    return len(await items(shop, id)) == n


async def test_a_stale_owner_is_answered_as_such(shop: Shop) -> None:
    began, go_on = asyncio.Event(), asyncio.Event()

    async def wait(ctx: Context) -> None:
        await ctx.flush()
        began.set()
        await go_on.wait()

    shop.task(wait)
    async with shop.worker() as worker:
        id = await shop.submit("wait")
        await asyncio.wait_for(began.wait(), 45)
        job = await shop.get(id)
        entry = Entry(Kind.ITEM, 1, 1, "1", shop.host.clock.now())
        assert not await shop.writer.append(Append(id, worker.id, job.epoch + 1, (entry,)))
        assert await shop.writer.append(Append(id, worker.id, job.epoch, (entry,)))
        go_on.set()
        await shop.ended(id)
        assert not await shop.writer.append(Append(id, worker.id, job.epoch, (entry,)))


async def test_lost_replies_lose_and_double_nothing(shop: Shop) -> None:
    async def count(n: int) -> AsyncIterator[int]:
        for number in range(n):
            yield number
            if number % 100 == 0:
                await asyncio.sleep(0)

    shop.task(count)
    lossy = LosesReplies(shop.engine, {"append": 2})
    shop.writer = Writer(lossy, shop.host)
    async with shop.worker():
        id = await shop.submit("count", payload={"n": 3000})
        job = await shop.ended(id)
    assert lossy.dropped["append"] > 0
    assert job.result == 3000
    assert [int(value) for _, _, value in await items(shop, id)] == list(range(3000))


async def test_a_generator_is_held_up_by_a_store_that_does_not_keep_up(shop: Shop) -> None:
    yielded, full = 0, asyncio.Event()

    async def flood() -> AsyncIterator[int]:
        nonlocal yielded
        for number in range(10 * MAX_WRITE_ENTRIES):
            yielded = number + 1
            yield number

    shop.task(flood)
    keep, gate = shop.writer.append, asyncio.Event()

    async def slow(append: Append) -> bool:
        full.set()
        await gate.wait()
        return await keep(append)

    shop.writer.append = slow  # type: ignore[method-assign]
    async with shop.worker():
        id = await shop.submit("flood")
        await asyncio.wait_for(full.wait(), 45)
        await until(lambda: yielded >= 2 * MAX_WRITE_ENTRIES)
        for _ in range(20):
            await asyncio.sleep(0)
        assert yielded <= 2 * MAX_WRITE_ENTRIES + 1
        gate.set()
        assert (await shop.ended(id)).result == 10 * MAX_WRITE_ENTRIES


@pytest.mark.parametrize("pause", [False, True], ids=["all in one write", "after others were kept"])
async def test_items_that_the_store_refuses_at_the_end_fail_the_job(shop: Shop, pause: bool) -> None:
    """Else it would be completed without them."""

    async def few(ctx: Context) -> AsyncIterator[str]:
        yield "first"
        if pause:
            await until(lambda: _has(shop, ctx.job_id, 1))
        yield "last"

    shop.task(few)
    keep = shop.writer.append

    async def picky(append: Append) -> bool:
        if any(entry.data == '"last"' for entry in append.entries):
            raise Unstorable("this item is not for me")
        return await keep(append)

    shop.writer.append = picky  # type: ignore[method-assign]
    async with shop.worker():
        id = await shop.submit("few", retry=Retry(0))
        job = await shop.ended(id)
    assert job.error is not None
    assert (job.status, job.error.type) == (Status.FAILED, "Unstorable")
    assert [value for _, _, value in await items(shop, id)] == (['"first"'] if pause else [])


async def test_many_streams_at_once_share_writes(shop: Shop) -> None:
    async def few(n: int) -> AsyncIterator[int]:
        for number in range(n):
            yield number

    shop.task(few)
    calls = LosesReplies(shop.engine, {"append": 10**9})
    shop.writer = Writer(calls, shop.host)
    async with shop.worker(concurrency=50):
        ids = await shop.submit_many("few", 200, payload={"n": 3})
        jobs = await shop.all_ended(ids)
    assert [job.result for job in jobs] == [3] * 200
    for id in ids:
        assert [value for _, _, value in await items(shop, id)] == ["0", "1", "2"]
    assert calls.calls["append"] < 400


async def test_a_stream_that_is_handed_back_at_the_stop_of_its_worker_goes_on(shop: Shop) -> None:
    began = asyncio.Event()

    async def count(ctx: Context) -> AsyncIterator[int]:
        for number in range(ctx.stream_position + 1, 7):
            yield number
            if ctx.attempt == 1 and number == 3:
                began.set()
                await asyncio.Event().wait()

    shop.task(count)
    async with shop.worker(grace=0.0):
        id = await shop.submit("count")
        await asyncio.wait_for(began.wait(), 45)
    assert (await shop.get(id)).status is Status.QUEUED
    async with shop.worker():
        assert (await shop.ended(id)).result == 6
    assert [int(value) for _, _, value in await items(shop, id)] == [1, 2, 3, 4, 5, 6]
    assert (await shop.get(id)).charged == 1


async def test_a_run_that_adds_nothing_has_no_scribe(shop: Shop) -> None:
    """What most jobs do not need is not made for them, and costs them no write."""
    seen: list[object] = []

    async def plain(ctx: Context) -> None:
        assert isinstance(ctx._caller, Run)
        seen.append(ctx._caller._entry_writer)

    shop.task(plain)
    calls = LosesReplies(shop.engine, {"append": 10**9, "apply": 10**9, "tail": 10**9})
    shop.writer = Writer(calls, shop.host)
    async with shop.worker():
        await shop.ended(await shop.submit("plain"))
    assert seen == [None]
    assert (calls.calls["append"], calls.calls["tail"], calls.calls["apply"]) == (0, 0, 1)
