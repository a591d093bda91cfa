"""The ceiling: the SQL a durable queue cannot do without, in batches, with no framework around it.

It keeps what headrace keeps (id, payload, times, owner, epoch, result, attempt), waits for the disk like headrace, and
checks nothing else. A worker claims on one connection and finishes on another.
"""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import asyncpg

from bench.plan import CHUNK, RAW_BATCH, SUBMITTERS
from bench.sides import How
from bench.sides.asynchronous import AsyncSide, Tally, versions

__all__ = ["remaining", "settings", "submit", "work"]

_SCHEMA = """
CREATE TABLE IF NOT EXISTS jobs (
  id uuid PRIMARY KEY, task text NOT NULL, status smallint NOT NULL, rank integer NOT NULL, seq bigint NOT NULL
  GENERATED ALWAYS AS IDENTITY, arrived_at bigint NOT NULL, epoch integer NOT NULL DEFAULT 0, worker text,
  started_at bigint, finished_at bigint, payload text NOT NULL, result text, attempt text
);
CREATE INDEX IF NOT EXISTS ready ON jobs (rank, arrived_at, seq) WHERE status = 0;
"""
_INSERT = """
INSERT INTO jobs (id, task, status, rank, arrived_at, payload)
SELECT id, 'noop', 0, 0, $2, payload FROM unnest($1::uuid[], $3::text[]) AS new (id, payload)
"""
_CLAIM = """
UPDATE jobs SET status = 1, epoch = epoch + 1, worker = 'w', started_at = $1
WHERE id = ANY(ARRAY(
  SELECT id FROM jobs WHERE status = 0 ORDER BY rank, arrived_at, seq LIMIT $2 FOR UPDATE SKIP LOCKED
))
RETURNING id, epoch, payload
"""
_FINISH = """
UPDATE jobs SET status = 2, result = 'null', finished_at = $3, attempt = done.attempt
FROM unnest($1::uuid[], $2::integer[], $4::text[]) AS done (id, epoch, attempt)
WHERE jobs.id = done.id AND jobs.epoch = done.epoch AND jobs.status = 1
"""
# A plan made for an empty table must not be kept for a full one.
_CONNECTION = {"plan_cache_mode": "force_custom_plan"}


def _now() -> int:
    return time.time_ns() // 1000


class _Client:
    """Submits in commits of one, of as many as there are submitters, or of a bulk submit's size."""

    def __init__(self, connection: asyncpg.Connection) -> None:
        self._connection = connection

    async def one(self, n: int) -> None:
        await self.many([n])

    async def many(self, numbers: Sequence[int]) -> None:
        payloads = [json.dumps({"n": n}) for n in numbers]
        await self._connection.execute(_INSERT, [uuid.uuid4() for _ in numbers], _now(), payloads)

    async def stamp(self, sent: float) -> None:
        raise NotImplementedError("nobody wakes a raw worker")

    async def remaining(self) -> int:
        return int(await self._connection.fetchval("SELECT count(*) FROM jobs WHERE status <> 2"))


class _Raw(AsyncSide):
    @asynccontextmanager
    async def client(self, store: str) -> AsyncIterator[_Client]:
        connection = await asyncpg.connect(store, server_settings=_CONNECTION)
        try:
            await connection.execute(_SCHEMA)
            yield _Client(connection)
        finally:
            await connection.close()

    async def _submit(self, store: str, how: How, count: int, per_second: float) -> float:
        if how != "concurrent":
            return await super()._submit(store, how, count, per_second)
        # No framework, no submitters: what they would share at best is a commit.
        async with self.client(store) as client:
            began = time.perf_counter()
            for first in range(0, count, SUBMITTERS):
                await client.many(range(first, first + SUBMITTERS))
            return time.perf_counter() - began

    @asynccontextmanager
    async def worker(self, store: str, tally: Tally) -> AsyncIterator[None]:
        claims = await asyncpg.connect(store, server_settings=_CONNECTION)
        finishes = await asyncpg.connect(store, server_settings=_CONNECTION)
        batches: asyncio.Queue[list[asyncpg.Record]] = asyncio.Queue(2)

        async def claim() -> None:
            while True:
                if found := await claims.fetch(_CLAIM, _now(), RAW_BATCH):
                    await batches.put(found)
                else:
                    await asyncio.sleep(0.01)

        async def finish() -> None:
            while True:
                batch = await batches.get()
                for job in batch:
                    json.loads(job["payload"])
                attempts = [json.dumps({"outcome": "completed", "started_at": _now()}) for _ in batch]
                await finishes.execute(
                    _FINISH, [job["id"] for job in batch], [job["epoch"] for job in batch], _now(), attempts
                )
                tally.ran += len(batch)

        running = [asyncio.create_task(claim()), asyncio.create_task(finish())]
        yield
        for task in running:
            task.cancel()
        await asyncio.wait(running)
        await claims.close()
        await finishes.close()

    def settings(self, store: str) -> str:
        """Its versions and what it does."""
        return (
            f"{versions('asyncpg')}; inserts in commits of 1, {SUBMITTERS}, {CHUNK}; "
            f"drain in claims and finishes of {RAW_BATCH} on a connection each"
        )


_side = _Raw()
submit, work, remaining, settings = _side.submit, _side.work, _side.remaining, _side.settings
