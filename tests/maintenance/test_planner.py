"""The planner: one job for each fire, whoever plans, whatever the clocks do."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace

from headrace.core.defaults import Retention
from headrace.core.job import Job, Spec
from headrace.core.query import Filter
from headrace.core.schedule.fires import fire_id
from headrace.core.schedule.rules import CatchUp, Cron, Every, Rule
from headrace.core.schedule.schedule import ScheduleDoc, new_schedule
from headrace.core.status import Status
from headrace.maintenance import Planner, Pruner
from headrace.maintenance.schedules import create_schedule, find_schedule, pause_schedule, resume_schedule
from headrace.runtime.host import Host
from tests.support.until import until
from tests.support.world import World, world

START = datetime(2026, 3, 1, tzinfo=UTC)


def planner(w: World, cap: int = 100) -> Planner:
    return Planner(w.engine, w.writer, w.host, w.holder(), cap=cap)


async def scheduled(w: World, rule: Rule, name: str = "tick", **options: object) -> ScheduleDoc:
    spec = replace(Spec(task="work", created_at=w.now), **options)
    return await create_schedule(w.engine, new_schedule(name, rule, spec, '{"a":1}', w.now))


async def jobs(w: World, name: str = "tick") -> list[Job]:
    page = await w.engine.records.find(Filter(schedule=name), w.now, limit=1000)
    return sorted(page.items, key=lambda job: job.spec.fire_at or START)


async def fires(w: World, name: str = "tick") -> list[float]:
    """The fire times of the schedule's jobs, in minutes from the start."""
    found = [job.spec.fire_at for job in await jobs(w, name)]
    return [(at - START).total_seconds() / 60 for at in found if at is not None]


async def test_each_fire_makes_one_job() -> None:
    async with world(now=START) as w:
        p = planner(w)
        await scheduled(w, Every(minutes=10), queue="slow", tags=("nightly",), metadata={"by": "me"})
        for _ in range(60):
            w.clock.advance(60)
            await p.tick()
        assert await fires(w) == [10, 20, 30, 40, 50, 60]
        job = (await jobs(w))[0]
        assert job.id == fire_id("tick", 1, START + timedelta(minutes=10))
        assert (job.queue, job.tags, job.metadata, job.payload) == ("slow", ("nightly",), {"by": "me"}, {"a": 1})
        assert (job.status, job.created_at) == (Status.QUEUED, START + timedelta(minutes=10))
        stored = await find_schedule(w.engine, "tick")
        assert stored.cursor == stored.last_fire == START + timedelta(minutes=60)


async def test_the_first_fire_comes_after_the_creation() -> None:
    async with world(now=START) as w:
        await scheduled(w, Cron("0 0 * * *"))
        assert await planner(w).tick() == 0


async def test_two_planners_racing_make_each_fire_once() -> None:
    async with world(now=START) as w:
        one, other = planner(w), planner(w)
        await scheduled(w, Every(minutes=1, catch_up="all"))
        for minutes in (1, 1, 3, 7):
            w.clock.advance(60 * minutes)
            await asyncio.gather(one.tick(), other.tick(), one.tick())
        assert await fires(w) == list(range(1, 13))
        assert (await w.engine.records.ledger()).accepted == 12


async def test_a_planner_that_dies_before_moving_the_cursor_repeats_itself_harmlessly() -> None:
    async with world(now=START) as w:
        p = planner(w)
        doc = await scheduled(w, Every(minutes=1))
        w.clock.advance(60)
        await p.tick()
        (setting,) = await w.engine.documents.settings("schedule:")
        await w.engine.documents.put_setting(
            setting.key, doc.to_text(), setting.rev
        )  # as if the cursor had never moved
        await planner(w).tick()
        assert await fires(w) == [1]


async def test_a_clock_that_steps_back_fires_nothing_again() -> None:
    async with world(now=START) as w:
        p = planner(w)
        await scheduled(w, Every(minutes=1))
        for _ in range(5):
            w.clock.advance(60)
            await p.tick()
        w.clock.step(-240)
        for _ in range(4):
            await p.tick()
            assert (await find_schedule(w.engine, "tick")).cursor == START + timedelta(minutes=5)
            w.clock.advance(60)
        assert await fires(w) == [1, 2, 3, 4, 5]
        w.clock.advance(60)
        await p.tick()
        assert await fires(w) == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize(("catch_up", "made"), [("once", [60]), ("skip", []), ("all", [20, 30, 40, 50, 60])])
async def test_an_outage_is_caught_up_as_asked(catch_up: CatchUp, made: list[int]) -> None:
    async with world(now=START) as w:
        p = planner(w)
        await scheduled(w, Every(minutes=10, catch_up=catch_up))
        w.clock.advance(minutes=10)
        await p.tick()
        w.clock.advance(minutes=55)
        assert await p.tick() == len(made)
        assert await fires(w) == [10, *made]
        assert (await find_schedule(w.engine, "tick")).cursor == START + timedelta(minutes=60)
        w.clock.advance(minutes=5)
        await p.tick()
        assert await fires(w) == [10, *made, 70]


async def test_all_keeps_the_newest_up_to_the_cap() -> None:
    async with world(now=START) as w:
        p = planner(w, cap=2)
        await scheduled(w, Every(minutes=10, catch_up="all"))
        w.clock.advance(minutes=60)
        await p.tick()
        assert await fires(w) == [50, 60]


async def test_nothing_is_made_good_that_may_have_been_made_and_pruned() -> None:
    async with world(now=START) as w:
        retention = Retention(completed=86400.0)
        p = Planner(w.engine, w.writer, w.host, w.holder(), retention, cap=1000)
        await scheduled(w, Every(hours=1, catch_up="all"))
        w.clock.advance(days=10)
        assert await p.tick() == 25  # a day's fires, both ends counted
        await Pruner(w.engine, w.writer, w.host, w.holder(), retention).tick()
        assert await p.tick() == 0


async def test_a_resting_schedule_fires_nothing_and_makes_nothing_good() -> None:
    async with world(now=START) as w:
        p = planner(w)
        await scheduled(w, Every(minutes=10, catch_up="all"))
        await pause_schedule(w.engine, "tick")
        w.clock.advance(minutes=35)
        assert await p.tick() == 0
        assert p.next_due is None
        await resume_schedule(w.engine, "tick", w.now)
        assert await p.tick() == 0
        w.clock.advance(minutes=5)
        assert await p.tick() == 1
        assert await fires(w) == [40]


async def test_a_resting_schedule_that_is_made_again_rests_on_and_makes_nothing_good() -> None:
    async with world(now=START) as w:
        p = planner(w)
        await scheduled(w, Every(minutes=10, catch_up="all"))
        await pause_schedule(w.engine, "tick")
        w.clock.advance(minutes=25)
        await scheduled(w, Every(minutes=10, catch_up="all"))
        w.clock.advance(minutes=10)
        assert (await p.tick(), p.next_due) == (0, None)
        await resume_schedule(w.engine, "tick", w.now)
        assert await p.tick() == 0
        w.clock.advance(minutes=5)
        assert await p.tick() == 1
        assert await fires(w) == [40]


async def test_a_live_job_that_holds_the_dedup_key_takes_the_place_of_a_fire() -> None:
    async with world(now=START) as w:
        p = planner(w)
        await scheduled(w, Every(minutes=10), dedup="one at a time")
        w.clock.advance(minutes=10)
        assert await p.tick() == 1
        w.clock.advance(minutes=10)
        assert await p.tick() == 0
        player = await w.worker()
        await player.complete(await player.run())
        w.clock.advance(minutes=10)
        assert await p.tick() == 1
        assert await fires(w) == [10, 30]


async def test_fires_through_the_turn_of_the_clocks() -> None:
    async with world(now=datetime(2026, 10, 30, tzinfo=UTC)) as w:
        p = planner(w)
        await scheduled(w, Cron("30 1 * * *", tz="America/New_York"))
        for _ in range(24 * 4 * 4):
            w.clock.advance(minutes=15)
            await p.tick()
        found = [f"{job.spec.fire_at:%d %H:%M}" for job in await jobs(w)]
        assert found == ["30 05:30", "31 05:30", "01 05:30", "02 06:30"]


async def test_one_bad_schedule_does_not_stop_the_others(caplog: pytest.LogCaptureFixture) -> None:
    async with world(now=START) as w:
        p = planner(w)
        await w.engine.documents.put_setting("schedule:broken", '{"name":"broken"}', 0)
        await scheduled(w, Every(minutes=10))
        w.clock.advance(minutes=10)
        assert await p.tick() == 1
        assert await p.tick() == 0
        assert len([one for one in caplog.records if "schedule:broken" in one.getMessage()]) == 1


async def test_a_schedule_that_fails_in_an_unforeseen_way_does_not_stop_the_others(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with world(now=START) as w:
        p = planner(w)
        await scheduled(w, Every(minutes=10), "a bad one")
        await scheduled(w, Every(minutes=10), "tick")
        w.clock.advance(minutes=10)
        insert = w.writer.inserts.insert_many

        async def stumbles(jobs: list[Job]) -> object:
            if jobs[0].spec.schedule == "a bad one":
                raise ZeroDivisionError
            return await insert(jobs)

        monkeypatch.setattr(w.writer.inserts, "insert_many", stumbles)
        assert await p.tick() == 1
        assert await fires(w) == [10]
        assert "a bad one" in caplog.text


# The loop


async def run(w: World, p: Planner, until: datetime) -> None:
    w.host.until = lambda: w.now >= until
    w.host.stops = [p.stopping, p.wake]
    await p.main()


async def test_the_loop_wakes_for_each_fire() -> None:
    async with world(now=START) as w:
        p = planner(w)
        await scheduled(w, Every(seconds=7))
        await run(w, p, START + timedelta(minutes=1))
        late = [(job.created_at - job.spec.fire_at).total_seconds() for job in await jobs(w) if job.spec.fire_at]
        assert len(late) == 8
        assert max(late) < 0.01


async def test_a_new_schedule_wakes_the_loop() -> None:
    async with world(now=START) as w:
        # Its clock stands still and its waits are real ones of ten seconds: only the hint can tell it in time.
        p = Planner(w.engine, w.writer, Host(w.clock, w.host.dice), w.holder())
        async with p:
            await until(lambda: p.elector.token is not None)
            assert p.next_due is None
            await scheduled(w, Every(seconds=1))
            await until(lambda: p.next_due is not None, within=9)
            w.clock.advance(1)
            await scheduled(w, Every(hours=1), name="other")
            await until(lambda: p.next_due == START + timedelta(seconds=2), within=9)
        assert await fires(w) == [1 / 60]
