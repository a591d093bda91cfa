"""Rollups: each is counted once, and sums stay the same however rows are merged."""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from headrace.conformance.jobs.contents import STRANGE
from headrace.conformance.lab import BEGIN, Lab, Part
from headrace.core.defaults import MAX_STATS_SERIES, STATS_RETENTION
from headrace.core.stats.errors import MAX_ERRORS, ErrorSum
from headrace.core.stats.rollup import OTHER, STEP_RETENTION, Rollup, Step, Totals, begin_of, merged
from headrace.engine import Alive, Beat, Dead

__all__ = ["Rolling"]

LONG_AGO = timedelta(days=400)


def row(at: datetime, task: str = "work", queue: str = "default", **counts: Any) -> Rollup:
    """Return a minute, as a worker sums it; it ran for as many seconds as it has completed."""
    totals = Totals(**counts)
    for _ in range(totals.completed):
        totals.waited.add(0.02)
        totals.ran.add(totals.completed)
    return Rollup(Step.MINUTE, begin_of(at, Step.MINUTE), task, queue, totals)


async def everything(lab: Lab, **of: str) -> list[Rollup]:
    """Return all stored rows, as they are read."""
    return merged(await lab.engine.rollups.read(BEGIN - LONG_AGO, lab.now + LONG_AGO, **of))


class Rolling(Part):
    """What ``rollups`` promises, and what heartbeats deliver."""

    async def test_nothing_is_kept_of_nothing(self, lab: Lab) -> None:
        assert await everything(lab) == []
        assert await lab.engine.rollups.roll(lab.now) == 0

    async def test_what_is_handed_in_is_read_whole(self, lab: Lab, worker: UUID) -> None:
        first = row(lab.now, completed=2, failed=1, timed_out=3, lost=4, snoozed=5, released=6, cancelled=7, retried=8)
        rows = (first, row(lab.now, STRANGE, STRANGE, completed=1), row(lab.at(-60), completed=3))
        assert isinstance(await lab.engine.workers.beat(worker, Beat(report=1, finished=rows), lab.now), Alive)
        for _ in range(2):
            assert await everything(lab) == merged(rows)
            await lab.engine.rollups.roll(lab.now)
        [known] = await lab.engine.workers.list()
        assert known.beat.finished == ()

    async def test_errors_of_a_minute_are_added_up_and_the_commonest_kept(self, lab: Lab, one: UUID, two: UUID) -> None:
        job = lab.new_id()
        for number, worker in enumerate((one, two), 1):
            errors = {f"{number}-{n:02}": ErrorSum(n, job, STRANGE, STRANGE) for n in range(1, MAX_ERRORS + 1)}
            errors["both"] = ErrorSum(50, job, "ValueError", None)
            rows = (row(lab.now, failed=9, errors=errors), row(lab.now, "b", failed=1))
            await lab.engine.workers.beat(worker, Beat(report=1, finished=rows), lab.now)
        for _ in range(2):
            other, found = await everything(lab)
            assert (len(found.totals.errors), other.totals.errors) == (MAX_ERRORS, {})
            assert found.totals.errors["both"] == ErrorSum(100, job, "ValueError", None)
            assert found.totals.errors["1-20"] == ErrorSum(20, job, STRANGE, STRANGE)
            assert "1-01" not in found.totals.errors
            await lab.engine.rollups.roll(lab.now)

    async def test_a_beat_that_is_repeated_counts_once(self, lab: Lab, one: UUID, two: UUID) -> None:
        rows = (row(lab.now, completed=2),)
        for beat in (Beat(report=1, finished=rows), Beat(report=1, finished=rows), Beat(), Beat(report=1)):
            await lab.engine.workers.beat(one, beat, lab.now)
            await lab.engine.rollups.roll(lab.now)
        await lab.engine.workers.beat(one, Beat(report=3, finished=rows), lab.now)
        await lab.engine.workers.beat(one, Beat(report=2, finished=rows), lab.now)
        again = {one: Beat(report=3, finished=rows), two: Beat(report=1, finished=rows)}
        await lab.engine.workers.beat_many(again, lab.now)
        await lab.engine.workers.beat_many(again, lab.now)
        assert [found.totals.completed for found in await everything(lab)] == [6]

    async def test_the_dead_hand_in_nothing(self, lab: Lab) -> None:
        worker, beat = await lab.worker(), Beat(report=1, finished=(row(lab.now, completed=2),))
        await lab.engine.workers.bury(worker, 0)
        assert await lab.engine.workers.beat_many({worker: beat, lab.new_id(): beat}, lab.now) != {}
        assert await lab.engine.workers.beat(worker, beat, lab.now) == Dead()
        assert await everything(lab) == []

    async def test_what_was_handed_in_stays_when_its_worker_is_gone(self, lab: Lab, worker: UUID) -> None:
        await lab.engine.workers.beat(worker, Beat(report=1, finished=(row(lab.now, completed=2),)), lab.now)
        await lab.engine.workers.retire(worker)
        assert await lab.engine.workers.list() == []
        assert [found.totals.completed for found in await everything(lab)] == [2]

    async def test_one_task_or_queue_is_read_alone(self, lab: Lab, worker: UUID) -> None:
        rows = [row(lab.now, task, queue, completed=1) for task in ("a", "b") for queue in ("p", "q")]
        rows.append(row(lab.at(-300), "a", "p", completed=5))
        await lab.engine.workers.beat(worker, Beat(report=1, finished=tuple(rows)), lab.now)
        read = lab.engine.rollups.read
        for _ in range(2):
            assert {one.queue for one in await everything(lab, task="a")} == {"p", "q"}
            assert {one.task for one in await everything(lab, queue="q")} == {"a", "b"}
            assert [one.totals.completed for one in await everything(lab, task="a", queue="p")] == [5, 1]
            assert await everything(lab, task="\ud800") == await everything(lab, queue="x\0") == []
            since = begin_of(lab.now, Step.MINUTE)
            assert len(await read(since, lab.at(60))) == 4
            assert len(await read(lab.at(-600), since)) == 1
            assert await read(lab.at(-6000), lab.at(-600)) == []
            await lab.engine.rollups.roll(lab.now)

    async def test_minutes_become_hours_and_hours_days_and_days_are_dropped(self, lab: Lab) -> None:
        worker, hour = await lab.worker(), begin_of(lab.now, Step.HOUR)
        for number, minute in enumerate(range(0, 180, 7), 1):
            at = hour + timedelta(minutes=minute)
            rows = (row(at, completed=1), row(at, "b", failed=1))
            await lab.engine.workers.beat(worker, Beat(report=number, finished=rows), lab.now)
            if minute % 2:
                await lab.engine.rollups.roll(hour + timedelta(minutes=minute))
        for later, step, count in (
            (timedelta(0), Step.MINUTE, 26),
            (STEP_RETENTION[Step.MINUTE], Step.MINUTE, 26),
            (STEP_RETENTION[Step.MINUTE] + timedelta(hours=3), Step.HOUR, 3),
            (STEP_RETENTION[Step.HOUR] + timedelta(days=1), Step.DAY, 1),
            (STATS_RETENTION - timedelta(days=1), Step.DAY, 1),
        ):
            while await lab.engine.rollups.roll(hour + later):
                pass
            found = await everything(lab)
            assert {one.step for one in found} == {step}, later
            assert len(found) == 2 * count, later
            assert sum(one.totals.completed for one in found) == sum(one.totals.failed for one in found) == 26
            assert sum(one.totals.ran.count for one in found) == 26
        await lab.engine.rollups.roll(hour + STATS_RETENTION + timedelta(days=2))
        assert await everything(lab) == []

    async def test_what_comes_late_is_added_to_its_day(self, lab: Lab) -> None:
        worker, later = await lab.worker(), lab.now + STEP_RETENTION[Step.HOUR] + timedelta(days=2)
        for number in (1, 2):
            rows = (row(lab.now, completed=1),)
            await lab.engine.workers.beat(worker, Beat(report=number, finished=rows), lab.now)
            await lab.engine.rollups.roll(later)
        [found] = await lab.engine.rollups.read(BEGIN - LONG_AGO, BEGIN + LONG_AGO)
        assert (found.step, found.at, found.totals.completed) == (Step.DAY, begin_of(lab.now, Step.DAY), 2)

    async def test_two_who_regroup_at_once_lose_nothing(self, lab: Lab) -> None:
        workers = [await lab.worker() for _ in range(4)]
        async with lab.sessions() as [other]:
            for number in range(1, 6):
                beats = {one: Beat(report=number, finished=(row(lab.now, completed=1),)) for one in workers}
                await asyncio.gather(
                    lab.engine.workers.beat_many(beats, lab.now),
                    lab.engine.rollups.roll(lab.now),
                    other.rollups.roll(lab.now),
                )
        assert [found.totals.completed for found in await everything(lab)] == [20]

    async def test_a_moment_has_no_more_than_so_many_series(self, lab: Lab, worker: UUID) -> None:
        for number in (1, 2):
            rows = tuple(row(lab.now, f"task {number} {n}", completed=1) for n in range(MAX_STATS_SERIES - 10))
            await lab.engine.workers.beat(worker, Beat(report=number, finished=rows), lab.now)
        await lab.engine.rollups.roll(lab.now)
        found = await lab.engine.rollups.read(BEGIN - LONG_AGO, BEGIN + LONG_AGO)
        assert len(found) == MAX_STATS_SERIES
        assert sum(one.totals.completed for one in found) == 2 * (MAX_STATS_SERIES - 10)
        [other] = [one for one in found if one.task == OTHER]
        assert (other.queue, other.totals.completed) == (OTHER, MAX_STATS_SERIES - 19)
