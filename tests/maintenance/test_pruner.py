"""The pruner: what is past its retention goes, nothing else does."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from headrace.core.defaults import STATS_RETENTION, Retention
from headrace.core.job import Job
from headrace.core.lifecycle.actions import cancel
from headrace.core.lifecycle.departure import Departure
from headrace.core.lifecycle.retention import Kept
from headrace.core.stats.rollup import Rollup, Step, Totals, begin_of
from headrace.engine import Beat
from headrace.maintenance import Pruner
from tests.support.world import World, world

DAY = 86400.0


async def completed(w: World) -> Job:
    await w.submit()
    player = await w.worker()
    job = await player.run()
    await player.complete(job)
    return job


async def cancelled(w: World) -> Job:
    job = await w.submit(available_at=w.now + timedelta(days=999))
    return await w.writer.decide(job.id, lambda job, now: cancel(job, now, w.engine.rules))


async def test_each_status_has_its_own_retention() -> None:
    async with world() as w:
        pruner = Pruner(w.engine, w.writer, w.host, w.holder())
        done, ended = await completed(w), await cancelled(w)
        live = await w.submit(available_at=w.now + timedelta(days=99))
        w.clock.advance(7 * DAY - 1)
        assert await pruner.tick() == 0
        w.clock.advance(1)
        assert await pruner.tick() == 1
        assert await w.engine.jobs.get([done.id, ended.id]) == [None, ended]
        w.clock.advance(23 * DAY)
        assert await pruner.tick() == 1
        w.clock.advance(365 * DAY)
        assert await pruner.tick() == 0
        assert (await w.job(live)).id == live.id
        assert pruner.pruned == 2
        assert (await w.engine.records.ledger()).pruned == 2


async def test_it_prunes_in_batches_until_all_are_gone() -> None:
    async with world() as w:
        pruner = Pruner(w.engine, w.writer, w.host, w.holder(), Retention(cancelled=60.0), limit=4)
        for _ in range(18):
            await cancelled(w)
        w.clock.advance(61)
        assert await pruner.tick() == 18
        assert (await w.engine.records.ledger()).unaccounted == 0


async def test_the_records_of_gone_workers_go_with_the_failed_jobs_of_their_time() -> None:
    async with world() as w:
        pruner = Pruner(w.engine, w.writer, w.host, w.holder(), limit=2)
        workers = w.engine.workers
        for _ in range(5):
            await workers.retire((await w.worker()).id, departure=Departure(at=w.now))
        w.clock.advance(30 * DAY - 1)
        kept = await w.worker()
        await workers.retire(kept.id, departure=Departure(at=w.now))
        await pruner.tick()
        assert len((await workers.find_gone()).items) == 6
        w.clock.advance(3600)
        await pruner.tick()
        assert [one.row.info.id for one in (await workers.find_gone()).items] == [kept.id]


async def test_it_looks_about_once_a_minute() -> None:
    async with world() as w:
        pruner = Pruner(w.engine, w.writer, w.host, w.holder())
        assert all(40 < pruner.pause() <= 60 for _ in range(20))


async def test_minutes_become_hours_and_days_and_are_dropped() -> None:
    async with world() as w:
        pruner, player = Pruner(w.engine, w.writer, w.host, w.holder()), await w.worker()
        begun = w.now
        for number in (1, 2, 3):
            row = Rollup(Step.MINUTE, begin_of(begun, Step.MINUTE), "work", "default", Totals(completed=1))
            await w.engine.workers.beat(player.id, Beat(report=number, finished=(row,)), w.now)
        await pruner.tick()
        assert len(await w.engine.rollups.read(begun - timedelta(days=2), w.now + timedelta(days=1))) == 1
        for days, step in ((1, Step.HOUR), (9, Step.DAY)):
            w.clock.advance(days * 86400.0)
            await pruner.tick()
            [found] = await w.engine.rollups.read(begun - timedelta(days=2), w.now + timedelta(days=1))
            assert (found.step, found.totals.completed) == (step, 3)
        w.clock.advance(STATS_RETENTION.total_seconds())
        await pruner.tick()
        assert await w.engine.rollups.read(begun - timedelta(days=2), w.now + timedelta(days=1)) == []


async def test_it_goes_by_the_retention_of_a_job_first() -> None:
    async with world() as w:
        pruner = Pruner(w.engine, w.writer, w.host, w.holder())
        brief, long = await w.submit(retention=Kept(cancelled=60)), await w.submit(retention=Kept(cancelled=90 * DAY))
        for job in (brief, long):
            await w.writer.decide(job.id, lambda job, now: cancel(job, now, w.engine.rules))
        w.clock.advance(60)
        assert await pruner.tick() == 1
        w.clock.advance(89 * DAY)
        assert await pruner.tick() == 0
        w.clock.advance(DAY)
        assert await pruner.tick() == 1


async def test_it_does_not_look_again_at_what_it_left_until_that_costs_little() -> None:
    async with world() as w:
        pruner, asked, delete = Pruner(w.engine, w.writer, w.host, w.holder()), list[Any](), w.engine.jobs.delete

        async def slow(before: Any, limit: int, *, now: datetime, since: Any) -> int:
            asked.append(since)
            if since is None:
                w.clock.advance(2)  # there is much that is old and stays
            return await delete(before, limit, now=now, since=since)

        vars(w.engine.jobs).update(delete=slow)
        first = pruner.retention.cutoffs(w.now)
        await pruner.tick()
        assert asked == [None]
        w.clock.advance(300)
        await pruner.tick()
        assert asked == [None, first], "what became old since"
        second = pruner.retention.cutoffs(w.now)
        w.clock.advance(200)
        await pruner.tick()
        assert asked == [None, first, second]
        w.clock.advance(200)
        await pruner.tick()
        assert asked == [None, first, second, None], "after three hundred times as long as that took"
