"""Jobs with a heartbeat: what counts as a sign, how often signs are written, and what happens when none comes."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import AsyncIterator, Sequence
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from headrace import App, Context, Retry, Tasks
from headrace.core.attempt import Progress
from headrace.core.change import Change, Verdict
from headrace.core.job import Job
from headrace.core.status import Reason, Status, Verb
from headrace.engine import Engine
from headrace.errors import Unstorable
from headrace.worker.execution.signs import SignThrottle
from tests.support.apps import url_of
from tests.support.programs.process_tasks import breathes
from tests.support.shop import Shop
from tests.support.until import until

BEAT = 0.9
"""Long enough that a busy machine lets a handler give a sign in time."""
ONCE = Retry(0)


def test_signs_are_written_three_times_in_a_heartbeat() -> None:
    signs = SignThrottle(60.0, 100.0)
    assert not signs.is_unwritten, "the start is on record by itself"
    signs.last_at = 105.0
    assert (signs.is_unwritten, signs.wait(105.0), signs.wait(120.0)) == (True, 15.0, 0.0)
    signs.written(120.0)
    assert not signs.is_unwritten
    assert (signs.left(125.0), signs.left(165.0)) == (40.0, 0.0), "counted from the sign, not from the write"


def written(engine: Engine) -> list[Change]:
    """The changes of progress that are written from now on."""
    apply, found = engine.jobs.apply, list[Change]()

    async def counted(changes: Sequence[Change], now: datetime) -> list[Verdict]:
        found.extend(one for one in changes if one.verb is Verb.PROGRESS)
        return await apply(changes, now)

    engine.jobs.apply = counted  # type: ignore[method-assign]
    return found


def silent(job: Job) -> bool:
    """Whether it failed because nothing was heard of it."""
    assert job.error is not None
    assert (job.error.type, job.error.message) == ("Timeout", f"the attempt reported nothing for {job.heartbeat:g} s")
    return (job.status, job.reason) == (Status.FAILED, Reason.TIMEOUT)


async def test_a_hung_job_times_out_beside_a_live_one_and_is_tried_again(shop: Shop) -> None:
    calls = list[int]()

    async def hangs(ctx: Context) -> str:
        calls.append(ctx.attempt)
        if ctx.attempt == 1:
            await asyncio.Event().wait()
        return "done"

    async def lives(ctx: Context) -> None:
        while len(calls) < 2:
            ctx.heartbeat()
            await asyncio.sleep(0.02)

    shop.task(hangs)
    shop.task(lives)
    hung, live = await shop.submit("hangs", heartbeat=BEAT), await shop.submit("lives", heartbeat=BEAT)
    async with shop.worker(concurrency=2) as worker:
        job, other = await shop.ended(hung), await shop.ended(live)
        await until(lambda: worker.stats.busy == 0, what="both slots free")
    assert (job.status, job.charged, await shop.outcomes(hung)) == (Status.COMPLETED, 2, ["timed_out", "completed"])
    [first, _] = (await shop.history(hung)).attempts
    assert first.error is not None
    assert first.error.message == f"the attempt reported nothing for {BEAT:g} s"
    assert (other.status, await shop.outcomes(live)) == (Status.COMPLETED, ["completed"])


@pytest.fixture
def app(tmp_path: Path) -> App:
    return App(url_of("sqlite", tmp_path), defaults={"heartbeat": BEAT, "retry": ONCE})


tasks = Tasks()


@tasks.task
async def reports(ctx: Context) -> None:
    for n in range(15):
        ctx.progress(n)
        await asyncio.sleep(0.1)


@tasks.task
async def logs() -> None:
    for n in range(15):
        logging.getLogger("mine").warning("%d", n)
        await asyncio.sleep(0.1)


@tasks.task
async def steps(ctx: Context) -> None:
    for n in range(15):
        await ctx.step(f"step {n}", asyncio.sleep, 0.1)


@tasks.task
async def items() -> AsyncIterator[int]:
    for n in range(15):
        await asyncio.sleep(0.1)
        yield n


@tasks.task
def thread(ctx: Context) -> None:
    for _ in range(15):
        ctx.heartbeat()
        time.sleep(0.1)


async def test_whatever_a_handler_reports_is_a_sign(app: App) -> None:
    app.include(tasks)
    async with app, app.worker(concurrency=5):
        handles = [await app.submit(task, {}) for task in ("reports", "logs", "steps", "items", "thread")]
        for handle in handles:
            job = await handle.ended(timeout=30)
            assert job is not None
            assert (job.task, job.status, job.attempt) == (job.task, Status.COMPLETED, 1)


async def test_a_thread_that_reports_nothing_is_as_after_a_time_out(shop: Shop) -> None:
    gate = threading.Event()

    def stuck(ctx: Context) -> None:
        gate.wait(45)
        ctx.check()

    shop.task(stuck)
    id = await shop.submit("stuck", heartbeat=0.2, retry=ONCE)
    async with shop.worker() as worker:
        assert silent(await shop.ended(id))
        assert worker.stats.stuck_threads == 1
        gate.set()
        await until(lambda: worker.stats.stuck_threads == 0)


async def test_a_child_process_gives_signs_and_is_killed_without_them(shop: Shop) -> None:
    shop.handlers[breathes.name] = breathes.handler
    await shop.submit_many(breathes.name, 2, payload={"seconds": 0.5, "signs": True})
    async with shop.worker(concurrency=2) as worker:
        await until(lambda: worker.stats.done == 2, what="two children that have started")
        alive = await shop.submit(breathes.name, payload={"seconds": 2.5, "signs": True}, heartbeat=1.5, retry=ONCE)
        dead = await shop.submit(breathes.name, payload={"seconds": 60.0, "signs": False}, heartbeat=1.5, retry=ONCE)
        assert silent(await shop.ended(dead))
        assert (await shop.ended(alive)).status is Status.COMPLETED


async def test_the_shortest_heartbeat_counts_for_a_bulk_call_and_a_sign_for_all_its_jobs(app: App) -> None:
    called = asyncio.Event()

    @app.bulk(size=10, wait=0.05)
    async def index(ctx: Context, numbers: list[int]) -> list[int | Exception]:
        for _ in range(12):
            ctx.heartbeat()
            await asyncio.sleep(0.1)
        if 0 in numbers:
            called.set()
            await asyncio.Event().wait()
        return list(numbers)

    async with app, app.worker():
        good = [await index.submit(n) for n in (1, 2)]
        for handle in good:
            job = await handle.ended(timeout=30)
            assert job is not None
            assert job.status is Status.COMPLETED
        bad = [await index.options(heartbeat=beat).submit(0) for beat in (BEAT, 60.0)]
        jobs = [await handle.ended(timeout=30) for handle in bad]
    assert called.is_set()
    for job in jobs:
        assert job is not None
        assert job.error is not None
        assert (job.status, job.error.message) == (Status.FAILED, f"the attempt reported nothing for {BEAT:g} s")


async def test_signs_are_few_and_the_last_one_reaches_the_store(shop: Shop) -> None:
    found, gate, heartbeat = written(shop.engine), asyncio.Event(), 4.0

    async def busy(ctx: Context) -> None:
        for _ in range(100):
            ctx.heartbeat()
            await asyncio.sleep(0.001)
        await gate.wait()

    def moved(job: Job) -> bool:
        if job.started_at is None or job.act_by is None:
            return False
        return job.act_by > job.started_at + timedelta(seconds=heartbeat + shop.engine.rules.timeout_check)

    shop.task(busy)
    id = await shop.submit("busy", heartbeat=heartbeat, retry=ONCE)
    async with shop.worker():
        await shop.reaches(id, Status.RUNNING)
        await until(lambda: shop._has(id, moved), what="the last sign, a third of the heartbeat after the start")
        assert len(found) <= 2, "of a hundred"
        assert all(one.job.progress is None and one.rev == one.job.rev for one in found)
        gate.set()
        assert (await shop.ended(id)).status is Status.COMPLETED


async def test_jobs_without_a_heartbeat_write_no_signs(shop: Shop) -> None:
    found = written(shop.engine)

    async def plain(ctx: Context) -> None:
        for _ in range(5):
            ctx.heartbeat()
            await asyncio.sleep(0)

    shop.task(plain)
    # That of the page is for workers behind a hub.
    ids = [await shop.submit("plain"), await shop.submit("plain", remote_heartbeat=0.1)]
    async with shop.worker():
        jobs = await shop.all_ended(ids)
    assert {job.status for job in jobs} == {Status.COMPLETED}
    assert found == []


async def test_a_report_that_cannot_be_stored_is_a_sign_all_the_same(shop: Shop) -> None:
    gate, heartbeat, apply = asyncio.Event(), 4.0, shop.engine.jobs.apply

    async def refusing(changes: Sequence[Change], now: datetime) -> list[Verdict]:
        if any(change.job.progress is not None for change in changes if change.verb is Verb.PROGRESS):
            raise Unstorable("no such report")
        return await apply(changes, now)

    shop.engine.jobs.apply = refusing  # type: ignore[method-assign]

    async def reports(ctx: Context) -> None:
        await asyncio.sleep(heartbeat / 3)  # no sign may be written before
        ctx.progress(50)
        await gate.wait()

    def moved(job: Job) -> bool:
        if job.started_at is None or job.act_by is None:
            return False
        return job.act_by > job.started_at + timedelta(seconds=heartbeat + shop.engine.rules.timeout_check)

    shop.task(reports)
    id = await shop.submit("reports", heartbeat=heartbeat, retry=ONCE)
    async with shop.worker():
        await until(lambda: shop._has(id, moved), what="a sign on record")
        assert (await shop.get(id)).progress is None
        gate.set()
        assert (await shop.ended(id)).status is Status.COMPLETED


async def test_a_report_of_progress_needs_no_sign_beside_it(shop: Shop) -> None:
    found = written(shop.engine)

    async def reports(ctx: Context) -> None:
        await asyncio.sleep(0.2)  # more than a third of its heartbeat
        ctx.progress(50)
        await ctx.flush()

    shop.task(reports)
    id = await shop.submit("reports", heartbeat=0.5)
    async with shop.worker():
        assert (await shop.ended(id)).status is Status.COMPLETED
    assert [one.job.progress for one in found] == [Progress(50.0)]
