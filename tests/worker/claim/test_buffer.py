"""What is claimed ahead: the most urgent first, as much as the pace allows, and not for long."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from uuid import UUID

from headrace.core.job import Job
from headrace.core.lifecycle.claim import ClaimRequest
from headrace.core.lifecycle.retry import Retry
from headrace.core.status import Status
from headrace.engine import Claimed, WorkerInfo
from headrace.worker.claim.buffer import MAX_AHEAD_JOBS, Pace
from headrace.worker.slots import Slots
from tests.support.shop import Shop
from tests.support.until import until


class Clock:
    """Stands still until it is moved; what never steps goes on, and is moved along."""

    def __init__(self) -> None:
        self.time = self._begun = datetime.now(UTC)

    def now(self) -> datetime:
        """As it was set."""
        return self.time

    def monotonic(self) -> float:
        """The machine's own, moved along."""
        return time.monotonic() + (self.time - self._begun).total_seconds()


class Bench:
    """Slots, of which there is one, which the first job holds until the gate is opened; the test claims for it."""

    def __init__(self, shop: Shop) -> None:
        self.shop, self.clock = shop, Clock()
        shop.host.clock = self.clock
        self.ran: list[str] = []
        self.began, self.gate = asyncio.Event(), asyncio.Event()
        self.id = shop.host.dice.new_id(self.clock.now())
        self.slots = Slots(
            shop.handlers, shop.writer, shop.host, concurrency=1, may_start=lambda: True, hungry=lambda: None
        )
        self._requests = 0

        async def note(name: str) -> None:
            self.ran.append(name)
            if name == "first":
                self.began.set()
                await self.gate.wait()

        shop.task(note)

    async def claim(self, *names: str, queue_priorities: dict[str, int] | None = None, **options: object) -> list[UUID]:
        """Submit a job for each name, claim them, and put them into the slots."""
        ids = [await self.shop.submit("note", payload={"name": name}, **options) for name in names]
        self._requests += 1
        known = await self.shop.engine.documents.profiles()
        ask = ClaimRequest(n=len(ids), free=len(ids), profiles=frozenset(one.id for one in known.profiles))
        claimed = await self.shop.engine.jobs.claim(self.id, ask, self._requests, self.clock.now())
        assert isinstance(claimed, Claimed)
        assert {job.id for job in claimed.jobs} == set(ids)
        self.slots.take(claimed.jobs, queue_priorities or {})
        return ids

    async def jobs(self, ids: list[UUID]) -> list[Job]:
        return [job for job in await self.shop.engine.jobs.get(ids) if job is not None]


@asynccontextmanager
async def busy(shop: Shop) -> AsyncIterator[Bench]:
    """A bench whose slot is taken."""
    bench = Bench(shop)
    info = WorkerInfo(id=bench.id, host="mill", pid=1, started_at=bench.clock.now(), concurrency=1, tasks=("note",))
    await shop.engine.workers.register(info, bench.clock.now())
    await bench.claim("first")
    await asyncio.wait_for(bench.began.wait(), 45)
    try:
        yield bench
    finally:
        bench.gate.set()
        await until(lambda: bench.slots.empty)
        bench.slots.close()


async def test_higher_priority_goes_in_front_of_what_is_buffered(shop: Shop) -> None:
    async with busy(shop) as bench:
        ids = await bench.claim("a", "b")
        ids += await bench.claim("urgent", "urgent too", priority=90)
        ids += await bench.claim("between", priority=60)
        ids += await bench.claim("last")
        assert bench.slots.waiting == 6
        bench.gate.set()
        await shop.all_ended(ids)
    assert bench.ran == ["first", "urgent", "urgent too", "between", "a", "b", "last"]


async def test_so_does_a_queue_that_comes_before_others(shop: Shop) -> None:
    async with busy(shop) as bench:
        ids = await bench.claim("a", priority=90)
        ids += await bench.claim("vip", queue="vip", queue_priorities={"vip": 1})
        bench.gate.set()
        await shop.all_ended(ids)
    assert bench.ran == ["first", "vip", "a"]


def test_a_pace_is_learned_and_bounded() -> None:
    pace = Pace(10)
    assert pace.ahead(None) == 0, "nothing is hoarded before anything is known"
    for _ in range(100):
        pace.ran(0.01)
    assert pace.ahead(None) == 250, "what ten slots start in a quarter second"
    for _ in range(100):
        pace.ran(0.0)
    assert pace.ahead(None) == MAX_AHEAD_JOBS


def test_a_pace_that_turned_slow_is_noticed_while_the_slow_ones_still_run() -> None:
    pace = Pace(10)
    for _ in range(100):
        pace.ran(0.001)
    assert pace.ahead(0.0005) == 2000, "they have only begun"
    assert pace.ahead(0.1) == 25
    assert pace.ahead(2.5) == 1
    assert pace.ahead(60.0) == 0


async def test_behind_jobs_that_turned_slow_nothing_more_is_claimed(shop: Shop) -> None:
    async with busy(shop) as bench:
        for _ in range(100):
            bench.slots._pace.ran(0.001)
        for run in bench.slots.runs.values():
            run.began = bench.clock.monotonic()  # a moment ago, however long it took to come here
        wanted, free = bench.slots.room()
        assert (wanted > 100, free) == (True, 0)
        bench.clock.time += timedelta(seconds=5)
        assert bench.slots.room() == (0, 0)


async def test_a_slot_that_waits_for_its_start_to_be_stored_counts_as_slow(shop: Shop) -> None:
    """Else as much would be claimed ahead as if there were nothing to be written, and be handed back again."""
    async with busy(shop) as bench:
        bench.gate.set()
        await until(lambda: bench.slots.empty)
        stored = shop.engine.jobs.apply
        before = bench.slots._pace._mean
        assert before is not None

        async def slow(*args: object) -> object:
            await asyncio.sleep(0.2)  # what a store may take
            return await stored(*args)  # type: ignore[arg-type]

        shop.engine.jobs.apply = slow  # type: ignore[method-assign, assignment]
        (id,) = await bench.claim("once", retry=Retry(0))
        await until(lambda: "once" in bench.ran)
        await shop.ended(id)
        learned = bench.slots._pace._mean
        shop.engine.jobs.apply = stored  # type: ignore[method-assign]
        assert learned is not None
        assert learned - before * 0.9 >= 0.019, "a tenth of what the slot was taken for"


async def test_what_was_buffered_too_long_is_handed_back(shop: Shop) -> None:
    async with busy(shop) as bench:
        ids = await bench.claim("a", "b")
        bench.clock.time += timedelta(seconds=0.9)
        bench.slots.tick()
        assert bench.slots.waiting == 2, "a moment is nothing"
        bench.clock.time += timedelta(seconds=0.2)
        bench.slots.tick()
        assert bench.slots.waiting == 0

        async def given_back() -> bool:
            return {(job.status, job.attempt, job.worker) for job in await bench.jobs(ids)} == {
                (Status.QUEUED, 0, None)
            }

        await until(given_back)
    assert bench.ran == ["first"]
