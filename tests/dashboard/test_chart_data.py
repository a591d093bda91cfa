"""What charts are made of: kept for hours that are over, and the same as if everything were read anew."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from headrace import App
from headrace.core.stats.charts import By, Charts
from headrace.core.stats.histogram import Histogram
from headrace.core.stats.rollup import Rollup, Step, Totals, begin_of
from headrace.dashboard.chart_data import REFRESH_SECONDS, Past
from headrace.engine import Beat, WorkerInfo
from headrace.testing.clock import FakeClock
from tests.support.apps import url_of

pytestmark = pytest.mark.every_engine

MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
BYS: tuple[By, ...] = ("all", "task", "queue")
SPANS = ((86400.0, Step.HOUR), (7 * 86400.0, Step.HOUR), (30 * 86400.0, Step.DAY))


class Store:
    """An App whose workers have finished something."""

    def __init__(self, app: App, clock: FakeClock) -> None:
        self.app, self.clock, self.past = app, clock, Past(app)
        self._reports = 0
        self.worker = WorkerInfo(
            id=app.host.dice.new_id(clock.now()), host="here", pid=1, started_at=clock.now(), concurrency=1
        )

    async def finish(self, ago: timedelta, completed: int, task: str = "work", queue: str = "default") -> None:
        """Hand in what was finished so long ago, as a worker does, and have it regrouped."""
        engine, now = self.app.session.engine, self.clock.now()
        ran = Histogram()
        ran.add(float(completed))
        totals = Totals(completed=completed, failed=1, ran=ran)
        row = Rollup(Step.MINUTE, begin_of(now - ago, Step.MINUTE), task, queue, totals)
        self._reports += 1
        await engine.workers.beat(self.worker.id, Beat(report=self._reports, finished=(row,)), now)
        while await engine.rollups.roll(now):
            pass

    async def agrees(self) -> None:
        """Compare with charts of which everything is read anew."""
        for seconds, step in SPANS:
            span = await self.past.span(seconds, step)
            for by in BYS:
                wanted = await self.app.stats.charts(since=seconds, step=step, by=by)
                assert span.charts(by) == wanted
                assert _counts(span.charts(by, times=False)) == _counts(wanted)
            of = await self.app.stats.charts(since=seconds, step=step, by="all", task="work", queue="other")
            assert span.charts(task="work", queue="other") == of


def _counts(charts: Charts) -> list[tuple[str, str, datetime, int, int]]:
    return [
        (one.task, one.queue, point.at, point.completed, point.failed) for one in charts.series for point in one.points
    ]


@pytest.fixture(params=["memory", "sqlite", "postgres"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    app, clock = App(url_of(request.param, tmp_path)), FakeClock(datetime(2026, 3, 5, 12, 7, tzinfo=UTC))
    with app.override(clock=clock):
        async with app:
            made = Store(app, clock)
            await app.session.engine.workers.register(made.worker, clock.now())
            for ago in (MINUTE, 59 * MINUTE, 2 * HOUR, 5 * HOUR, 9 * HOUR, DAY, 6 * DAY, 20 * DAY):
                await made.finish(ago, 3)
                await made.finish(ago, 2, "other")
                await made.finish(ago, 1, "work", "other")
            yield made


async def test_charts_are_as_if_everything_were_read_anew(store: Store) -> None:
    await store.agrees()
    for minutes in (2, 5, 50, 61, 120, 24 * 60, 8 * 24 * 60):
        store.clock.advance(minutes=minutes)
        await store.finish(MINUTE, minutes)
        await store.agrees()


async def test_hours_that_are_over_are_read_once(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    read, reads = store.app.stats.rollups, list[datetime]()

    async def noted(since: datetime, until: datetime) -> list[Rollup]:
        reads.append(since)
        return await read(since, until)

    monkeypatch.setattr(store.app.stats, "rollups", noted)
    await store.past.span(7 * 86400.0, Step.HOUR)
    assert min(reads) <= store.clock.now() - 7 * DAY
    reads.clear()
    store.clock.advance(30)
    await store.past.span(86400.0, Step.HOUR)
    assert reads == [begin_of(store.clock.now() - 10 * MINUTE, Step.HOUR)]


async def test_what_is_told_too_late_is_seen_after_a_while(store: Store) -> None:
    await store.agrees()
    await store.finish(9 * HOUR, 5)
    store.clock.advance(REFRESH_SECONDS + 1)
    await store.agrees()
