"""A machine that slept measures the store's time again before it judges anything."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Any

from headrace.core.job import Spec
from headrace.core.query import Filter
from headrace.core.schedule.rules import Every
from headrace.core.schedule.schedule import new_schedule
from headrace.core.status import Reason, Status
from headrace.maintenance import Planner, Sweeper
from headrace.maintenance.duty import Elector
from headrace.maintenance.schedules import create_schedule
from headrace.runtime.store_clock import StoreClock
from tests.support.world import World, world

SLEPT = 600.0


@asynccontextmanager
async def asleep() -> AsyncIterator[World]:
    """A store with a clock, and a machine without one that shows that it slept but the one on its wall."""
    async with world() as w:

        async def time() -> datetime | None:
            return w.clock.now()

        w.engine.time = time  # type: ignore[method-assign]
        w.host.clock = StoreClock(w.clock)  # type: ignore[assignment]
        await w.host.measure(w.engine)
        yield w


def sleep(w: World) -> None:
    w.clock.step(SLEPT)
    assert w.host.clock.now() == w.clock.now() - timedelta(seconds=SLEPT)


async def test_whoever_wants_a_duty() -> None:
    async with asleep() as w:
        asked = list[datetime]()
        lease = w.engine.documents.lease

        async def recording(
            name: str, holder: Any, seconds: float, now: datetime, longest: float | None = None
        ) -> int | None:
            asked.append(now)
            return await lease(name, holder, seconds, now, longest)

        w.engine.documents.lease = recording  # type: ignore[method-assign]
        sleep(w)
        assert await Elector(w.engine, w.host, w.holder(), "duty:x", 30.0).leads()
        assert asked == [w.now]


async def test_the_planner() -> None:
    async with asleep() as w:
        spec = Spec(task="work", created_at=w.now)
        await create_schedule(w.engine, new_schedule("often", Every(minutes=1), spec, "{}", w.now))
        sleep(w)
        assert await Planner(w.engine, w.writer, w.host, w.holder()).tick() > 0
        page = await w.engine.records.find(Filter(schedule="often"), w.now)
        assert max(job.fire_at for job in page.items if job.fire_at is not None) == w.now


async def test_the_sweeper() -> None:
    async with asleep() as w:
        job = await w.submit(not_after=w.now + timedelta(seconds=60))
        sleep(w)
        await Sweeper(w.engine, w.writer, w.host, w.holder()).sweep()
        found = await w.job(job)
        assert (found.status, found.reason, found.finished_at) == (Status.CANCELLED, Reason.EXPIRED, w.now)
