"""Scaling advice of an App: what waits, who is there, and how many slots are needed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from headrace import App
from headrace.client.api.scale import QueueScale, profile_of
from headrace.core.attempt import Completed
from headrace.core.job import Spec
from headrace.core.lifecycle import execution
from headrace.core.lifecycle.claim import ClaimRequest
from headrace.core.lifecycle.submission import submit
from headrace.core.stats.rollup import Rollup, Step, Totals, begin_of
from headrace.engine import Beat, Claimed, WorkerInfo
from headrace.errors import ConfigError
from headrace.testing import FakeClock
from tests.support.apps import ENGINES, url_of

GPU = {"gpu": {"min": 24}}


class Shop:
    """An App on a clock that stands still, and its store."""

    def __init__(self, url: str) -> None:
        self.app, self.clock = App(url), FakeClock()
        self.reports = 0

    async def worker(self, slots: int, tasks: tuple[str, ...] = ("resize",), **fields: Any) -> WorkerInfo:
        now = self.clock.now()
        info = WorkerInfo(
            id=self.app.host.dice.new_id(now),
            host="h",
            pid=1,
            started_at=now,
            concurrency=slots,
            tasks=tasks,
            **{"queues": ("images",), **fields},
        )
        await self.app.session.engine.workers.register(info, now)
        return info

    async def submit(self, n: int = 1, task: str = "resize", **spec: Any) -> None:
        now = self.clock.now()
        spec = {"queue": "images", **spec}
        jobs = [
            submit(self.app.host.dice.new_id(now), Spec(task=task, created_at=now, **spec), "{}", now, available_at=now)
            for _ in range(n)
        ]
        await self.app.session.engine.jobs.insert(jobs, now)

    async def run(self, worker: WorkerInfo, n: int, *, finish: bool) -> None:
        """Have a worker take the first jobs, and, if so, complete them."""
        engine, now = self.app.session.engine, self.clock.now()
        profiles = frozenset(one.id for one in (await engine.documents.profiles()).profiles)
        self.reports += 1
        taken = await engine.jobs.claim(worker.id, ClaimRequest(n=n, free=n, profiles=profiles), self.reports, now)
        assert isinstance(taken, Claimed)
        assert len(taken.jobs) == n
        started = [execution.start(job, now, engine.rules) for job in taken.jobs]
        await engine.jobs.apply(started, now)
        if finish:
            ends = [execution.finish(one.job, Completed(), now, 0.5, engine.rules, now) for one in started]
            await engine.jobs.apply(ends, now)

    async def report(self, worker: WorkerInfo, seconds: float, runs: int = 10, ago: timedelta = timedelta(0)) -> None:
        """Tell how long runs took."""
        totals, now = Totals(completed=runs), self.clock.now()
        for _ in range(runs):
            totals.ran.add(seconds)
        self.reports += 1
        row = Rollup(Step.MINUTE, begin_of(now - ago, Step.MINUTE), "resize", "images", totals)
        await self.app.session.engine.workers.beat(worker.id, Beat(report=self.reports, finished=(row,)), now)

    async def images(self, wait: float = 30.0) -> QueueScale:
        self.clock.advance(1.1)  # what was read is used for a second
        [found] = await self.app.stats.scale(wait=wait, queue="images")
        return found


@pytest.fixture(params=ENGINES)
async def shop(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Shop]:
    made = Shop(url_of(request.param, tmp_path))
    with made.app.override(clock=made.clock):
        async with made.app:
            yield made


@pytest.mark.every_engine
async def test_each_queue_and_each_set_of_requirements_has_its_figures(shop: Shop) -> None:
    near = await shop.worker(4)
    await shop.worker(2, name="far", offers={"gpu": 48}, lease=60.0)
    await shop.worker(50, ("headrace.deliver",), queues=("headrace.webhooks",))
    await shop.report(near, 10.0)
    await shop.submit(100)
    await shop.run(near, 3, finish=True)
    shop.clock.advance(10)
    await shop.submit(50, requires=GPU)
    await shop.submit(1, "send", queue="mail")
    await shop.submit(500, "headrace.deliver", queue="headrace.webhooks")
    await shop.submit(500, "headrace.deliver")
    await shop.run(near, 4, finish=False)
    await shop.report(near, 10.0)
    shop.clock.advance(10)
    images, mail = await shop.app.stats.scale()
    assert (images.queue, mail.queue) == ("images", "mail")
    assert (images.backlog, images.running, images.oldest_age, images.slots) == (143, 4, 20.0, 6)
    assert (images.more, images.paused) == (False, False)
    assert images.service_rate == pytest.approx(0.1)
    assert images.arrival_rate == pytest.approx((143 + 3) / 600, rel=0.05)
    assert images.slots_needed == pytest.approx(147 * 10 / (10 + 10), rel=0.1)
    assert images.expected_wait == pytest.approx((143 + 1 - 2) * 10 / 6)
    plain, gpu = sorted(images.requirements, key=lambda part: len(part.requires))
    assert (plain.requires, plain.tasks, plain.backlog, plain.running, plain.slots) == ({}, ("resize",), 93, 4, 6)
    assert (gpu.requires, gpu.backlog, gpu.running, gpu.slots, gpu.oldest_age) == (GPU, 50, 0, 2, 10.0)
    assert gpu.profile == profile_of(GPU) != plain.profile
    assert (mail.backlog, mail.slots, mail.slots_needed, mail.expected_wait) == (1, 0, 1, None)
    [mail] = await shop.app.stats.scale(wait=timedelta(minutes=1), queue="mail")
    assert mail.service_rate is None


async def test_an_idle_queue_needs_nothing(shop: Shop) -> None:
    assert await shop.app.stats.scale() == []
    images = await shop.images()
    assert (images.backlog, images.slots, images.slots_needed, images.requirements) == (0, 0, 0, ())
    await shop.worker(4)
    await shop.worker(3, queues=None)
    assert (await shop.images()).slots == 7
    [images] = await shop.app.stats.scale()
    assert (images.queue, images.slots, images.slots_needed, images.expected_wait) == ("images", 7, 0, 0.0)


async def test_workers_that_take_nothing_are_not_counted(shop: Shop) -> None:
    await shop.submit()
    leaving, blind = await shop.worker(4), await shop.worker(8, ("other",))
    assert (await shop.images()).slots == 4
    await shop.app.session.engine.workers.beat(leaving.id, Beat(state="draining"), shop.clock.now())
    assert (await shop.images()).slots == 0
    assert blind.concurrency == 8


async def test_run_times_of_last_week_count_where_there_are_no_later_ones(shop: Shop) -> None:
    worker = await shop.worker(4)
    await shop.submit(100)
    await shop.report(worker, 2.0, ago=timedelta(hours=3))
    assert (await shop.images()).service_rate == pytest.approx(0.5)
    shop.clock.advance(10)
    await shop.report(worker, 4.0)
    assert (await shop.images()).service_rate == pytest.approx(0.25)


async def test_limits_and_pauses(shop: Shop) -> None:
    worker = await shop.worker(4)
    await shop.submit(100)
    await shop.run(worker, 2, finish=False)
    await shop.app.queues.set("images", max_concurrency=5)
    assert (await shop.images()).slots_needed == 5
    await shop.app.queues.pause("images")
    paused = await shop.images()
    assert (paused.paused, paused.slots_needed, paused.expected_wait) == (True, 2, None)


async def test_a_paused_task_needs_slots_only_for_what_runs(shop: Shop) -> None:
    worker = await shop.worker(4, ("resize", "crop"))
    await shop.submit(500)
    await shop.run(worker, 2, finish=False)
    await shop.app.tasks.pause("resize")
    paused = await shop.images()
    assert (paused.backlog, paused.slots_needed, paused.expected_wait) == (498, 2, None)
    await shop.submit(2, "crop")
    both = await shop.images()
    assert (both.backlog, both.running, both.slots_needed) == (500, 2, 2), "two that begin, and two that run"
    assert both.arrival_rate > 0.5, "they arrive, though they do not begin"
    await shop.app.tasks.resume("resize")
    assert (await shop.images()).slots_needed == 251


async def test_one_set_of_requirements_can_be_asked_for(shop: Shop) -> None:
    await shop.submit(5)
    await shop.submit(7, requires=GPU)
    images = await shop.images()
    gpu = images.of(profile_of(GPU))
    assert (gpu.queue, gpu.backlog, [part.backlog for part in gpu.requirements]) == ("images", 7, [7])
    none = images.of(profile_of({"gpu": 1}))
    assert (none.backlog, none.slots_needed, none.requirements) == (0, 0, ())


async def test_the_store_is_read_once_for_all_who_ask_within_a_second(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    import asyncio

    records, reads = shop.app.session.engine.records, 0
    load = records.load

    async def counted(*args: Any) -> Any:
        nonlocal reads
        reads += 1
        return await load(*args)

    monkeypatch.setattr(records, "load", counted)
    await asyncio.gather(*(shop.app.stats.scale(wait=wait) for wait in range(1, 20)))
    assert reads == 1
    shop.clock.advance(0.9)
    await shop.app.stats.scale()
    assert reads == 1
    await shop.images()
    assert reads == 2


async def test_a_wait_that_is_none_is_refused(shop: Shop) -> None:
    for wrong in (-1, float("nan"), "30s"):
        with pytest.raises(ConfigError, match="wait must be"):
            await shop.app.stats.scale(wait=wrong)  # type: ignore[arg-type]
