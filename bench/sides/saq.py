"""saq on its PostgreSQL queue; it keeps jobs with their results for ten minutes. It has no bulk submit."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import saq
from saq.queue.postgres import PostgresQueue

from bench.plan import POOL, SUBMITTERS
from bench.sides.asynchronous import AsyncSide, Tally, versions

__all__ = ["remaining", "settings", "submit", "work"]

CONCURRENCY = 100

logging.getLogger("saq").setLevel(logging.ERROR)  # stopped workers are waiting for jobs, which it warns of


class _Client:
    def __init__(self, queue: PostgresQueue) -> None:
        self._queue = queue

    async def one(self, n: int) -> None:
        await self._queue.enqueue("noop", n=n)

    async def many(self, numbers: Sequence[int]) -> None:
        async def some(which: Sequence[int]) -> None:
            for n in which:
                await self.one(n)

        await asyncio.gather(*(some(numbers[first::SUBMITTERS]) for first in range(SUBMITTERS)))

    async def stamp(self, sent: float) -> None:
        await self._queue.enqueue("stamp", sent=sent)

    async def remaining(self) -> int:
        return await self._queue.count("incomplete")


class _Saq(AsyncSide):
    @asynccontextmanager
    async def client(self, store: str) -> AsyncIterator[_Client]:
        queue = PostgresQueue.from_url(store, min_size=POOL, max_size=POOL)
        await queue.connect()
        try:
            yield _Client(queue)
        finally:
            await queue.disconnect()

    @asynccontextmanager
    async def worker(self, store: str, tally: Tally) -> AsyncIterator[None]:
        async def noop(context: Any, *, n: int) -> None:
            tally.ran += 1

        async def stamp(context: Any, *, sent: float) -> None:
            tally.stamp(sent)

        queue = PostgresQueue.from_url(store, max_size=2 * POOL)
        await queue.connect()
        worker: saq.Worker[Any] = saq.Worker(
            queue, functions=[("noop", noop), ("stamp", stamp)], concurrency=CONCURRENCY, shutdown_grace_period_s=1
        )
        running = asyncio.create_task(worker.start())
        try:
            yield
            worker.event.set()
            await running
        finally:
            await queue.disconnect()

    def settings(self, store: str) -> str:
        """Its versions and what it is told."""
        return f"{versions('saq', 'psycopg')}; concurrency={CONCURRENCY}, pool of {2 * POOL}"


_side = _Saq()
submit, work, remaining, settings = _side.submit, _side.work, _side.remaining, _side.settings
