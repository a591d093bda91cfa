"""What a scrape tells of the slots that queues have and need."""

from __future__ import annotations

import pytest

from headrace.contrib.prometheus import store
from headrace.core.stats.rollup import OTHER
from headrace.engine import WorkerInfo
from tests.contrib.prometheus.pages import samples, value
from tests.contrib.prometheus.test_store import Scraper


async def test_slots_that_are_there_and_needed() -> None:
    scraper = Scraper()
    with scraper.sums.app.override(clock=scraper.clock):
        async with scraper.sums.app as app:
            now = scraper.clock.now()
            info = WorkerInfo(
                id=app.host.dice.new_id(now), host="h", pid=1, started_at=now, concurrency=4, tasks=("add",)
            )
            await app.session.engine.workers.register(info, now)
            await scraper.sums.add.map([(n,) for n in range(40)])
            page = await scraper.page()
            assert value(page, "headrace_queue_slots", queue="default") == 4
            assert value(page, "headrace_queue_slots_needed", queue="default") == 20
            assert value(page, "headrace_queue_slots", queue="slow") == 4, "it names no queues, so it serves all"
            assert value(page, "headrace_queue_slots_needed", queue="slow") == 0


async def test_beyond_the_most_queues_all_are_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "MAX_QUEUES", 3)  # two are those of the tasks
    scraper = Scraper()
    with scraper.sums.app.override(clock=scraper.clock):
        async with scraper.sums.app:
            for n in range(5):
                await scraper.sums.add.options(queue=f"q{n}").submit(1)
            page = await scraper.page()
            queues = {dict(labels)["queue"] for labels in samples(page)["headrace_queue_slots_needed"]}
            assert queues == {"default", "slow", "q0", OTHER}
            assert value(page, "headrace_queue_slots_needed", queue=OTHER) == 4
