"""Starts: late ones are written in any case, and those of jobs that take a while are soon news to whoever listens."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from headrace.core.status import Outcome, Status
from headrace.engine.bus import Hint, Topic
from headrace.worker import delayed_starts
from headrace.worker.worker import Worker
from tests.support.shop import Shop
from tests.support.until import until

NEVER = 600.0


@asynccontextmanager
async def listening(shop: Shop) -> AsyncIterator[list[str]]:
    """Somebody in another session who hears of changes: the ids that it heard."""
    other, heard = shop.engine.another_session(), list[str]()
    await other.open()
    try:
        other.bus.listen(frozenset({Topic.CHANGED}), lambda hint: heard.extend(hint.names))

        def reaches() -> bool:
            shop.engine.bus.send(Hint(Topic.CHANGED, ("a trial",)))
            return bool(heard)

        await until(reaches)
        yield heard
    finally:
        await other.close()


async def ticks(worker: Worker, count: int = 3) -> None:
    """Wait until the worker has looked so many times at what it runs."""
    for _ in range(count):
        before = worker.ticked_at
        await until(lambda before=before: worker.ticked_at != before)  # type: ignore[misc]


class Held:
    """A handler that runs until it is let go."""

    def __init__(self, shop: Shop) -> None:
        self.gate, self.running = asyncio.Event(), 0

        async def held() -> None:
            self.running += 1
            await self.gate.wait()

        shop.task(held)


async def test_a_start_is_news_to_whoever_listens(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delayed_starts, "WRITE_SECONDS", NEVER)  # so that only those who listen are a reason
    held = Held(shop)
    async with listening(shop) as heard, shop.worker():
        id = await shop.submit("held")
        job = await shop.reaches(id, Status.RUNNING)
        assert job.attempt == 1
        await until(lambda: str(id) in heard)
        held.gate.set()
        await shop.ended(id)
    (attempt,) = (await shop.history(id)).attempts
    assert (attempt.outcome, attempt.started_at) == (Outcome.COMPLETED, job.started_at)


async def test_one_who_comes_later_is_told_as_well(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delayed_starts, "WRITE_SECONDS", NEVER)
    held = Held(shop)
    async with shop.worker():
        id = await shop.submit("held")
        await until(lambda: held.running)
        async with listening(shop):
            await shop.reaches(id, Status.RUNNING)
        held.gate.set()
        await shop.ended(id)


async def test_where_nobody_listens_a_start_waits_for_the_end(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delayed_starts, "WRITE_SECONDS", NEVER)
    held = Held(shop)
    # A session that does not hear yet believes that somebody may be listening.
    async with shop.worker() as worker:
        await until(lambda: not shop.engine.bus.wanted(Topic.CHANGED))
        id = await shop.submit("held")
        await until(lambda: held.running)
        await ticks(worker)
        assert (await shop.get(id)).status is Status.ACCEPTED
        held.gate.set()
        await shop.ended(id)


async def test_a_start_that_nobody_listens_to_is_written_in_time(shop: Shop) -> None:
    held = Held(shop)
    async with shop.worker():
        id = await shop.submit("held")
        await shop.reaches(id, Status.RUNNING)
        held.gate.set()
        await shop.ended(id)


async def test_listeners_cost_no_more_than_so_many_writes(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delayed_starts, "WRITE_SECONDS", NEVER)
    monkeypatch.setattr(delayed_starts, "_BURST_STARTS", 3)
    monkeypatch.setattr(delayed_starts, "_STARTS_PER_SECOND", 0)
    held = Held(shop)

    async def running() -> int:
        return sum([(await shop.get(id)).status is Status.RUNNING for id in ids])

    async def as_many_as_may_be() -> bool:
        return await running() == 3

    async with listening(shop), shop.worker(concurrency=10) as worker:
        ids = await shop.submit_many("held", 10)
        await until(lambda: held.running == 10)
        await until(as_many_as_may_be)
        await ticks(worker)
        assert await running() == 3
        held.gate.set()
        await shop.all_ended(ids)
