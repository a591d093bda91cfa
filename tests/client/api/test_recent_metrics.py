"""Metrics are what they would be if everything were read anew, and read little."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from headrace import App
from headrace.client.api.recent_metrics import RecentMetrics
from headrace.core.stats.rollup import Rollup, Step, Totals, begin_of
from headrace.engine import Beat, WorkerInfo
from headrace.testing.clock import FakeClock
from tests.support.apps import url_of

MINUTE = timedelta(minutes=1)


@pytest.mark.every_engine
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
async def test_they_are_the_same_as_read_anew_and_read_only_the_last_minutes(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, app = FakeClock(datetime(2026, 5, 4, 13, 37, 42, tzinfo=UTC)), App(url_of(kind, tmp_path))
    with app.override(clock=clock):
        async with app:
            engine = app.session.engine
            worker = WorkerInfo(
                id=app.host.dice.new_id(clock.now()), host="here", pid=1, started_at=clock.now(), concurrency=1
            )
            await engine.workers.register(worker, clock.now())
            number = 0

            async def finish(*minutes: float) -> None:
                nonlocal number
                number += 1
                at = [begin_of(clock.now() - n * MINUTE, Step.MINUTE) for n in minutes]
                rows = tuple(Rollup(Step.MINUTE, one, f"t{n}", "q", Totals(completed=1)) for n, one in enumerate(at))
                await engine.workers.beat(worker.id, Beat(report=number, finished=rows), clock.now())
                while await engine.rollups.roll(clock.now()):
                    pass

            async def jobs() -> list[int]:
                found = (await app.stats.metrics()).windows
                assert found == await RecentMetrics(app.session).windows()
                return [one.jobs for one in found.values()]

            await finish(0, 4, 10, 50, 70, 5 * 60, 6.5 * 60, 12 * 60, 23 * 60, 26 * 60)
            assert await jobs() == [2, 4, 9]
            read: list[timedelta] = []

            async def counted(since: datetime, until: datetime, *args: Any) -> list[Rollup]:
                read.append(clock.now() - since)
                return await reads(since, until, *args)

            reads = engine.rollups.read
            monkeypatch.setattr(engine.rollups, "read", counted)
            await app.stats.metrics()
            assert read
            assert max(read) <= timedelta(minutes=6)
            for _ in range(4):
                clock.advance(100)
                await finish(0)
                await jobs()
            assert await jobs() == [4, 8, 13]
            clock.advance(3600)
            assert await jobs() == [0, 1, 13]
            await finish(20)  # its worker could not reach the store for a while
            clock.advance(601)
            assert await jobs() == [0, 1, 14]
            clock.step(-7200)  # a clock that is set back is no reason to count anything twice
            await jobs()
            clock.advance(30 * 3600)
            assert await jobs() == [0, 0, 0]
