"""The six metrics with known numbers, on every surface that a hub has."""

from __future__ import annotations

import io
from datetime import timedelta
from pathlib import Path

import pytest
from rich.console import Console

from headrace.cli.output.store import stats_view
from headrace.core.stats.rollup import SLOTS, Rollup, Step, Totals, begin_of
from headrace.engine import Beat, WorkerInfo
from tests.contrib.prometheus.pages import value
from tests.hub.api.test_stats_own_jobs import overview
from tests.hub.api.world import small_app, world
from tests.hub.live.listening import connected
from tests.hub.serving import Served, serving
from tests.support.apps import url_of

EMPTY = dict.fromkeys(
    ("average_queue_time", "average_processing_time", "success_rate", "retry_rate", "worker_utilisation")
)
FIVE = {
    "jobs": 10,
    "average_queue_time": 1.5,
    "average_processing_time": 2.0,
    "success_rate": 0.8,
    "retry_rate": 0.3,
    "worker_utilisation": 0.25,
}
DAY = FIVE | {"jobs": 30, "success_rate": 0.933333, "retry_rate": 0.1}


async def hand_in(hub: Served) -> None:
    """Hand in, as a worker does, what it finished a minute ago and seven hours ago."""
    app = hub.app
    engine, now = app.session.engine, app.host.clock.now()
    worker = WorkerInfo(id=app.host.dice.new_id(now), host="here", pid=1, started_at=now, concurrency=4)
    await engine.workers.register(worker, now)
    ago, long_ago = (begin_of(now - timedelta(minutes=n), Step.MINUTE) for n in (1, 420))
    new = Totals(completed=8, died=2, repeated=3, assigned=10, queued=15.0, processed=16.0, failed=5, retried=3)
    old = Totals(completed=20, assigned=20, queued=30.0, processed=40.0)
    rows = [(ago, "resize", "images", new), (long_ago, "resize", "images", old)]
    rows += [(ago, SLOTS, "", Totals(slots=80.0, busy=20.0))]
    rows += [(ago, "headrace.deliver", "images", Totals(failed=99, died=99, assigned=99, queued=9999.0))]
    finished = tuple(Rollup(Step.MINUTE, at, task, queue, totals) for at, task, queue, totals in rows)
    await engine.workers.beat(worker.id, Beat(report=1, finished=finished), now)
    while await engine.rollups.roll(now):  # what is old becomes hours
        pass


async def test_before_anything_was_finished_nothing_is_known(tmp_path: Path) -> None:
    async with world(tmp_path) as hub:
        found = (await hub.client.get("/api/stats")).json()["metrics"]
        assert found == {"queue_depth": 0, "windows": {name: {"jobs": 0, **EMPTY} for name in ("5m", "1h", "24h")}}
        assert value((await hub.client.get("/metrics")).text, "headrace_success_ratio", window="1h") is None
        assert "Success rate – – –" in await overview(hub)


@pytest.mark.every_engine
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
async def test_every_surface_shows_the_same(kind: str, tmp_path: Path) -> None:
    async with serving(small_app(url_of(kind, tmp_path))) as hub:
        for _ in range(3):
            await hub.app.submit("resize", {"image": "cat.png"})
        await hub.app.submit("resize", {"image": "cat.png"}, delay=60)
        await hand_in(hub)
        wanted = {"queue_depth": 3, "windows": {"5m": FIVE, "1h": FIVE, "24h": DAY}}
        assert (await hub.client.get("/api/stats")).json()["metrics"] == wanted
        async with connected(hub) as socket:
            assert (await socket.ask("subscribe_stats"))["metrics"] == wanted
        assert (await hub.app.stats.metrics()).to_dict() == wanted

        page = (await hub.client.get("/metrics")).text
        for window, numbers in (("5m", FIVE), ("1h", FIVE), ("24h", DAY)):
            for name, field in (
                ("headrace_average_queue_seconds", "average_queue_time"),
                ("headrace_average_processing_seconds", "average_processing_time"),
                ("headrace_success_ratio", "success_rate"),
                ("headrace_retry_ratio", "retry_rate"),
                ("headrace_utilisation_ratio", "worker_utilisation"),
            ):
                assert value(page, name, window=window) == numbers[field], name
        assert value(page, "headrace_queue_depth") == 3

        front = await overview(hub)
        for line in (
            "Average queue time 1.5 s 1.5 s 1.5 s",
            "Average processing time 2.0 s 2.0 s 2.0 s",
            "Success rate 80% 80% 93.3%",
            "Retry rate 30% 30% 10%",
            "Worker utilisation 25% 25% 25%",
            "Queue depth, now 3",
        ):
            assert line in front
        out = Console(file=io.StringIO(), width=120)
        out.print(stats_view(await hub.app.stats.counts(), hub.app.host.clock.now()))
        assert isinstance(out.file, io.StringIO)
        lines = [line.split() for line in out.file.getvalue().splitlines()]
        assert ["success", "rate", "80.0%", "80.0%", "93.3%"] in lines
        assert ["average", "queue", "time", "1.5", "s", "1.5", "s", "1.5", "s"] in lines
        assert ["queue", "depth,", "now", "3"] in lines
