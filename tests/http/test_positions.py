"""Positions: one read for all that ask, so many reads, and what is counted on from the last one."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest

from headrace import App
from headrace.core.job import Job, Spec
from headrace.core.lifecycle.submission import submit
from headrace.core.updates import Place
from headrace.errors import Unavailable
from headrace.http import positions
from headrace.http.positions import Positions
from headrace.testing import FakeClock
from tests.support.until import until

NOW = datetime(2026, 11, 16, tzinfo=UTC)


class Reads(Positions):
    """Positions of jobs that are found in the order in which they ask, each a second behind the one before."""

    def __init__(self, clock: FakeClock, takes: float = 0.0, *, required: bool = True) -> None:
        super().__init__(App("memory://", clock=clock), required=required)
        self.clock, self.takes, self.pace = clock, takes, timedelta(seconds=1)
        self.reads = list[Sequence[Job]]()
        self.go = asyncio.Event()
        self.go.set()
        self.before = 0

    async def places(self, jobs: Sequence[Job]) -> list[Place | None]:
        self.reads.append(jobs)
        await self.go.wait()
        self.clock.advance(self.takes)
        numbers = range(self.before + 1, self.before + len(jobs) + 1)
        return [Place(number, self.clock.now() + self.pace * number) for number in numbers]


def without_time(told: Reads, *, first: bool = True) -> None:
    """Let there be no time for reads; ``first``: but for first ones."""
    now = told.clock.monotonic()
    for allowance in (told._count, told._time) if first else (told._count, told._time, told._first):
        allowance.left(now)
        allowance.spend(1000)


def a_job(priority: int = 50, queue: str = "default") -> Job:
    spec = Spec(task="a", created_at=NOW, priority=priority, queue=queue)
    return submit(App("memory://").host.new_id(NOW), spec, "{}", NOW)


async def reads_for(takes: float, seconds: int, a_second: int) -> int:
    """How often positions are read, if so many jobs come each second; each is given one."""
    clock = FakeClock()
    told, job = Reads(clock, takes), a_job()
    for _ in range(seconds):
        for _ in range(a_second):
            assert (await told.of(job)).position is not None
        clock.advance(1)
    return len(told.reads)


async def test_so_many_reads_a_second_and_a_position_for_every_job() -> None:
    assert await reads_for(0, 1, 15) == 15, "few are all read"
    assert await reads_for(0, 1, 100) == positions.MAX_READS_PER_SECOND
    assert await reads_for(0, 10, 100) == 10 * positions.MAX_READS_PER_SECOND


async def test_where_each_takes_long_there_are_fewer() -> None:
    """Of a hundred seconds it is about one."""
    assert 20 <= await reads_for(0.05, 100, 50) <= 30


async def test_all_that_ask_at_one_moment_share_a_read_that_begins_after_them() -> None:
    told = Reads(FakeClock())
    told.go.clear()
    first = asyncio.gather(*(told.of(a_job()) for _ in range(20)))
    await until(lambda: len(told.reads) == 1)
    late = [a_job() for _ in range(20)]
    rest = asyncio.gather(*(told.of(job) for job in late))
    told.go.set()
    assert [place.position for place in await first] == [*range(1, 21)]
    assert [place.position for place in await rest] == [*range(1, 21)]
    assert [len(read) for read in told.reads] == [20, 20]
    assert told.reads[-1] == late, "what began before they were stored may not know them"


async def test_while_a_read_is_under_way_others_are_counted_on() -> None:
    told = Reads(FakeClock())
    first = await asyncio.gather(*(told.of(a_job()) for _ in range(20)))
    told.before = 20
    told.go.clear()
    one = asyncio.create_task(told.of(a_job()))
    await until(lambda: len(told.reads) == 2)
    late = [await told.of(a_job()) for _ in range(3)]
    told.go.set()
    found = [*first, await one, *late, await told.of(a_job(), new=False)]
    assert [place.position for place in found] == [*range(1, 25), 21]
    told._count.spend(1000)
    assert (await told.of(a_job())).position == 25, "the read of an old job says nothing of new ones"


async def test_queues_are_read_apart() -> None:
    told = Reads(FakeClock())
    found = await asyncio.gather(*(told.of(a_job(queue=queue)) for queue in ("a", "b", "a")))
    assert [place.position for place in found] == [1, 1, 2]


async def test_without_a_read_it_is_counted_on_from_the_last() -> None:
    clock = FakeClock()
    told, began = Reads(clock), clock.now()
    told.before = 9
    assert await told.of(a_job()) == Place(10, began + timedelta(seconds=10))
    told._count.spend(1000)
    assert await told.of(a_job()) == Place(11, began + timedelta(seconds=11), approximate=True)
    assert await told.of(a_job()) == Place(12, began + timedelta(seconds=12), approximate=True)
    clock.advance(5)
    without_time(told)
    assert (await told.of(a_job())).position == 8, "five of thirteen were taken, at one a second"
    assert len(told.reads) == 1


async def test_what_cannot_be_counted_on_is_read_though_there_is_no_time() -> None:
    clock = FakeClock()
    told = Reads(clock)
    assert (await told.of(a_job())).position == 1
    without_time(told)
    told.before = 7
    for job in (a_job(priority=10), a_job(priority=90), a_job(queue="other")):
        assert (await told.of(job)).position == 8
    assert (await told.of(a_job())).position == 3, "counted on, behind that of a higher priority"
    assert (await told.of(a_job(), new=False)).position == 8, "a job that existed before"
    clock.advance(positions.MAX_COUNTED_SECONDS + 1)
    without_time(told)
    assert (await told.of(a_job())).position == 8, "what was read a minute ago is too old"
    assert len(told.reads) == 6


async def test_many_queues_at_once_are_all_read() -> None:
    told = Reads(FakeClock())
    found = [await told.of(a_job(queue=str(number))) for number in range(100)]
    assert {place.position for place in found} == {1}
    without_time(told, first=False)
    assert await told.of(a_job(queue="more")) == Place(None)


async def test_an_old_read_is_better_than_none() -> None:
    clock = FakeClock()
    told = Reads(clock)
    told.pace = timedelta(hours=1)
    assert (await told.of(a_job())).position == 1
    clock.advance(positions.MAX_COUNTED_SECONDS + 1)
    without_time(told, first=False)
    assert (await told.of(a_job())).position == 2


async def test_where_positions_are_not_required_nothing_is_read_beyond_its_time() -> None:
    told = Reads(FakeClock(), required=False)
    without_time(told)
    assert await told.of(a_job()) == Place(None)


async def test_after_a_slow_read_there_is_time_again_soon() -> None:
    clock = FakeClock()
    told = Reads(clock, takes=0.6)
    assert (await told.of(a_job())).position == 1
    clock.advance(5)
    assert (await told.of(a_job())).position is not None
    assert len(told.reads) == 1
    clock.advance(10)
    await told.of(a_job())
    assert len(told.reads) == 2


async def test_what_joined_a_read_that_breaks_does_not_wait_for_ever(caplog: pytest.LogCaptureFixture) -> None:
    told = Reads(FakeClock())
    told.go.clear()
    good = told.places

    async def breaks(jobs: Sequence[Job]) -> list[Place | None]:
        told.places = good  # type: ignore[method-assign]  # the next one is read
        await told.go.wait()
        raise ValueError("of the unexpected kind")

    told.places = breaks  # type: ignore[method-assign]
    first = asyncio.create_task(told.of(a_job()))
    await until(lambda: told.places == good)
    second = asyncio.create_task(told.of(a_job()))
    await until(lambda: told._queues["default"].is_waiting)
    told.go.set()
    async with asyncio.timeout(5):
        assert (await first, (await second).position) == (Place(None), 1)
    assert "of the unexpected kind" in caplog.text


async def test_what_waits_for_a_read_that_is_cancelled_does_not_wait_for_ever() -> None:
    told = Reads(FakeClock())
    told.go.clear()
    first = asyncio.create_task(told.of(a_job()))
    await until(lambda: len(told.reads) == 1)
    second = asyncio.create_task(told.of(a_job()))
    queue = told._queues["default"]
    await until(lambda: queue.is_waiting)
    assert queue._task is not None
    queue._task.cancel()
    async with asyncio.timeout(5):
        assert [await first, await second] == [Place(None)] * 2


async def test_where_too_many_are_before_it_that_holds_for_the_next() -> None:
    told = Reads(FakeClock())

    async def places(jobs: Sequence[Job]) -> list[Place | None]:
        return [Place(None)] * len(jobs)

    told.places = places  # type: ignore[method-assign]  # as of a long queue
    assert await told.of(a_job()) == Place(None)
    told._count.spend(1000)
    assert await told.of(a_job()) == Place(None)


async def test_a_submit_does_not_wait_for_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    told = Reads(FakeClock())
    assert (await told.of(a_job())).position == 1
    monkeypatch.setattr(positions, "READ_TIMEOUT_SECONDS", 0.01)
    told.go.clear()
    assert (await told.of(a_job())).position == 2, "counted on, while the read hangs"
    told.go.set()

    async def fails(jobs: Sequence[Job]) -> list[Place | None]:
        raise Unavailable("away")

    other = Reads(FakeClock())
    other.places = fails  # type: ignore[method-assign]  # as of a store that is away
    assert await other.of(a_job()) == Place(None)
