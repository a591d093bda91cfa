"""How a store stands, on every engine."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from headrace import Cron, Every, Status
from headrace.testing import FakeClock
from tests.support.apps import ENGINES, Sums, busy_worker, url_of


@pytest.fixture(params=ENGINES)
async def sums(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Sums]:
    made = Sums(url_of(request.param, tmp_path))
    async with made.app:
        yield made


async def test_it_has_what_is_live_or_failed_and_who_is_there(sums: Sums) -> None:
    jobs = await sums.add.map([(1,), (2,), (3,)])
    await jobs[0].cancel()
    await sums.multiply.options(delay=3600).submit(1, 2)
    await sums.app.queues.set("mail", priority=3)
    await sums.app.queues.pause("slow")
    await busy_worker(sums.app.session.engine, "add")
    found = await sums.app.stats.snapshot()
    assert {(one.queue, one.status): one.jobs for one in found.counts} == {
        ("default", Status.QUEUED): 2,
        ("slow", Status.SCHEDULED): 1,
    }
    assert found.queued_since() == {"default": min([(await job.refresh()).arrived_at for job in jobs[1:]])}
    assert found.paused == {"slow"}
    assert found.named == {"mail", "slow"}
    assert (found.alive, found.silent) == (1, 0)


async def test_a_schedule_is_late_when_its_fire_has_made_no_job() -> None:
    clock, sums = FakeClock(datetime(2026, 1, 1, tzinfo=UTC)), Sums()
    with sums.app.override(url="memory://", clock=clock):
        async with sums.app as app:
            await app.schedules.set("often", Every(minutes=1), sums.add.draft(1))
            await app.schedules.set("nightly", Cron("0 2 * * *"), sums.add.draft(1))
            await app.schedules.set("resting", Every(seconds=1), sums.add.draft(1))
            await app.schedules.pause("resting")
            assert (await app.stats.snapshot()).late(clock.now()) == timedelta(0)
            clock.advance(90)
            assert (await app.stats.snapshot()).late(clock.now()) == timedelta(seconds=30)
