"""Schedules in the store: those people make, and those that come with code."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest
from msgspec.structs import replace

from headrace.core.job import Spec
from headrace.core.schedule.rules import Cron, Every, Rule
from headrace.core.schedule.schedule import ScheduleDoc, new_schedule
from headrace.errors import ConfigError, UnknownSchedule
from headrace.maintenance import Planner
from headrace.maintenance.schedules import (
    create_schedule,
    delete_schedule,
    find_schedule,
    list_schedules,
    pause_schedule,
    resume_schedule,
    sync_schedules,
    trigger_schedule,
)
from tests.support.world import World, world


def doc(
    w: World, name: str, rule: Rule, task: str = "work", source: str = "dynamic", payload: str = "{}"
) -> ScheduleDoc:
    made = new_schedule(name, rule, Spec(task=task, created_at=w.now), payload, w.now)
    return replace(made, source=source)


async def sync(w: World, *docs: ScheduleDoc, tasks: tuple[str, ...] = ("work", "other")) -> list[str]:
    return await sync_schedules(w.engine, docs, w.now, tasks=tasks)


# By hand


async def test_schedules_are_listed_found_and_deleted() -> None:
    async with world() as w:
        for name in ("b", "a", "a.b"):
            await create_schedule(w.engine, doc(w, name, Every(minutes=5)))
        assert [one.name for one in await list_schedules(w.engine)] == ["a", "a.b", "b"]
        assert (await find_schedule(w.engine, "a")).name == "a"
        await delete_schedule(w.engine, "a")
        assert [one.name for one in await list_schedules(w.engine)] == ["a.b", "b"]


async def test_what_code_defines_is_removed_from_the_code_first() -> None:
    async with world() as w:
        await sync(w, doc(w, "nightly", Every(minutes=5), source="code"))
        with pytest.raises(ConfigError, match="defined in code"):
            await delete_schedule(w.engine, "nightly")
        await sync(w)  # the code has it no more
        await delete_schedule(w.engine, "nightly")
        assert await list_schedules(w.engine) == []


async def test_what_is_not_there_is_named() -> None:
    async with world() as w:
        await create_schedule(w.engine, doc(w, "nightly", Every(minutes=5)))
        for verb in (
            find_schedule(w.engine, "night"),
            pause_schedule(w.engine, "night"),
            resume_schedule(w.engine, "night", w.now),
            delete_schedule(w.engine, "night"),
            trigger_schedule(w.engine, w.writer, w.host, "night"),
        ):
            with pytest.raises(UnknownSchedule, match="'night'"):
                await verb


async def test_the_same_rule_goes_on_and_another_begins_anew() -> None:
    async with world() as w:
        first = await create_schedule(w.engine, doc(w, "x", Every(minutes=5)))
        w.clock.advance(60)
        same = await create_schedule(w.engine, doc(w, "x", Every(seconds=300, catch_up="all"), payload='{"n":1}'))
        assert (same.cursor, same.anchor, same.generation) == (first.cursor, first.anchor, 1)
        assert (same.payload_text, same.rule) == ('{"n":1}', Every(seconds=300, catch_up="all"))
        other = await create_schedule(w.engine, doc(w, "x", Every(minutes=6)))
        assert (other.cursor, other.anchor, other.generation) == (w.now, w.now, 2)
        assert other.created_at == first.created_at


async def test_rest_and_resume_may_be_repeated() -> None:
    async with world() as w:
        made = await create_schedule(w.engine, doc(w, "x", Every(minutes=5)))
        w.clock.advance(1)
        assert await resume_schedule(w.engine, "x", w.now) == made
        paused = await pause_schedule(w.engine, "x")
        assert await pause_schedule(w.engine, "x") == paused
        assert not paused.active
        resumed = await resume_schedule(w.engine, "x", w.now)
        assert (resumed.active, resumed.cursor) == (True, w.now)


async def test_a_trigger_submits_apart_from_the_fires() -> None:
    async with world() as w:
        made = await create_schedule(w.engine, doc(w, "x", Every(minutes=5), payload='{"n":1}'))
        await pause_schedule(w.engine, "x")
        one = await trigger_schedule(w.engine, w.writer, w.host, "x")
        two = await trigger_schedule(w.engine, w.writer, w.host, "x")
        assert one.id != two.id
        assert (one.task, one.spec.schedule, one.spec.fire_at, one.payload) == ("work", "x", None, {"n": 1})
        assert (await find_schedule(w.engine, "x")).cursor == made.cursor


async def test_edits_that_race_are_all_kept() -> None:
    async with world() as w:
        await create_schedule(w.engine, doc(w, "x", Every(minutes=5)))
        await asyncio.gather(
            pause_schedule(w.engine, "x"),
            create_schedule(w.engine, doc(w, "x", Every(minutes=7))),
            pause_schedule(w.engine, "x"),
        )
        assert (await find_schedule(w.engine, "x")).rule == Every(minutes=7)


# From code


async def test_code_creates_its_schedules_once() -> None:
    async with world() as w:
        assert await sync(w, doc(w, "work", Every(minutes=5))) == ["work"]
        stored = await find_schedule(w.engine, "work")
        assert stored.source == "code"
        w.clock.advance(90)
        assert await sync(w, doc(w, "work", Every(minutes=5))) == []
        assert await find_schedule(w.engine, "work") == stored


async def test_a_changed_rule_in_code_begins_a_generation() -> None:
    async with world() as w:
        await sync(w, doc(w, "work", Every(minutes=5)))
        w.clock.advance(minutes=60)
        assert await sync(w, doc(w, "work", Cron("0 * * * *", catch_up="all"))) == ["work"]
        stored = await find_schedule(w.engine, "work")
        assert (stored.generation, stored.cursor) == (2, w.now)
        assert await Planner(w.engine, w.writer, w.host, w.holder()).tick() == 0


async def test_changed_options_in_code_keep_the_place() -> None:
    async with world() as w:
        await sync(w, doc(w, "work", Every(minutes=5)))
        w.clock.advance(minutes=2)
        changed = doc(w, "work", Every(minutes=5))
        changed = replace(changed, spec=replace(changed.spec, priority=90))
        assert await sync(w, changed) == ["work"]
        stored = await find_schedule(w.engine, "work")
        assert (stored.spec.priority, stored.generation, stored.cursor) == (90, 1, w.now - timedelta(minutes=2))


async def test_a_person_s_rest_outlives_a_deploy() -> None:
    async with world() as w:
        await sync(w, doc(w, "work", Every(minutes=5)))
        await pause_schedule(w.engine, "work")
        await sync(w, doc(w, "work", Every(minutes=6)))
        assert (await find_schedule(w.engine, "work")).paused


async def test_what_the_code_asks_for_no_more_retires_and_may_come_back() -> None:
    async with world() as w:
        await sync(w, doc(w, "work", Every(minutes=5, catch_up="all")), doc(w, "theirs", Every(minutes=5), task="else"))
        await create_schedule(w.engine, doc(w, "mine", Every(minutes=5)))
        assert await sync(w) == ["work"]
        assert {one.name for one in await list_schedules(w.engine) if not one.active} == {"work"}
        w.clock.advance(minutes=60)
        assert await sync(w) == []
        assert await sync(w, doc(w, "work", Every(minutes=5, catch_up="all"))) == ["work"]
        stored = await find_schedule(w.engine, "work")
        assert (stored.active, stored.generation, stored.cursor) == (True, 2, w.now)


async def test_two_workers_that_start_at_once_agree() -> None:
    async with world() as w:
        await asyncio.gather(*(sync(w, doc(w, "work", Every(minutes=5))) for _ in range(5)))
        (stored,) = await list_schedules(w.engine)
        assert (stored.generation, stored.active) == (1, True)


async def test_what_code_defines_is_not_changed_by_hand() -> None:
    async with world() as w:
        await sync(w, doc(w, "work", Every(minutes=5)))
        with pytest.raises(ConfigError, match="defined in code"):
            await create_schedule(w.engine, doc(w, "work", Every(minutes=9)))


async def test_a_schedule_of_a_newer_version_is_left_alone() -> None:
    async with world() as w:
        await w.engine.documents.put_setting("schedule:future", '{"name":"future","rule":{"kind":"moon"}}', 0)
        await sync(w, doc(w, "work", Every(minutes=5)))
        assert len(await w.engine.documents.settings("schedule:")) == 2
        with pytest.raises(ConfigError, match="schedule:future"):
            await find_schedule(w.engine, "future")


async def test_a_schedule_nobody_can_read_does_not_hide_the_others(caplog: pytest.LogCaptureFixture) -> None:
    async with world() as w:
        await w.engine.documents.put_setting("schedule:future", '{"name":"future","rule":{"kind":"moon"}}', 0)
        await create_schedule(w.engine, doc(w, "work", Every(minutes=5)))
        assert [one.name for one in await list_schedules(w.engine)] == ["work"]
        assert "schedule:future" in caplog.text
