"""Suspects on a worker: like any other job, or in quarantine, and then after what was done before."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from msgspec.structs import replace

from headrace import App, Retry
from headrace.core.lifecycle.claim import ClaimRequest
from headrace.core.lifecycle.execution import start
from headrace.core.lifecycle.suspects import REQUIREMENT, in_quarantine
from headrace.core.lifecycle.sweep import sweep
from headrace.core.status import Status
from headrace.engine import Claimed, Engine, WorkerInfo
from headrace.errors import ConfigError
from headrace.runtime.host import Host
from headrace.runtime.writes import batcher
from headrace.worker.claim import suspects
from headrace.worker.claim.suspects import SuspectFetcher
from headrace.worker.execution.context import Context
from tests.support.apps import ENGINES, url_of
from tests.support.shop import Shop
from tests.support.until import until

pytestmark = pytest.mark.every_engine

AT_ONCE = Retry(9, backoff="fixed", initial=0.0, jitter=False)


async def lose_all(engine: Engine, host: Host, times: int = 1) -> None:
    """All jobs that are in line now, after a worker had started them and died; so many times."""
    for _ in range(times):
        now = host.clock.now()
        worker = host.dice.new_id(now)
        await engine.workers.register(WorkerInfo(id=worker, host="gone", pid=1, started_at=now, concurrency=9), now)
        profiles = frozenset(one.id for one in (await engine.documents.profiles()).profiles)
        claimed = await engine.jobs.claim(
            worker, ClaimRequest(n=1000, free=1000, profiles=profiles), host.dice.token(), now
        )
        assert isinstance(claimed, Claimed)
        changes = [replace(start(job, now, engine.rules), id=host.dice.token()) for job in claimed.jobs]
        await engine.jobs.apply(changes, now)
        await engine.workers.bury(worker, 0)
        for found in (await engine.jobs.overdue(now)).jobs:
            change = sweep(found.job, now, 0.5, engine.rules, alive=found.alive, beside_suspect=found.beside_suspect)
            assert change is not None
            await engine.jobs.apply([replace(change, id=host.dice.token())], now)


class Floor:
    """Who runs at a time, in quarantine (True) or not; handlers go on when they are let."""

    def __init__(self, shop: Shop) -> None:
        self.shop, self.now, self.most = shop, Counter[bool](), Counter[bool]()
        self.gate = asyncio.Event()

        async def work(ctx: Context) -> None:
            apart = in_quarantine(ctx.job)
            self.now[apart] += 1
            self.most[apart] = max(self.most[apart], self.now[apart])
            await self.gate.wait()
            await asyncio.sleep(0.005)
            self.now[apart] -= 1

        shop.task(work)


async def test_after_a_first_loss_they_take_all_slots(shop: Shop) -> None:
    floor = Floor(shop)
    ids = await shop.submit_many("work", 16, retry=AT_ONCE)
    await lose_all(shop.engine, shop.host)
    async with shop.worker(concurrency=10):
        await until(lambda: floor.now[False] == 10, what="all slots are at work")
        floor.gate.set()
        jobs = await shop.all_ended(ids)
    assert {job.status for job in jobs} == {Status.COMPLETED}
    assert {job.suspect for job in jobs} == {0}, "completing clears it"


async def test_after_a_second_loss_one_at_a_time_beside_ordinary_jobs(shop: Shop) -> None:
    floor = Floor(shop)
    ids = await shop.submit_many("work", 5, retry=AT_ONCE)
    await lose_all(shop.engine, shop.host, 2)
    ids += await shop.submit_many("work", 7, retry=AT_ONCE)
    async with shop.worker(concurrency=8):
        await until(lambda: floor.now[True] == 1 and floor.now[False] == 7, what="all slots are at work")
        floor.gate.set()
        jobs = await shop.all_ended(ids)
    assert {job.status for job in jobs} == {Status.COMPLETED}
    assert floor.most[True] == 1


async def test_ordinary_jobs_do_not_keep_suspects_waiting(shop: Shop) -> None:
    """However many stand in line: a suspect has the next slot that comes free."""
    ran: list[int] = []

    async def busy(ctx: Context) -> None:
        ran.append(ctx.job.suspect)
        await asyncio.sleep(0.01)

    shop.task(busy)
    first = await shop.submit_many("busy", 3, retry=AT_ONCE)
    await lose_all(shop.engine, shop.host, 2)
    await shop.submit_many("busy", 1000, priority=90)
    async with shop.worker(concurrency=2):
        await shop.all_ended(first)
        assert ran.count(2) == 3
        assert len(ran) < 1003


async def test_it_begins_when_what_was_done_before_is_stored(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a worker that it kills does not lose what was done."""
    monkeypatch.setattr(batcher, "_FULL_ROWS", 1)  # its start may be written beside the finishes that are on their way
    called, early = list[str](), list[UUID]()
    asked = asyncio.Event()
    open_again = asyncio.Event()

    async def quick() -> None:
        called.append("quick")

    async def bad() -> None:
        called.append("bad")

    shop.task(quick)
    shop.task(bad)
    suspect = await shop.submit("bad", retry=AT_ONCE)
    await lose_all(shop.engine, shop.host, 2)
    stored = shop.engine.jobs.apply

    async def held(changes: Any, now: Any) -> Any:
        if any(change.job.task == "quick" for change in changes):
            asked.set()
            await open_again.wait()
        elif not open_again.is_set():
            early.extend(change.job.id for change in changes if change.job.task == "bad")
        return await stored(changes, now)

    await shop.cancel(suspect)  # out of the way until the other is done
    shop.engine.jobs.apply = held  # type: ignore[method-assign]
    first = await shop.submit("quick")
    async with shop.worker(concurrency=8) as worker:
        await until(asked.is_set, what="a finish is on its way")
        [other] = [replace(shop.job("bad", retry=AT_ONCE), suspect=2, attempt=2)]
        await shop.writer.inserts.insert(other)
        try:
            finish = worker._slots.owned[first.int]
            await until(lambda: early or finish._landing is not None, what="the suspect waits for it, or begins")
            stood = (await shop.get(first)).status
        finally:
            open_again.set()
        assert not early
        assert stood is not Status.COMPLETED
        await shop.ended(other.id)
        assert called == ["quick", "bad"]
        before, after = await shop.get(first), await shop.get(other.id)
        assert before.status is Status.COMPLETED
        assert after.attempt == 3
        await shop.ended(first)
    shop.engine.jobs.apply = stored  # type: ignore[method-assign]


async def test_it_begins_when_it_is_stored_what_else_runs(shop: Shop) -> None:
    """If one of these kills the worker, the store knows that the suspect was not the only one."""
    running, done = asyncio.Event(), asyncio.Event()
    seen: list[Status] = []

    async def long() -> None:
        running.set()
        await done.wait()

    async def bad() -> None:
        seen.append((await shop.get(first)).status)
        done.set()

    shop.task(long)
    shop.task(bad)
    first = await shop.submit("long")
    async with shop.worker(concurrency=8):
        await running.wait()
        other = replace(shop.job("bad", retry=AT_ONCE), suspect=2, attempt=2)
        await shop.writer.inserts.insert(other)
        await shop.ended(other.id)
        await shop.ended(first)
    assert seen == [Status.RUNNING]


async def test_beside_it_what_was_lost_with_several_workers_is_stored_before_it_begins(shop: Shop) -> None:
    running, done = asyncio.Event(), asyncio.Event()
    seen: list[Status] = []

    async def bad() -> None:
        running.set()
        await done.wait()

    async def work(ctx: Context) -> None:
        seen.append((await shop.get(ctx.job_id)).status)
        done.set()

    shop.task(bad)
    shop.task(work)
    async with shop.worker(concurrency=8):
        suspect = replace(shop.job("bad", retry=AT_ONCE), suspect=2, attempt=2)
        await shop.writer.inserts.insert(suspect)
        await running.wait()
        lost = replace(shop.job("work", retry=AT_ONCE), attempt=1, unstarted_losses=1, blameless_losses=1)
        await shop.writer.inserts.insert(lost)
        await shop.ended(lost.id)
        await shop.ended(suspect.id)
    assert seen == [Status.RUNNING]


async def test_a_store_without_suspects_is_not_asked_for_any(shop: Shop) -> None:
    """An ordinary job costs no more than before."""
    asks: list[ClaimRequest] = []
    claim = shop.engine.jobs.claim

    async def counted(worker: UUID, ask: ClaimRequest, request: int, now: Any) -> Any:
        asks.append(ask)
        return await claim(worker, ask, request, now)

    async def work() -> None:
        pass

    shop.task(work)
    shop.engine.jobs.claim = counted  # type: ignore[method-assign]
    ids = await shop.submit_many("work", 500)
    async with shop.worker(concurrency=8) as worker:
        await shop.all_ended(ids)
        fetchers = worker.fetchers
        assert [type(one) for one in fetchers[1:]] == [SuspectFetcher]
    shop.engine.jobs.claim = claim  # type: ignore[method-assign]
    [ordinary] = [one.id for one in (await shop.engine.documents.profiles()).profiles]
    assert {ask.profiles for ask in asks} <= {frozenset({ordinary}), frozenset()}
    assert frozenset({ordinary}) in {ask.profiles for ask in asks}


async def test_a_burst_runs_suspects_and_ends(shop: Shop) -> None:
    async def work() -> None:
        pass

    shop.task(work)
    ids = await shop.submit_many("work", 6, retry=AT_ONCE)
    await lose_all(shop.engine, shop.host, 2)
    ids += await shop.submit_many("work", 6)
    worker = shop.worker(concurrency=4, burst=True)
    await asyncio.wait_for(worker.run(signals=False), 30)
    assert {(await shop.get(id)).status for id in ids} == {Status.COMPLETED}


async def test_long_jobs_do_not_keep_suspects_waiting(shop: Shop) -> None:
    """Of slots that seldom come free, the next one is a suspect's."""
    ran: list[int] = []

    async def slow(ctx: Context) -> None:
        ran.append(ctx.job.suspect)
        await asyncio.sleep(0.3)

    shop.task(slow)
    first = await shop.submit_many("slow", 2, retry=AT_ONCE)
    await lose_all(shop.engine, shop.host, 2)
    rest = await shop.submit_many("slow", 12, priority=90)
    async with shop.worker(concurrency=1):
        await shop.all_ended([*first, *rest])
    assert sorted(ran) == [0] * 12 + [2] * 2
    assert ran.index(2) <= 3
    assert ran[:8].count(2) == 2


async def test_no_slot_is_kept_when_there_are_no_more_suspects(shop: Shop) -> None:
    """The only slot of a worker was kept for a suspect that another worker has run in the meantime."""
    gate = asyncio.Event()

    async def work() -> None:
        await gate.wait()

    shop.task(work)
    async with shop.worker(concurrency=1) as worker:
        slots = worker._slots
        [first] = await shop.submit_many("work", 1)
        await until(lambda: bool(slots.runs))
        [fetcher] = [one for one in worker.fetchers if isinstance(one, SuspectFetcher)]
        slots.suspects.wants_slot = slots.suspects.turned_away = True
        assert not fetcher._served
        slots._pace._mean = 100.0
        gate.set()
        await shop.all_ended([first, *await shop.submit_many("work", 2)])


async def test_suspects_that_find_no_slot_are_handed_back(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suspects, "MAX_WAIT_SECONDS", 1000.0)
    gate = asyncio.Event()

    async def blocks() -> None:
        await gate.wait()

    shop.task(blocks)
    [suspect] = await shop.submit_many("blocks", 1, retry=AT_ONCE)
    async with shop.worker(concurrency=1) as worker:
        slots = worker._slots
        await until(lambda: bool(slots.runs))
        other = replace(shop.job("blocks", retry=AT_ONCE), suspect=2, attempt=2, charged=2)
        await shop.writer.inserts.insert(other)
        monkeypatch.setattr(type(slots), "turns_over", True)  # as if the handler had been expected to end
        await until(lambda: len(slots.suspects.waiting) == 1, what="the suspect waits for a slot")
        monkeypatch.undo()
        monkeypatch.setattr(suspects, "MAX_WAIT_SECONDS", 0.1)  # now it has
        await shop.reaches(other.id, Status.QUEUED)
        assert (await shop.get(other.id)).unstarted_losses == 0
        gate.set()
        await shop.all_ended([suspect, other.id])


async def test_a_worker_may_not_offer_to_take_suspects(shop: Shop) -> None:
    with pytest.raises(ConfigError, match="headrace keeps that"):
        shop.worker(offers={REQUIREMENT: 1})


@pytest.fixture(params=ENGINES)
def app(request: pytest.FixtureRequest, tmp_path: Path) -> App:
    """An App on an empty store of each kind."""
    return App(url_of(request.param, tmp_path), defaults={"retry": AT_ONCE})


async def test_a_job_may_not_require_it(app: App) -> None:
    @app.task
    async def work() -> None:
        pass

    async with app:
        with pytest.raises(ConfigError, match=REQUIREMENT):
            await work.options(requires={REQUIREMENT: 1}).submit()


@pytest.mark.parametrize("losses", [1, 2])
async def test_a_suspect_may_wait_for_another(app: App, losses: int) -> None:
    """Both were lost with the worker. The one that waits has yielded its slot, and is in nobody's way."""

    @app.task
    async def child() -> int:
        return 7

    @app.task
    async def parent(id: str) -> int:
        found: int = await app.jobs.handle(id).result()
        return found

    async with app:
        one = await child.submit()
        two = await parent.submit(str(one.id))
        await lose_all(app.session.engine, app.host, losses)
        async with app.worker(concurrency=4):
            assert await two.result(timeout=30) == 7


async def test_bulk_calls_obey(app: App) -> None:
    """One in quarantine has a call of its own."""
    calls: list[list[str]] = []
    running = Counter[int]()
    most = 0

    @app.bulk(size=10, wait=0.02)
    async def index(ctx: Context, words: list[str]) -> list[int | Exception]:
        nonlocal most
        calls.append(words)
        suspects = sum(word == "suspect" for word in words)
        running[0] += suspects
        most = max(most, running[0])
        await asyncio.sleep(0.02)
        running[0] -= suspects
        return [1 for _ in words]

    async with app:
        bad = await index.map([("suspect",) for _ in range(12)])
        await lose_all(app.session.engine, app.host, 2)
        good = await index.map([("good",) for _ in range(30)])
        async with app.worker(concurrency=12):
            for job in (*bad, *good):
                await job.result(timeout=30)
    assert all(len(set(words)) == 1 for words in calls)
    assert most == 1
