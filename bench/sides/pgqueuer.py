"""pgqueuer with batches of 100 (its default of 10 is three times slower); it keeps a log of statuses and no results.

Who submits alone does so on a connection of its own, as in its documentation: the driver's pool adds a round trip.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import asyncpg
from pgqueuer.db import AsyncpgDriver, AsyncpgPoolDriver
from pgqueuer.models import Job
from pgqueuer.qm import QueueManager
from pgqueuer.queries import Queries

from bench.plan import POOL
from bench.sides.asynchronous import AsyncSide, Tally, versions

__all__ = ["remaining", "settings", "submit", "work"]

BATCH = 100


class _Client:
    def __init__(self, pool: asyncpg.Pool, queries: Queries, alone: Queries) -> None:
        self._pool, self._queries, self._alone = pool, queries, alone
        self._under_way = 0

    async def one(self, n: int) -> None:
        queries = self._queries if self._under_way else self._alone
        self._under_way += 1
        try:
            await queries.enqueue("noop", _bytes(n))
        finally:
            self._under_way -= 1

    async def many(self, numbers: Sequence[int]) -> None:
        count = len(numbers)
        await self._queries.enqueue(["noop"] * count, [_bytes(n) for n in numbers], [0] * count)

    async def stamp(self, sent: float) -> None:
        await self._alone.enqueue("stamp", json.dumps({"sent": sent}).encode())

    async def remaining(self) -> int:
        return int(await self._pool.fetchval("SELECT count(*) FROM pgqueuer"))


def _bytes(n: int) -> bytes:
    return json.dumps({"n": n}).encode()


class _PgQueuer(AsyncSide):
    @asynccontextmanager
    async def client(self, store: str) -> AsyncIterator[_Client]:
        async with asyncpg.create_pool(store, min_size=POOL, max_size=POOL) as pool:
            queries = Queries(AsyncpgPoolDriver(pool))
            if not await queries.has_table("pgqueuer"):
                await queries.install()
            alone = await asyncpg.connect(store)
            try:
                yield _Client(pool, queries, Queries(AsyncpgDriver(alone)))
            finally:
                await alone.close()

    @asynccontextmanager
    async def worker(self, store: str, tally: Tally) -> AsyncIterator[None]:
        async with asyncpg.create_pool(store, min_size=2, max_size=POOL) as pool:
            manager = QueueManager(Queries(AsyncpgPoolDriver(pool)))

            @manager.entrypoint("noop")
            async def noop(job: Job) -> None:
                json.loads(job.payload or b"")
                tally.ran += 1

            @manager.entrypoint("stamp")
            async def stamp(job: Job) -> None:
                tally.stamp(json.loads(job.payload or b"")["sent"])

            running = asyncio.create_task(manager.run(batch_size=BATCH))
            yield
            manager.shutdown.set()
            await running

    def settings(self, store: str) -> str:
        """Its versions and what it is told."""
        return f"{versions('pgqueuer', 'asyncpg')}; batch_size={BATCH}; single submits on a connection of their own"


_side = _PgQueuer()
submit, work, remaining, settings = _side.submit, _side.work, _side.remaining, _side.settings
