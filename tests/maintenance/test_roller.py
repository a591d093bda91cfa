"""The roller: what workers hand in becomes minutes, hours and days."""

from __future__ import annotations

from datetime import timedelta

from headrace.core.rollup import KEPT, Rollup, Step, Totals, begin_of
from headrace.engine import Beat
from headrace.maintenance import Roller
from tests.support.world import world


async def test_minutes_become_hours_and_days_and_are_dropped() -> None:
    async with world() as w:
        roller, player = Roller(w.engine, w.lanes, w.host, w.holder()), await w.worker()
        begun = w.now
        for number in (1, 2, 3):
            row = Rollup(Step.MINUTE, begin_of(begun, Step.MINUTE), "work", "default", Totals(completed=1))
            await w.engine.workers.beat(player.id, Beat(report=number, finished=(row,)), w.now)
        assert await roller.tick() == 3
        assert await roller.tick() == 0
        for days, step in ((1, Step.HOUR), (9, Step.DAY)):
            w.clock.advance(days * 86400.0)
            assert await roller.tick() == 1
            [found] = await w.engine.rollups.read(begun - timedelta(days=2), w.now)
            assert (found.step, found.totals.completed) == (step, 3)
        w.clock.advance(KEPT.total_seconds())
        assert await roller.tick() == 1
        assert await w.engine.rollups.read(begun - timedelta(days=2), w.now) == []
        assert 0 < roller.pause() <= 60
