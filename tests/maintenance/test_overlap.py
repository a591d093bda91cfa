"""Fires that come while a job of an earlier one is live; jitter; schedules whose code is gone."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace

from headrace.core.job import Job, Spec
from headrace.core.query import Filter
from headrace.core.schedule.fires import fire_id, jittered
from headrace.core.schedule.rules import Cron, Every, Overlap, Rule
from headrace.core.schedule.schedule import ScheduleDoc, new_schedule
from headrace.core.status import Status
from headrace.engine import Setting
from headrace.maintenance import Planner
from headrace.maintenance.schedules import (
    create_schedule,
    find_schedule,
    pause_schedule,
    resume_schedule,
    sync_schedules,
)
from tests.support.world import Player, World, world

START = datetime(2026, 3, 1, tzinfo=UTC)


def planner(w: World) -> Planner:
    return Planner(w.engine, w.writer, w.host, w.holder())


async def scheduled(w: World, rule: Rule, source: str = "dynamic") -> ScheduleDoc:
    doc = new_schedule("tick", rule, Spec(task="work", created_at=w.now), "{}", w.now)
    if source == "dynamic":
        return await create_schedule(w.engine, doc)
    await sync_schedules(w.engine, [doc], w.now, tasks=["work"])
    return await find_schedule(w.engine, "tick")


async def jobs(w: World) -> list[Job]:
    page = await w.engine.records.find(Filter(schedule="tick"), w.now, limit=1000)
    return sorted(page.items, key=lambda job: job.spec.fire_at or START)


async def fires(w: World) -> list[float]:
    found = [job.spec.fire_at for job in await jobs(w)]
    return [(at - START).total_seconds() / 60 for at in found if at is not None]


async def later(w: World, p: Planner, minutes: float = 10) -> int:
    w.clock.advance(60 * minutes)
    return await p.tick()


async def stored(w: World) -> ScheduleDoc:
    return await find_schedule(w.engine, "tick")


def every(overlap: Overlap, **options: object) -> Every:
    return replace(Every(minutes=10, overlap=overlap), **options)


# Overlap


async def test_allow_submits_beside_a_live_job() -> None:
    async with world(now=START) as w:
        p = planner(w)
        await scheduled(w, every("allow"))
        assert [await later(w, p) for _ in range(3)] == [1, 1, 1]
        assert (await stored(w)).skipped == 0


async def test_skip_makes_no_job_beside_a_live_one_and_counts() -> None:
    async with world(now=START) as w:
        p, player = planner(w), await w.worker()
        await scheduled(w, every("skip"))
        await later(w, p)
        run = await player.run()
        assert [await later(w, p), await later(w, p)] == [0, 0]
        doc = await stored(w)
        assert (doc.skipped, doc.waiting, doc.cursor) == (2, None, START + timedelta(minutes=30))
        assert (doc.last_fire, doc.last_job) == (START + timedelta(minutes=10), run.id)
        await player.complete(run)
        assert await p.tick() == 0  # what was skipped is skipped for good
        assert await later(w, p) == 1
        assert await fires(w) == [10, 40]
        assert (await stored(w)).skipped == 2


async def test_a_job_that_has_not_begun_is_live() -> None:
    async with world(now=START) as w:
        p = planner(w)
        await scheduled(w, every("skip", jitter=600))
        await later(w, p)
        (job,) = await jobs(w)
        assert job.status is Status.SCHEDULED
        w.clock.advance(599)
        assert await p.tick() == 0
        assert await later(w, p, 0.1) == 0
        assert (await stored(w)).skipped == 1


async def test_wait_submits_when_the_live_one_has_ended_and_at_most_one_waits() -> None:
    async with world(now=START) as w:
        p, player = planner(w), await w.worker()
        await scheduled(w, every("wait"))
        await later(w, p)
        run = await player.run()
        assert await later(w, p) == 0
        assert ((await stored(w)).waiting, (await stored(w)).skipped) == (START + timedelta(minutes=20), 0)
        assert await later(w, p) == 0
        # The newest waits; the one it takes the place of is skipped.
        assert ((await stored(w)).waiting, (await stored(w)).skipped) == (START + timedelta(minutes=30), 1)
        assert await p.tick() == 0
        await player.complete(run)
        assert await p.tick() == 1
        doc = await stored(w)
        assert (doc.waiting, doc.skipped, doc.last_fire) == (None, 1, START + timedelta(minutes=30))
        assert await fires(w) == [10, 30]
        assert await p.tick() == 0
        assert await later(w, p) == 0  # now that one is live
        assert (await stored(w)).waiting == START + timedelta(minutes=40)


async def test_waiting_fires_and_new_ones_keep_their_order() -> None:
    async with world(now=START) as w:
        p, player = planner(w), await w.worker()
        await scheduled(w, every("wait"))
        await later(w, p)
        run = await player.run()
        await later(w, p)
        await player.complete(run)
        assert await later(w, p) == 1  # the one that waited goes first, and the fire of this moment waits for it
        assert await fires(w) == [10, 20]
        assert (await stored(w)).waiting == START + timedelta(minutes=30)


async def test_catching_up_with_wait_runs_the_first_and_keeps_the_last() -> None:
    async with world(now=START) as w:
        p = planner(w)
        await scheduled(w, every("wait", catch_up="all"))
        assert await later(w, p, 50) == 1
        doc = await stored(w)
        assert await fires(w) == [10]
        assert (doc.waiting, doc.skipped, doc.last_fire) == (
            START + timedelta(minutes=50),
            3,
            START + timedelta(minutes=10),
        )


async def test_a_planner_that_dies_on_a_fire_does_not_let_two_run_at_once() -> None:
    async with world(now=START) as w:
        p = planner(w)
        doc = await scheduled(w, every("skip"))
        await later(w, p)
        (setting,) = await w.engine.documents.settings("schedule:")
        await w.engine.documents.put_setting(
            setting.key, doc.to_text(), setting.rev
        )  # as if the cursor had never moved
        # Its job is live and the schedule knows nothing of it: the next fire must not run beside it.
        assert await later(w, planner(w)) == 0
        assert await fires(w) == [10]
        assert (await stored(w)).skipped == 1


async def test_planners_that_race_never_have_two_live_jobs() -> None:
    async with world(now=START) as w:
        one, other, player = planner(w), planner(w), await w.worker()
        await scheduled(w, every("wait"))
        for _ in range(20):
            w.clock.advance(60 * 7)
            await asyncio.gather(one.tick(), other.tick(), _run_one(player), one.tick(), other.tick())
            assert sum(not job.ended for job in await jobs(w)) <= 1
        found = await fires(w)
        assert len(found) == len(set(found)) >= 7


async def _run_one(player: Player) -> None:
    for job in await player.claim():
        await player.complete(await player.start(job))


async def test_a_rest_forgoes_the_fire_that_waited() -> None:
    async with world(now=START) as w:
        p, player = planner(w), await w.worker()
        await scheduled(w, every("wait"))
        await later(w, p)
        run = await player.run()
        await later(w, p)
        await pause_schedule(w.engine, "tick")
        await player.complete(run)
        assert await p.tick() == 0
        await resume_schedule(w.engine, "tick", w.now)
        assert await p.tick() == 0
        assert ((await stored(w)).waiting, (await stored(w)).skipped) == (None, 1)


async def test_the_loop_looks_often_while_a_fire_waits() -> None:
    async with world(now=START) as w:
        p, player = planner(w), await w.worker()
        await scheduled(w, every("wait"))
        await later(w, p)
        run = await player.run()
        assert p.pause() > 5
        await later(w, p)
        assert p.pause() <= 1
        await player.complete(run)
        await p.tick()
        assert p.pause() > 5


# Jitter


async def test_jitter_delays_the_job_and_changes_nothing_else() -> None:
    async with world(now=START) as w:
        one, other = planner(w), planner(w)
        await scheduled(w, every("allow", jitter=300))
        for _ in range(12):
            w.clock.advance(300)
            await asyncio.gather(one.tick(), other.tick())
        found = await jobs(w)
        assert await fires(w) == [10, 20, 30, 40, 50, 60]
        for job in found:
            assert job.spec.fire_at is not None
            assert job.id == fire_id("tick", 1, job.spec.fire_at)
            assert job.available_at == jittered("tick", 1, job.spec.fire_at, timedelta(seconds=300))
        assert len({job.available_at - (job.spec.fire_at or START) for job in found}) == 6


async def test_a_late_fire_is_not_delayed_further() -> None:
    async with world(now=START) as w:
        await scheduled(w, every("allow", jitter=300))
        await later(w, planner(w), 18)
        (job,) = await jobs(w)
        assert (job.status, job.available_at) == (Status.QUEUED, w.now)


# Start and end


async def test_a_schedule_fires_from_its_start_to_its_end() -> None:
    async with world(now=START) as w:
        p = planner(w)
        start, end = START + timedelta(minutes=25), START + timedelta(minutes=45)
        await scheduled(w, Every(minutes=10, start=start, end=end))
        for _ in range(60):
            await later(w, p, 1)
        assert await fires(w) == [25, 35, 45]
        assert p.next_due is None
        assert (await stored(w)).state() == "ended"


# Code that is gone


async def test_what_no_live_worker_has_code_for_does_not_fire() -> None:
    async with world(now=START) as w:
        p = planner(w)
        await scheduled(w, Cron("*/10 * * * *"), source="code")
        assert [await later(w, p) for _ in range(3)] == [0, 0, 0]
        assert p.next_due is None  # the loop does not turn in vain
        assert (await stored(w)).cursor == START
        await w.worker()
        assert await p.tick() == 1  # caught up as ever: the newest
        assert await fires(w) == [30]
        assert await later(w, p) == 1


async def test_what_was_made_by_hand_fires_without_a_worker() -> None:
    async with world(now=START) as w:
        await scheduled(w, Cron("*/10 * * * *"))
        assert await later(w, planner(w)) == 1


# Cost


async def test_a_schedule_that_is_not_due_is_not_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async with world(now=START) as w:
        p, reads = planner(w), list[str]()
        readable = p._readable

        def noted(setting: Setting) -> ScheduleDoc | None:
            reads.append(setting.key)
            return readable(setting)

        monkeypatch.setattr(p, "_readable", noted)
        await scheduled(w, every("allow"))
        for _ in range(50):
            await later(w, p, 0.1)
        assert reads == ["schedule:tick"]
        await later(w, p, 5)
        assert await fires(w) == [10]
        await pause_schedule(w.engine, "tick")
        for _ in range(50):
            await later(w, p, 1)
        assert len(reads) == 3  # before its fire, at its fire, and when it was changed
        await resume_schedule(w.engine, "tick", w.now)
        assert p.next_due is None
        await p.tick()
        assert p.next_due == START + timedelta(minutes=70)
