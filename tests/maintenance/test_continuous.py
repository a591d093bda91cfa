"""Continuous tasks: so many instances, never more, each followed by the next run; rested after failures."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace

from headrace.core.attempt import ErrorInfo, Failed
from headrace.core.job import Job, Spec
from headrace.core.lifecycle.execution import finish
from headrace.core.query import Filter
from headrace.core.schedule.continuous import Instance, instance_of
from headrace.core.schedule.rules import Continuous, Every
from headrace.core.schedule.schedule import ScheduleDoc, new_schedule
from headrace.core.status import LIVE, Reason, Status
from headrace.errors import ConfigError
from headrace.maintenance import Follower, Planner, Sweeper
from headrace.maintenance.schedules import (
    create_schedule,
    find_schedule,
    pause_schedule,
    resume_schedule,
    sync_schedules,
    trigger_schedule,
)
from tests.support.world import Player, World, world

START = datetime(2026, 3, 1, tzinfo=UTC)


def planner(w: World) -> Planner:
    return Planner(w.engine, w.writer, w.host, w.holder())


def doc(w: World, instances: int = 2, cool_down: float = 5.0) -> ScheduleDoc:
    rule = Continuous(instances=instances, cool_down=cool_down)
    return new_schedule("poll", rule, Spec(task="work", created_at=w.now), '{"a":1}', w.now)


async def live(w: World) -> dict[int, Job]:
    """The live job of each instance; each has at most one."""
    page = await w.engine.records.find(Filter(schedule="poll", status=LIVE), w.now, limit=1000)
    found = [(instance_of(job), job) for job in page.items]
    numbers = {instance.number: job for instance, job in found if instance is not None}
    assert len(numbers) == len(found)
    return numbers


async def fail(w: World, job: Job, *, finally_: bool = False) -> None:
    reason = Reason.NON_RETRYABLE if finally_ else None
    ending = Failed(error=ErrorInfo("ValueError", "no"), reason=reason)
    await w.writer.apply(finish(job, ending, w.now, 0.5, w.engine.rules))


async def running(player: Player, n: int) -> list[Job]:
    return [await player.start(job) for job in await player.claim(n)]


async def followed(w: World) -> None:
    """Let the follower do what it has to."""
    for _ in range(20):
        await asyncio.sleep(0)
    assert w.writer.followers


# Beginning


async def test_the_planner_begins_every_instance_once() -> None:
    async with world(now=START) as w:
        p = planner(w)
        await create_schedule(w.engine, doc(w, 3))
        await p.tick()
        found = await live(w)
        assert sorted(found) == [0, 1, 2]
        assert {job.status for job in found.values()} == {Status.QUEUED}
        assert (found[1].task, found[1].payload, found[1].spec.schedule) == ("work", {"a": 1}, "poll")
        for other in (p, planner(w)):
            await other.tick()
        assert (await w.engine.records.ledger()).accepted == 3


async def test_planners_and_followers_that_race_keep_to_the_number() -> None:
    async with world(now=START) as w:
        one, other, player = planner(w), planner(w), await w.worker()
        await create_schedule(w.engine, doc(w, 2))
        async with Follower(w.engine, w.writer, w.host), Follower(w.engine, w.writer, w.host):
            for round in range(30):
                await asyncio.gather(one.tick(), other.tick())
                for job in await running(player, 10):
                    await (player.complete(job) if round % 3 else fail(w, job, finally_=round % 2 == 0))
                await followed(w)
                assert len(await live(w)) <= 2
                w.clock.advance(5)
        assert (await w.engine.records.ledger()).ended >= 40


# The next run


async def test_a_run_is_followed_by_the_next_without_the_planner() -> None:
    async with world(now=START) as w:
        player = await w.worker()
        await create_schedule(w.engine, doc(w, 2))
        await planner(w).tick()
        async with Follower(w.engine, w.writer, w.host):
            for _ in range(3):
                before = await live(w)
                (job, *_) = await running(player, 1)
                await player.complete(job)
                await followed(w)
                after = await live(w)
                instance = instance_of(job)
                assert instance is not None
                assert instance.schedule == "poll"
                assert after[instance.number].id != job.id
                assert after[instance.number].status is Status.QUEUED
                assert {n: one.id for n, one in after.items() if n != instance.number} == {
                    n: one.id for n, one in before.items() if n != instance.number
                }
        assert not w.writer.followers


async def test_without_a_follower_the_planner_begins_the_next_run() -> None:
    async with world(now=START) as w:
        p, player = planner(w), await w.worker()
        await create_schedule(w.engine, doc(w, 1))
        await p.tick()
        (job,) = await running(player, 1)
        await player.complete(job)
        assert await live(w) == {}
        await p.tick()
        assert (await live(w))[0].status is Status.QUEUED
        assert p.pause() <= 1


async def test_a_failed_run_rests_before_the_next_attempt() -> None:
    async with world(now=START) as w:
        p, player = planner(w), await w.worker()
        await create_schedule(w.engine, doc(w, 1, cool_down=7))
        await p.tick()
        for _ in range(3):
            (job,) = await running(player, 1)
            await fail(w, job)
            await p.tick()
            (waiting,) = (await live(w)).values()
            assert (waiting.status, waiting.available_at) == (Status.RETRYING, w.now + timedelta(seconds=7))
            w.clock.advance(6.9)
            assert await player.claim() == []
            w.clock.advance(0.2)


@pytest.mark.parametrize("follows", [True, False], ids=["follower", "planner"])
async def test_the_run_after_one_that_failed_for_good_rests_too(follows: bool) -> None:
    async with world(now=START) as w:
        p, player = planner(w), await w.worker()
        await create_schedule(w.engine, doc(w, 1, cool_down=7))
        await p.tick()
        (job,) = await running(player, 1)
        if follows:
            async with Follower(w.engine, w.writer, w.host):
                await fail(w, job, finally_=True)
                await followed(w)
        else:
            await fail(w, job, finally_=True)
            w.clock.advance(3)
            await p.tick()
        (following,) = (await live(w)).values()
        assert following.id != job.id
        assert following.available_at == START + timedelta(seconds=7)


async def test_a_job_that_failed_a_hundred_times_gives_way_to_another() -> None:
    async with world(now=START) as w:
        p, player = planner(w), await w.worker()
        await create_schedule(w.engine, doc(w, 1, cool_down=1))
        await p.tick()
        for _ in range(100):
            (job,) = await running(player, 1)
            await fail(w, job)
            w.clock.advance(1)
        assert (await w.job(job)).reason is Reason.RETRIES_EXHAUSTED
        await p.tick()
        (following,) = (await live(w)).values()
        assert (following.id != job.id, following.attempt) == (True, 0)


async def test_the_run_of_a_dead_worker_is_begun_again() -> None:
    async with world(now=START) as w:
        p, player = planner(w), await w.worker()
        await create_schedule(w.engine, doc(w, 1, cool_down=5))
        await p.tick()
        (job,) = await running(player, 1)
        assert await w.engine.workers.bury(player.id, 0)
        await Sweeper(w.engine, w.writer, w.host, w.holder()).sweep()
        await p.tick()
        (lost,) = (await live(w)).values()
        assert (lost.id, lost.status) == (job.id, Status.RETRYING)
        w.clock.advance(5)
        (again,) = await running(await w.worker(), 1)
        assert (again.id, again.attempt) == (job.id, 2)


# Resting, retiring, shrinking


async def test_a_rest_ends_what_waits_and_lets_runs_end() -> None:
    async with world(now=START) as w:
        p, player = planner(w), await w.worker()
        await create_schedule(w.engine, doc(w, 3))
        await p.tick()
        one, other = await running(player, 2)
        async with Follower(w.engine, w.writer, w.host):
            await pause_schedule(w.engine, "poll")
            await p.tick()
            assert {job.id for job in (await live(w)).values()} == {one.id, other.id}
            await player.complete(one)
            await followed(w)
            assert {job.id for job in (await live(w)).values()} == {other.id}
            await p.tick()
            assert {job.id for job in (await live(w)).values()} == {other.id}
            await fail(w, other)  # it would be tried again after its rest
            await p.tick()
            assert await live(w) == {}
            assert (await w.job(other)).status is Status.CANCELLED
            await resume_schedule(w.engine, "poll", w.now)
            await p.tick()
            assert sorted(await live(w)) == [0, 1, 2]


async def test_what_the_code_has_no_more_is_not_begun_again() -> None:
    async with world(now=START) as w:
        p, player = planner(w), await w.worker()
        await sync_schedules(w.engine, [doc(w, 2)], w.now, tasks=["work"])
        await p.tick()
        (job,) = await running(player, 1)
        await sync_schedules(w.engine, [], w.now, tasks=["work"])
        async with Follower(w.engine, w.writer, w.host):
            await p.tick()
            await player.complete(job)
            await followed(w)
        await p.tick()
        assert await live(w) == {}
        assert (await find_schedule(w.engine, "poll")).state() == "retired"
        await sync_schedules(w.engine, [doc(w, 2)], w.now, tasks=["work"])
        await p.tick()
        assert sorted(await live(w)) == [0, 1]


async def test_what_no_live_worker_has_code_for_is_not_begun() -> None:
    async with world(now=START) as w:
        p = planner(w)
        await sync_schedules(w.engine, [doc(w, 2)], w.now, tasks=["work"])
        await p.tick()
        assert await live(w) == {}
        await w.worker()
        await p.tick()
        assert sorted(await live(w)) == [0, 1]


async def test_fewer_instances_end_the_surplus_and_more_are_begun() -> None:
    async with world(now=START) as w:
        p, player = planner(w), await w.worker()
        await create_schedule(w.engine, doc(w, 4))
        await p.tick()
        runs = {instance_of(job): job for job in await running(player, 3)}
        assert set(runs) == {Instance("poll", 0), Instance("poll", 1), Instance("poll", 2)}
        async with Follower(w.engine, w.writer, w.host):
            await create_schedule(w.engine, doc(w, 1))
            await p.tick()
            assert sorted(await live(w)) == [0, 1, 2]  # these run; the fourth had not begun
            await player.complete(runs[Instance("poll", 1)])
            await fail(w, runs[Instance("poll", 2)])
            await followed(w)
            await p.tick()
            assert sorted(await live(w)) == [0]
            await create_schedule(w.engine, doc(w, 2))
            await p.tick()
            assert sorted(await live(w)) == [0, 1]


async def test_what_is_given_fires_instead_is_continuous_no_more() -> None:
    async with world(now=START) as w:
        p, player = planner(w), await w.worker()
        await create_schedule(w.engine, doc(w, 2))
        await p.tick()
        (job,) = await running(player, 1)
        await create_schedule(w.engine, replace(doc(w), rule=Every(hours=1)))
        await p.tick()
        assert [one.id for one in (await live(w)).values()] == [job.id]
        await fail(w, job)
        await p.tick()
        assert await live(w) == {}


async def test_a_change_of_the_options_holds_from_the_next_run() -> None:
    async with world(now=START) as w:
        p, player = planner(w), await w.worker()
        await create_schedule(w.engine, doc(w, 1))
        await p.tick()
        (job,) = await running(player, 1)
        changed = doc(w, 1)
        await create_schedule(w.engine, replace(changed, spec=replace(changed.spec, priority=90)))
        async with Follower(w.engine, w.writer, w.host):
            await player.complete(job)
            await followed(w)
        assert (await live(w))[0].priority == 90


async def test_a_trigger_would_be_one_too_many() -> None:
    async with world(now=START) as w:
        await create_schedule(w.engine, doc(w, 1))
        with pytest.raises(ConfigError, match="runs by itself"):
            await trigger_schedule(w.engine, w.writer, w.host, "poll")


async def test_a_follower_outlives_an_outage() -> None:
    async with world(now=START) as w:
        p, player = planner(w), await w.worker()
        await create_schedule(w.engine, doc(w, 1))
        await p.tick()
        async with Follower(w.engine, w.writer, w.host) as follower:
            (job,) = await running(player, 1)
            await player.complete(job)
            w.engine.away = True
            await followed(w)
            w.engine.away = False
            assert follower._task is not None
            assert not follower._task.done()
            await p.tick()
            (job,) = await running(player, 1)
            await player.complete(job)
            await followed(w)
            assert sorted(await live(w)) == [0]
