"""Callbacks: after the accepted write, at most once, and never to the harm of the job."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from headrace import App, Context, GiveUp, Job, JobCancelled, JobFailed, Retry, Snooze, Status
from headrace.core.change import Change, Verdict, WasStale
from headrace.core.lifecycle.claim import ClaimRequest
from headrace.core.status import Verb
from headrace.engine import Claimed, Engine, WorkerInfo
from headrace.errors import ConfigError
from headrace.runtime.writes.writer import Writer
from headrace.testing import harness
from headrace.worker.execution.hooks import MOMENTS
from headrace.worker.slots import Slots
from headrace.worker.worker import Worker
from tests.support.apps import ENGINES, url_of
from tests.support.faults import Instead, LosesReplies
from tests.support.shop import Shop
from tests.support.until import until

AT_ONCE = Retry(1, backoff="fixed", initial=0.0, jitter=False)


@pytest.fixture(params=ENGINES)
def app(request: pytest.FixtureRequest, tmp_path: Path) -> App:
    """An App on an empty store of each kind."""
    return App(url_of(request.param, tmp_path), defaults={"retry": AT_ONCE})


class Processed:
    """What callbacks were given, in order."""

    def __init__(self) -> None:
        self.jobs: list[tuple[str, Job]] = []

    def note(self, name: str) -> Callable[[Job], None]:
        """A plain callback."""
        return lambda job: self.jobs.append((name, job))

    def listen(self, app: App) -> None:
        """Be told everything."""
        for moment in MOMENTS:
            getattr(app, moment)(self.note(moment))

    @property
    def names(self) -> list[str]:
        """What was called, in order."""
        return [name for name, _ in self.jobs]


async def test_each_end_of_an_attempt_has_its_callback(app: App) -> None:
    told = Processed()
    told.listen(app)
    running = asyncio.Event()
    tries: dict[str, int] = {}

    @app.task
    async def work(how: str) -> str:
        tries[how] = tries.get(how, 0) + 1
        if how == "fails":
            raise ValueError("no")
        if how == "gives up":
            raise GiveUp("never")
        if how == "snoozes" and tries[how] == 1:
            raise Snooze(0)
        if how == "hangs":
            running.set()
            await asyncio.sleep(60)
        return how

    async with app:
        async with app.worker():
            jobs = {how: await work.submit(how) for how in ("works", "fails", "gives up", "snoozes", "hangs")}
            await asyncio.wait_for(running.wait(), 45)
            await jobs["hangs"].cancel()
            for job in jobs.values():
                try:
                    await job.result(timeout=45)
                except (JobFailed, JobCancelled):
                    pass
        stored = {job.id: await job.refresh() for job in jobs.values()}
    by_job = {how: [name for name, one in told.jobs if one.id == job.id] for how, job in jobs.items()}
    assert by_job == {
        "works": ["on_success"],
        "fails": ["on_retry", "on_failed"],
        "gives up": ["on_failed"],
        "snoozes": ["on_success"],
        "hangs": ["on_cancelled"],
    }
    for name, one in told.jobs:
        if name == "on_retry":
            assert (one.status, one.charged) == (Status.RETRYING, 1)
            assert one.error is not None
            assert one.error.message == "no"
            assert one.available_at >= one.updated_at
        else:
            kept = stored[one.id]
            assert (one.status, one.rev, one.result, one.error) == (kept.status, kept.rev, kept.result, kept.error)


async def test_the_apps_come_first_plain_ones_in_threads_async_ones_on_the_loop(app: App) -> None:
    told: list[tuple[str, str]] = []

    def plain(job: Job) -> None:
        told.append(("plain", threading.current_thread().name))

    async def on_loop(job: Job) -> None:
        await asyncio.sleep(0)
        told.append(("async", threading.current_thread().name))

    @app.task(on_success=[plain, on_loop, lambda job: on_loop(job)])
    async def fine() -> None: ...

    @app.task(on_failed=plain)
    def bad() -> None:
        raise GiveUp("no")

    @app.on_success
    def global_one(job: Job) -> None:
        told.append(("global", job.task))

    async with app, app.worker():
        await fine.submit()
        await until(lambda: len(told) == 4)
        await bad.submit()
        await until(lambda: len(told) == 5)
    here = threading.current_thread().name
    assert told[0] == ("global", "fine")
    assert told[1][0] == "plain"
    assert told[1][1].startswith("headrace-handler")
    assert told[2:4] == [("async", here), ("async", here)]
    assert [name for name, _ in told[4:]] == ["plain"]


async def test_an_error_in_one_is_logged_and_harms_nothing(app: App, caplog: pytest.LogCaptureFixture) -> None:
    told = Processed()

    def stop(job: Job) -> None:
        raise StopIteration

    async def leave(job: Job) -> None:
        raise RuntimeError("from a callback")

    def exits(job: Job) -> None:
        raise SystemExit(3)

    @app.task(on_success=[stop, leave, exits, told.note("last")])
    async def fine(n: int) -> int:
        return n

    with caplog.at_level(logging.ERROR, "headrace.worker"):
        async with app, app.worker():
            assert await fine.run(1) == 1
            assert await fine.run(2) == 2
            await until(lambda: told.names == ["last", "last"])
    assert "from a callback" in caplog.text
    assert caplog.text.count("raised; the job is completed all the same") == 6


async def test_a_graceful_stop_waits_for_them_within_its_grace(app: App) -> None:
    begun, gate, told = asyncio.Event(), asyncio.Event(), Processed()

    @app.on_success
    async def slow(job: Job) -> None:
        begun.set()
        await gate.wait()
        told.note("done")(job)

    @app.task
    async def fine() -> None: ...

    async with app:
        worker = app.worker()
        await worker.start()
        await fine.submit()
        await asyncio.wait_for(begun.wait(), 45)
        worker.request_stop()
        stopping = asyncio.create_task(worker.stop())
        await asyncio.sleep(0)
        gate.set()
        await stopping
    assert told.names == ["done"]


async def test_one_that_hangs_is_left_behind_when_the_grace_is_over(app: App, caplog: pytest.LogCaptureFixture) -> None:
    begun = asyncio.Event()

    @app.on_success
    async def hang(job: Job) -> None:
        begun.set()
        await asyncio.sleep(600)

    @app.task
    async def fine() -> str:
        return "ok"

    async with app:
        async with app.worker(grace=0.1):
            job = await fine.submit()
            await asyncio.wait_for(begun.wait(), 45)
        assert await job.result(timeout=45) == "ok"
    assert "was stopped with the worker" in caplog.text


async def test_a_job_cancelled_in_the_buffer_is_told_by_the_worker_that_held_it(shop: Shop) -> None:
    told, now = Processed(), shop.host.clock.now()

    async def never() -> None: ...

    shop.task(never)
    shop.handlers["never"].callbacks = {Status.CANCELLED: (told.note("cancelled"),)}
    unclaimed = await shop.submit("never", delay=3600)
    await shop.cancel(unclaimed)  # ended where it was cancelled: no worker had it
    id = await shop.submit("never")
    me = shop.host.dice.new_id(now)
    await shop.engine.workers.register(WorkerInfo(id=me, host="here", pid=1, started_at=now, concurrency=1), now)
    profiles = frozenset(one.id for one in (await shop.engine.documents.profiles()).profiles)
    claimed = await shop.engine.jobs.claim(me, ClaimRequest(n=1, free=1, profiles=profiles), 1, shop.host.clock.now())
    assert isinstance(claimed, Claimed)
    options: dict[str, Any] = {"may_start": lambda: False, "hungry": lambda: None}
    slots = Slots(shop.handlers, shop.writer, shop.host, concurrency=1, **options)
    try:
        slots.take(claimed.jobs, {})
        await shop.cancel(id)
        slots.cancel(id)
        await until(lambda: slots.empty)
    finally:
        slots.close()
    assert [(name, job.id) for name, job in told.jobs] == [("cancelled", id)]


async def test_a_repeated_write_tells_once(shop: Shop) -> None:
    told = Processed()

    async def fine() -> None: ...

    shop.task(fine)
    shop.handlers["fine"].callbacks = {Status.COMPLETED: (told.note("done"),)}
    engine: Any = LosesReplies(shop.engine, {"apply": 2})
    async with Worker(engine, shop.handlers, host=shop.host, writer=Writer(engine, shop.host)):
        ids = await shop.submit_many("fine", 5)
        ids += [await shop.submit("fine") for _ in range(5)]
        await shop.all_ended(ids)
        await until(lambda: len(told.jobs) == len(ids))
    assert sorted(job.id for _, job in told.jobs) == sorted(ids)


class _Usurped:
    """An engine in which another worker takes every job right before its end is written."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

        self.jobs = Instead(engine.jobs, apply=self._apply)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    async def _apply(self, changes: Sequence[Change], now: datetime) -> list[Verdict]:
        """Stale, as the store says of an owner that was replaced."""
        if any(change.verb is Verb.COMPLETE for change in changes):
            return [WasStale(None) for _ in changes]
        return await self._engine.jobs.apply(changes, now)


async def test_a_stale_end_is_told_to_nobody(shop: Shop) -> None:
    told = Processed()

    async def fine() -> None: ...

    shop.task(fine)
    shop.handlers["fine"].callbacks = dict.fromkeys(Status, (told.note("told"),))
    engine: Any = _Usurped(shop.engine)
    worker = Worker(engine, shop.handlers, host=shop.host, writer=Writer(engine, shop.host))
    async with worker:
        await shop.submit("fine")
        await until(lambda: worker.stats.stale == 1)
    assert told.names == []


async def test_a_harness_calls_them_before_it_goes_on() -> None:
    app, told = App("memory://", defaults={"retry": Retry(1)}), Processed()
    told.listen(app)

    @app.task
    async def flaky(ctx: Context) -> None:
        if ctx.attempt == 1:
            raise ValueError("once")

    async with harness(app) as h:
        await flaky.submit()
        await h.drain()
        assert told.names == ["on_retry"]
        await h.advance(minutes=1)
        assert told.names == ["on_retry", "on_success"]


def test_what_cannot_be_called_with_a_job_is_refused() -> None:
    app = App("memory://")
    for wrong in (3, lambda: None, lambda job, more: None):
        with pytest.raises(ConfigError, match="on_failed takes a function of one job"):
            app.on_failed(wrong)  # type: ignore[type-var]  # that is what is tested
        with pytest.raises(ConfigError, match="on_retry takes"):
            app.task(on_retry=[wrong])(print)  # type: ignore[list-item]


async def test_no_more_jobs_are_told_of_at_once_than_run_at_once(app: App) -> None:
    at_once, most, told = 0, 0, 0
    lock = threading.Lock()

    @app.on_success
    def count(job: Job) -> None:
        nonlocal at_once, most, told
        with lock:
            at_once += 1
            most = max(most, at_once)
        time.sleep(0.001)
        with lock:
            at_once, told = at_once - 1, told + 1

    @app.task
    async def quick() -> None: ...

    async with app:
        await quick.map([()] * 200)
        await asyncio.wait_for(app.worker(concurrency=3, burst=True).run(), 30)
    assert told == 200  # a burst is not over before everybody was told
    assert 1 <= most <= 3


async def test_a_job_completed_in_its_handlers_transaction_is_told_once(app: App) -> None:
    told = Processed()
    told.listen(app)

    @app.task
    async def pays(ctx: Context) -> str:
        async with ctx.transaction() as tx:
            tx.complete("paid")
        raise ValueError("too late to matter")

    async with app, app.worker():
        if app.session.engine.transactions is None:
            with pytest.raises(JobFailed, match="no transactions"):
                await pays.options(retry=Retry(0)).run()
            await until(lambda: told.names == ["on_failed"])
        else:
            assert await pays.run() == "paid"
            await until(lambda: told.names == ["on_success"])
            assert told.jobs[0][1].result == "paid"
    assert len(told.jobs) == 1
