"""Charts: what workers finished, as an App tells of it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from headrace.core.stats.rollup import Rollup, Step, Totals, begin_of
from headrace.engine import Beat, WorkerInfo
from headrace.errors import ConfigError
from tests.support.apps import ENGINES, Sums, url_of


@pytest.fixture(params=ENGINES)
async def sums(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Sums]:
    made = Sums(url_of(request.param, tmp_path))
    async with made.app:
        yield made


async def test_what_was_finished_is_in_the_charts_when_its_worker_has_stopped(sums: Sums) -> None:
    assert (await sums.app.stats.charts()).series == ()
    jobs = [*await sums.add.map([(n,) for n in range(20)]), await sums.multiply.submit(2, 3)]
    async with sums.app.worker():
        for job in jobs:
            await job.result(timeout=60)
    charts = await sums.app.stats.charts()
    assert {(one.task, one.queue): one.total.completed for one in charts.series} == {
        ("add", "default"): 20,
        ("multiply", "slow"): 1,
    }
    assert charts.step is Step.MINUTE
    for one in charts.series:
        assert sum(point.completed for point in one.points) == one.total.completed
        assert one.total.waiting is not None
        assert one.total.running is not None
        assert one.total.running.count == one.total.completed
        assert 0 <= one.total.running.p50 <= one.total.running.p95 <= one.total.running.p99
    assert [one.task for one in (await sums.app.stats.charts(queue="slow")).series] == ["multiply"]
    assert (await sums.app.stats.charts(task="add", queue="slow")).series == ()
    assert (await sums.app.stats.charts(until=timedelta(hours=2), since=timedelta(days=3))).series == ()
    by_day = await sums.app.stats.charts(task="add", since=timedelta(days=30))
    assert (by_day.step, [point.completed for point in by_day.series[0].points]) == (Step.DAY, [20])
    assert charts.to_dict()["series"][0]["total"]["completed"] == 20
    assert 0 <= (await sums.app.stats.duration("add") or 0.0) < 60
    assert await sums.app.stats.duration("nothing") is None


async def test_what_cannot_be_asked_for_is_named(sums: Sums) -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"step": "week"}, "step must be minute, hour or day"),
        ({"since": datetime(2026, 1, 1)}, "since must have a time zone"),  # noqa: DTZ001
        ({"until": "yesterday"}, "until must be a datetime, or how long ago it was"),
        ({"since": True}, "since must be a datetime"),
        ({"since": 60, "until": 3600}, "since must be before until"),
        ({"since": 1e300}, "since must be a moment from 1900 to 9000, not 1e"),
        ({"since": 10**400}, "since must be a moment from 1900 to 9000, not a number of 1329 bits"),
        ({"since": float("nan")}, "since must be a moment"),
        ({"since": float("inf")}, "since must be a moment"),
        ({"until": -1e12}, "until must be a moment"),
        ({"since": timedelta.max}, "since must be a moment"),
        ({"since": datetime.min.replace(tzinfo=UTC)}, "since must be a moment"),
    ]
    for wish, what in cases:
        with pytest.raises(ConfigError, match=what):
            await sums.app.stats.charts(**wish)
    for seconds in (10**400, 1e300, float("nan")):
        with pytest.raises(ConfigError, match="since must be a moment"):
            await sums.app.stats.rollups(seconds)
    for share in (0, 1.5, "half", True):
        with pytest.raises(ConfigError, match="quantile"):
            await sums.app.stats.duration("add", quantile=share)  # type: ignore[arg-type]


async def test_how_long_things_take_is_estimated_by_what_was_measured(sums: Sums) -> None:
    """None of its queue was done of late: then it goes by how long runs take, and how many may run at once."""
    app, now = sums.app, sums.app.host.clock.now()
    id = app.host.dice.new_id(now)
    info = WorkerInfo(id=id, host="far", pid=1, started_at=now, concurrency=2, tasks=("add",))
    await app.session.engine.workers.register(info, now)
    jobs = await sums.add.map([(n,) for n in range(10)])
    facts = {fact.code: fact.data for fact in (await jobs[9].explain()).facts}
    assert "no_estimate" in facts
    totals = Totals(completed=3)
    for seconds in (8.0, 10.0, 12.0):
        totals.ran.add(seconds)
    row = Rollup(Step.MINUTE, begin_of(now - timedelta(hours=2), Step.MINUTE), "add", "default", totals)
    await app.session.engine.workers.beat(id, Beat(busy=2, report=1, finished=(row,)), now)
    facts = {fact.code: fact.data for fact in (await jobs[9].explain()).facts}
    assert (facts["estimate"]["jobs_per_second"], facts["estimate"]["seconds"]) == (0.2, 50.0)
    assert await app.stats.duration("add") == pytest.approx(10, rel=0.34)
    assert await app.stats.duration("add", quantile=0.99) == pytest.approx(12, rel=0.34)
