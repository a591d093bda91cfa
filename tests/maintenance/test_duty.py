"""Who holds a duty, and what becomes of its loop when the store is away."""

from __future__ import annotations

import asyncio
import logging

import pytest

from headrace.maintenance.duty import Duty, Elector
from tests.support.until import until
from tests.support.world import World, world


class Counting(Duty):
    """A duty that counts its ticks and fails as told."""

    name = "counting"

    def __init__(self, w: World, every: float = 1.0) -> None:
        super().__init__(w.engine, w.writer, w.host, w.holder())
        self.every = every
        self.ticks = 0
        self.fails: list[Exception] = []

    def pause(self) -> float:
        return self.every

    async def tick(self) -> int:
        self.ticks += 1
        if self.fails:
            raise self.fails.pop()
        await self.engine.workers.list()
        return 1


def elector(w: World) -> Elector:
    return Elector(w.engine, w.host, w.holder(), "duty:x", 30.0)


async def run(w: World, *duties: Duty, seconds: float) -> None:
    """Run the duties for so long on the simulated clock."""
    end = w.clock.monotonic() + seconds
    w.host.until = lambda: w.clock.monotonic() >= end
    w.host.stops = [event for duty in duties for event in (duty.stopping, duty.wake)]
    await asyncio.gather(*(duty.main() for duty in duties))


async def test_one_holds_a_duty_and_the_other_stands_by() -> None:
    async with world() as w:
        one, other = elector(w), elector(w)
        assert await one.leads()
        assert not await other.leads()
        for _ in range(20):
            w.clock.advance(10)
            assert await one.leads()
            assert not await other.leads()


async def test_a_duty_is_renewed_well_before_its_lease_ends_and_not_at_once() -> None:
    async with world() as w:
        one = elector(w)
        await one.leads()
        assert one.asks_in == 18
        w.clock.advance(17.9)
        w.engine.away = True
        assert await one.leads()  # needs no store
        w.clock.advance(0.2)
        with pytest.raises(ConnectionError):
            await one.leads()


async def test_a_duty_of_a_dead_holder_passes_on() -> None:
    async with world() as w:
        one, other = elector(w), elector(w)
        await one.leads()
        await other.leads()
        w.clock.advance(30)
        assert await other.leads()
        assert not await one.leads()
        assert one.token is None


async def test_a_duty_is_given_back_on_stop() -> None:
    async with world() as w:
        one, other = elector(w), elector(w)
        await one.leads()
        await one.resign()
        assert await other.leads()
        await one.resign()  # nothing left to give back
        assert await other.leads()


async def test_the_loop_ticks_at_its_pace_while_the_duty_is_renewed() -> None:
    async with world() as w:
        duty = Counting(w, every=60.0)
        await run(w, duty, seconds=600)
        assert duty.ticks in (10, 11)
        assert max(w.host.waits) <= 18
        assert duty.elector.token is None
        assert await w.engine.documents.lease("duty:counting", w.holder(), 1, w.now) is not None


async def test_only_the_holder_ticks() -> None:
    async with world() as w:
        one, other = Counting(w), Counting(w)
        start = w.clock.monotonic()
        due = {one: start, other: start}
        while (at := min(due.values())) < start + 300:  # each when its time has come
            duty = min(due, key=lambda duty: due[duty])
            w.clock.advance(max(0.0, at - w.clock.monotonic()))
            due[duty] = w.clock.monotonic() + await duty.round()
        assert min(one.ticks, other.ticks) == 0
        assert max(one.ticks, other.ticks) > 10


async def test_a_nudge_makes_a_tick_at_once() -> None:
    async with world() as w:
        duty = Counting(w, every=60.0)
        await duty.round()
        assert await duty.round() > 0
        assert duty.ticks == 1
        duty.nudge()
        await duty.round()
        assert duty.ticks == 2


async def test_an_outage_is_survived_and_told_once(caplog: pytest.LogCaptureFixture) -> None:
    async with world() as w:
        duty = Counting(w)
        w.clock.advance(await duty.round())
        w.engine.away = True
        with caplog.at_level(logging.WARNING, "headrace.maintenance"):
            pauses = []
            for _ in range(20):
                pauses.append(await duty.round())
                w.clock.advance(pauses[-1])
            w.engine.away = False
            w.clock.advance(60)
            before = duty.ticks
            await duty.round()
        assert duty.ticks == before + 1
        assert 0.3 < pauses[0] <= 0.5
        assert 7 < pauses[-1] <= 10
        assert [record.getMessage() for record in caplog.records] == [
            "counting waits for the store: the store is away",
            "counting goes on after 20 failed rounds",
        ]


async def test_a_bug_does_not_end_the_loop(caplog: pytest.LogCaptureFixture) -> None:
    async with world() as w:
        duty = Counting(w)
        duty.fails = [ZeroDivisionError("one bad row")]
        await run(w, duty, seconds=20)
        assert duty.ticks > 5
        assert "counting failed and goes on" in caplog.text
        assert "one bad row" in caplog.text


async def test_stop_ends_a_waiting_loop_at_once() -> None:
    async with world() as w:
        duty = Counting(w, every=60.0)
        async with duty:
            await until(lambda: duty.ticks)
        assert duty.elector.token is None
        await duty.start()  # and it may be started again
        await duty.stop()
