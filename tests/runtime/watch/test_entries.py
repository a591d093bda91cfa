"""Following entries: by hints, by asking, until the end of the job."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from uuid import UUID

import pytest

from headrace.conformance.lab import BEGIN
from headrace.core.attempt import Completed
from headrace.core.entry import Append, Cursor, Entry, Kind
from headrace.core.job import Job
from headrace.core.lifecycle.claim import ClaimRequest
from headrace.core.lifecycle.execution import finish, start
from headrace.core.status import Status
from headrace.engine import MAX_BATCH, Claimed, Engine, WorkerInfo
from headrace.engine.bus import Hint, Topic
from headrace.errors import JobNotFound, Unavailable
from headrace.runtime.watch.entries import EntryReader, _page
from tests.support.faults import Instead
from tests.support.shop import ENGINES, Shop, open_shop
from tests.support.until import until


@pytest.fixture(params=ENGINES)
async def shop(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Shop]:
    """A store with a job that runs in nobody's hands but the test's."""
    async with open_shop(request.param, tmp_path) as shop:
        yield shop


async def running(shop: Shop) -> Job:
    """A job that this test runs."""
    host, now = shop.host, shop.host.clock.now()
    info = WorkerInfo(id=host.dice.new_id(now), host="test", pid=1, started_at=now, concurrency=1)
    await shop.engine.workers.register(info, now)
    id = await shop.submit("work")
    profiles = frozenset(profile.id for profile in (await shop.engine.documents.profiles()).profiles)
    claimed = await shop.engine.jobs.claim(info.id, ClaimRequest(n=1, free=1, profiles=profiles), 1, host.clock.now())
    assert isinstance(claimed, Claimed)
    await shop.writer.apply(start(claimed.jobs[0], host.clock.now(), shop.engine.rules))
    return await shop.get(id)


async def add(shop: Shop, job: Job, *numbers: int, quietly: bool = False) -> None:
    """Append items, with a hint or without."""
    assert job.worker is not None
    entries = tuple(Entry(Kind.ITEM, 1, number, str(number), shop.host.clock.now()) for number in numbers)
    append = Append(job.id, job.worker, job.epoch, entries)
    if quietly:
        assert await shop.engine.entries.append([append], shop.host.clock.now()) == ["kept"]
    else:
        assert await shop.writer.append(append)


async def end(shop: Shop, job: Job) -> None:
    """Complete it."""
    rules, now = shop.engine.rules, shop.host.clock.now()
    await shop.writer.apply(finish(job, Completed(), now, 0.5, rules, job.started_at))


class Reader:
    """Follows in a task of its own."""

    def __init__(self, reader: EntryReader, id: UUID, after: Cursor = (0, -1)) -> None:
        self.numbers: list[int] = []
        self.job: Job | None = None
        self.task = asyncio.create_task(self._read(reader, id, after))

    async def _read(self, reader: EntryReader, id: UUID, after: Cursor) -> None:
        async for entries, job in reader.follow(id, Kind.ITEM, after):
            self.numbers += [entry.number for entry in entries]
            self.job = job


async def test_entries_come_until_the_job_has_ended(shop: Shop) -> None:
    job = await running(shop)
    await add(shop, job, 1, 2)
    reader = Reader(shop.writer.entry_reader, job.id)
    await until(lambda: reader.numbers == [1, 2])
    await add(shop, job, 3)
    await until(lambda: reader.numbers == [1, 2, 3])
    await add(shop, job, 4)
    await end(shop, job)
    await asyncio.wait_for(reader.task, 45)
    assert reader.numbers == [1, 2, 3, 4]
    assert reader.job is not None
    assert reader.job.status is Status.COMPLETED


async def test_without_a_hint_they_are_found_by_asking(shop: Shop) -> None:
    job = await running(shop)
    reader = Reader(shop.writer.entry_reader, job.id)
    await add(shop, job, 1, quietly=True)
    await until(lambda: reader.numbers == [1])
    await end(shop, job)
    await asyncio.wait_for(reader.task, 45)


async def test_more_than_a_page(shop: Shop) -> None:
    job = await running(shop)
    for first in range(1, 3 * MAX_BATCH, MAX_BATCH):
        await add(shop, job, *range(first, first + MAX_BATCH))
    await end(shop, job)
    reader = Reader(shop.writer.entry_reader, job.id, (1, 500))
    await asyncio.wait_for(reader.task, 45)
    assert reader.numbers == list(range(501, 3 * MAX_BATCH + 1))


def test_the_larger_the_entries_the_fewer_at_a_time() -> None:
    def of(size: int) -> list[Entry]:
        return [Entry(Kind.ITEM, 1, number, "x" * size, BEGIN) for number in range(10)]

    assert (_page(of(1)), _page(of(40_000)), _page(of(8_000_000))) == (MAX_BATCH, 104, 1)


async def test_what_is_there_can_be_read_without_waiting(shop: Shop) -> None:
    job = await running(shop)
    await add(shop, job, 1)
    found = [batch async for batch in shop.writer.entry_reader.follow(job.id, Kind.ITEM, wait=False)]
    assert [[entry.number for entry in entries] for entries, _ in found] == [[1]]
    assert found[-1][1] is not None
    assert [batch[0] async for batch in shop.writer.entry_reader.follow(job.id, Kind.LOG, wait=False)] == [[]]


async def test_a_job_that_is_not_there(shop: Shop) -> None:
    reader = Reader(shop.writer.entry_reader, UUID(int=7))
    with pytest.raises(JobNotFound):
        await asyncio.wait_for(reader.task, 45)


async def test_all_who_follow_share_a_subscription_and_leave_none_behind(shop: Shop) -> None:
    heard: list[Hint] = []
    job = await running(shop)
    before = shop.engine.bus.wanted(Topic.ENTRIES)
    readers = [Reader(shop.writer.entry_reader, job.id) for _ in range(20)]
    await until(lambda: shop.engine.bus.wanted(Topic.ENTRIES))
    unlisten = shop.engine.bus.listen(frozenset({Topic.ENTRIES}), heard.append)
    await add(shop, job, 1)
    await until(lambda: all(reader.numbers == [1] for reader in readers))
    await until(lambda: len(heard) > 0)
    assert heard[0].names == (str(job.id),)
    unlisten()
    readers[0].task.cancel()
    await end(shop, job)
    await asyncio.gather(*(reader.task for reader in readers[1:]))
    assert shop.writer.entry_reader._listeners == {}
    assert before is False or shop.engine.name == "postgresql"
    assert shop.writer.entry_reader._unlisten is None


async def test_a_store_that_is_away_is_waited_for(shop: Shop) -> None:
    job = await running(shop)
    away = Away(shop.engine)
    reader = Reader(EntryReader(away, shop.host), job.id)  # type: ignore[arg-type]
    await until(lambda: away.asked > 0)
    away.gone = False
    await add(shop, job, 1)
    await until(lambda: reader.numbers == [1])
    await end(shop, job)
    await asyncio.wait_for(reader.task, 45)


class Away:
    """An engine that cannot be asked for a while."""

    def __init__(self, engine: Engine) -> None:
        self.bus, self.entries = engine.bus, engine.entries
        self.jobs = Instead(engine.jobs, get=self.get)
        self.gone, self.asked = True, 0
        self._engine = engine

    async def get(self, ids: list[UUID]) -> list[Job | None]:
        self.asked += 1
        if self.gone:
            raise Unavailable("away")
        return await self._engine.jobs.get(ids)
