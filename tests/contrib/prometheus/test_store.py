"""What a scrape tells of the store."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from headrace.contrib.prometheus import HeadraceCollector, store
from headrace.core.lifecycle.claim import ClaimRequest
from headrace.core.stats.rollup import OTHER
from headrace.core.status import Status
from headrace.engine import Beat, Claimed, WorkerInfo
from headrace.testing import FakeClock
from tests.contrib.prometheus.pages import samples, value
from tests.support.apps import Sums


class Scraper:
    """An App on a fake clock, and its page."""

    def __init__(self) -> None:
        self.clock, self.sums = FakeClock(), Sums()
        self.collector = HeadraceCollector(self.sums.app, patience=60.0)
        self.registry = CollectorRegistry()
        self.registry.register(self.collector)

    async def page(self) -> str:
        self.clock.advance(5.1)
        await self.collector.refresh()
        return generate_latest(self.registry).decode()


async def test_depth_age_and_pauses() -> None:
    scraper = Scraper()
    with scraper.sums.app.override(clock=scraper.clock):
        async with scraper.sums.app as app:
            await scraper.sums.add.map([(1,), (2,)])
            await scraper.sums.multiply.options(delay=100).submit(1, 2)
            await app.queues.pause("slow")
            scraper.clock.advance(30)
            page = await scraper.page()
            assert value(page, "headrace_store_up") == 1
            assert value(page, "headrace_store_read_age_seconds") == 0
            assert value(page, "headrace_queue_jobs", queue="default", status="queued") == 2
            assert value(page, "headrace_queue_jobs", queue="slow", status="scheduled") == 1
            assert value(page, "headrace_queue_oldest_seconds", queue="default") == pytest.approx(35.1)
            assert value(page, "headrace_queue_oldest_seconds", queue="slow") == 0
            paused = {queue: value(page, "headrace_queue_paused", queue=queue) for queue in ("default", "slow")}
            assert paused == {"default": 0, "slow": 1}
            await app.tasks.pause("add")
            page = await scraper.page()
            paused = {task: value(page, "headrace_task_paused", task=task) for task in ("add", "multiply")}
            assert paused == {"add": 1, "multiply": 0}
            await app.tasks.resume("add")
            assert value(await scraper.page(), "headrace_task_paused", task="add") == 0
            statuses = {dict(labels)["status"] for labels in samples(page)["headrace_queue_jobs"]}
            assert statuses == {*Status} - {"completed", "cancelled"}


async def test_slots_of_all_workers() -> None:
    scraper = Scraper()
    with scraper.sums.app.override(clock=scraper.clock):
        async with scraper.sums.app as app:
            engine, now = app.session.engine, scraper.clock.now()
            await scraper.sums.add.map([(n,) for n in range(5)])
            profiles = frozenset(one.id for one in (await engine.documents.profiles()).profiles)
            for slots, busy in ((4, 3), (1, 2)):  # a bulk handler is busy with more jobs than slots
                id = app.host.dice.new_id(now)
                await engine.workers.register(
                    WorkerInfo(id=id, host="h", pid=1, started_at=now, concurrency=slots), now
                )
                claimed = await engine.jobs.claim(id, ClaimRequest(n=busy, free=busy, profiles=profiles), 1, now)
                assert isinstance(claimed, Claimed)
                assert len(claimed.jobs) == busy
                await engine.workers.beat(id, Beat(busy=0), now)  # what it was before it had these
            page = await scraper.page()
            assert value(page, "headrace_slots", state="busy") == 4
            assert value(page, "headrace_slots", state="free") == 1


async def test_a_queue_that_is_empty_again_is_told_with_nothing() -> None:
    scraper = Scraper()
    with scraper.sums.app.override(clock=scraper.clock):
        async with scraper.sums.app:
            job = await scraper.sums.add.options(queue="once").submit(1)
            assert value(await scraper.page(), "headrace_queue_jobs", queue="once", status="queued") == 1
            await job.cancel()
            page = await scraper.page()
            assert value(page, "headrace_queue_jobs", queue="once", status="queued") == 0
            assert value(page, "headrace_queue_oldest_seconds", queue="once") == 0


async def test_beyond_the_most_queues_all_are_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "MAX_QUEUES", 3)  # two are those of the tasks
    scraper = Scraper()
    with scraper.sums.app.override(clock=scraper.clock):
        async with scraper.sums.app:
            for n in range(5):
                await scraper.sums.add.options(queue=f"q{n}").submit(1)
            page = await scraper.page()
            queues = {dict(labels)["queue"] for labels in samples(page)["headrace_queue_oldest_seconds"]}
            assert queues == {"default", "slow", "q0", OTHER}
            assert value(page, "headrace_queue_jobs", queue=OTHER, status="queued") == 4


async def test_a_store_that_cannot_be_read_is_told_and_what_it_holds_is_not() -> None:
    scraper = Scraper()
    with scraper.sums.app.override(clock=scraper.clock):
        async with scraper.sums.app:
            await scraper.sums.add.submit(1)
            assert "headrace_queue_jobs" in samples(await scraper.page())
        scraper.clock.advance(5.1)
        page = generate_latest(scraper.registry).decode()  # the App is closed
    assert value(page, "headrace_store_up") == 0
    assert not {"headrace_queue_jobs", "headrace_workers", "headrace_store_read_seconds"} & samples(page).keys()
    assert value(page, "headrace_store_read_age_seconds") is not None


async def test_alerts_are_shown_and_fall_to_zero_when_they_are_over() -> None:
    scraper = Scraper()
    with scraper.sums.app.override(clock=scraper.clock):
        async with scraper.sums.app as app:
            await app.queues.pause("mail")
            of = {"kind": "paused_queue", "level": "warn", "subject": "mail"}
            assert value(await scraper.page(), "headrace_alerts", **of) == 1
            await app.queues.resume("mail")
            assert value(await scraper.page(), "headrace_alerts", **of) == 0
