"""Steps of the store's time: put on record by whoever sweeps, and nobody is charged for them."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime, timedelta

import pytest

from headrace.core.lifecycle.clock_steps import SETTING, Steps
from headrace.core.status import Status
from headrace.maintenance import Sweeper
from headrace.maintenance.sweeper import StepRecord
from headrace.runtime.host import Host
from headrace.runtime.store_clock import StoreClock
from headrace.testing.clock import FakeClock
from tests.support.world import Player, World, world

HOUR = 3600.0


class Sleepy(FakeClock):
    """A fake clock of a machine that can sleep."""

    slept = 0.0

    def uptime(self) -> float:
        return self.monotonic() + self.slept

    def sleep(self, seconds: float) -> None:
        self.slept += seconds
        self.step(seconds)


class Scene:
    """A sweeper with the clock of its machine, in a store that has a clock of its own or none."""

    def __init__(self, w: World, served: bool) -> None:
        self.w, self.local = w, w.clock
        self.ahead = timedelta()
        self.clock = StoreClock(w.clock)
        w.host.clock = self.clock  # type: ignore[assignment]
        if served:
            w.engine.time = self.time  # type: ignore[method-assign]
        self.sweeper = self.another()

    def another(self) -> Sweeper:
        return Sweeper(self.w.engine, self.w.writer, self.w.host, self.w.holder())

    async def time(self) -> datetime | None:
        return self.local.now() + self.ahead

    async def watch(self, seconds: float, *beating: Player) -> None:
        end = self.local.monotonic() + seconds
        while self.local.monotonic() < end:
            self.local.advance(2.5)
            for player in beating:
                await player.beat()
            await self.sweeper.tick()

    async def on_record(self) -> list[float]:
        settings = await self.w.engine.documents.settings(SETTING)
        return [round(step.by) for one in settings for step in Steps.from_text(one.value).steps]


@asynccontextmanager
async def scene(served: bool) -> AsyncIterator[Scene]:
    async with world() as w:
        sleepy = Sleepy(w.now)
        w.clock = w.host.clock = sleepy
        made = Scene(w, served)
        await w.host.measure(w.engine)
        yield made


@pytest.mark.parametrize("by", [HOUR, -HOUR])
@pytest.mark.parametrize("served", [False, True])
async def test_a_step_charges_nobody_and_is_on_record(served: bool, by: float) -> None:
    async with scene(served) as s:
        player = await s.w.worker()
        await s.w.submit(timeout=60.0)
        await s.w.submit(timeout=60.0)
        running = await player.run()
        (claimed,) = await player.claim()
        await s.watch(10, player)
        if served:
            s.ahead += timedelta(seconds=by)
        else:
            s.local.step(by)
        await s.watch(15, player)
        assert [(await s.w.job(job)).status for job in (running, claimed)] == [Status.RUNNING, Status.ACCEPTED]
        assert await s.on_record() == [by]
        if by > 0:  # a step back only puts the sweeper off
            await s.watch(60, player)  # its worker does nothing about the timeout, so the sweeper does
            assert (await s.w.job(running)).charged == 1


async def test_a_sleep_charges_nobody_whether_the_store_slept_as_well_or_not() -> None:
    for served in (False, True):
        async with scene(served) as s:
            player = await s.w.worker()
            await s.w.submit(timeout=60.0)
            running = await player.run()
            await s.watch(10, player)
            assert isinstance(s.local, Sleepy)
            s.local.sleep(HOUR)
            await s.watch(20, player)
            assert (await s.w.job(running)).status is Status.RUNNING
            assert await s.on_record() == [HOUR]


async def test_whoever_sweeps_next_knows_of_it() -> None:
    async with scene(served=False) as s:
        player = await s.w.worker()
        await s.w.submit(timeout=60.0)
        running = await player.run()
        s.local.step(HOUR)
        await s.watch(5, player)
        s.w.host.clock = StoreClock(s.local)  # type: ignore[assignment]  # a process that was not there
        s.sweeper = s.another()
        await s.watch(20, player)
        assert (await s.w.job(running)).status is Status.RUNNING


async def test_what_began_after_a_step_is_judged_as_always() -> None:
    async with scene(served=False) as s:
        player = await s.w.worker()
        await s.watch(10, player)
        s.local.step(HOUR)
        await s.watch(10, player)
        await s.w.submit(timeout=60.0)
        running = await player.run()
        await s.watch(80, player)
        assert (await s.w.job(running)).charged == 1


async def test_a_step_between_two_looks_at_a_job_is_seen_before_the_job_is_judged() -> None:
    async with scene(served=False) as s:
        player = await s.w.worker()
        await s.w.submit(timeout=60.0)
        running = await player.run()
        await s.watch(10, player)
        for _ in range(4):
            s.local.advance(8)
            await player.beat()
            s.w.engine.between = lambda: s.local.step(HOUR)  # within the very call that asks who is overdue
            await s.sweeper.sweep()
        assert (await s.w.job(running)).status is Status.RUNNING


async def test_sweepers_that_saw_the_same_step_put_it_on_record_once(caplog: pytest.LogCaptureFixture) -> None:
    async with scene(served=False) as s:
        other = Host(StoreClock(s.local))
        s.local.step(HOUR)
        with caplog.at_level(logging.WARNING, "headrace.sweeper"):
            for host in (s.w.host, other):
                record = StepRecord(s.w.engine, host)
                assert (record.is_behind, [round(step.by) for step in await record.known()]) == (True, [HOUR])
                assert not record.is_behind
                s.local.advance(5)
        assert await s.on_record() == [HOUR]
        (told,) = caplog.records
        assert told.getMessage().startswith("the store's time went forward by 60 min")


async def test_a_record_that_cannot_be_read_is_written_anew() -> None:
    async with scene(served=False) as s:
        await s.w.engine.documents.put_setting(SETTING, '{"steps": 7}', 0)
        record = StepRecord(s.w.engine, s.w.host)
        assert await record.known() == ()
        s.local.step(HOUR)
        await record.known()
        assert await s.on_record() == [HOUR]


async def test_a_clock_that_is_passed_in_notices_nothing() -> None:
    async with world() as w:
        record = StepRecord(w.engine, w.host)
        w.clock.step(HOUR)
        assert not record.is_behind
        assert await record.known() == ()
