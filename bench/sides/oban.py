"""oban for Python; it keeps ended jobs for a day, and results only if a handler asks for it. It needs Python 3.12."""

from __future__ import annotations

import importlib
import platform
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from bench.plan import POOL
from bench.sides.asynchronous import AsyncSide, Tally, versions

__all__ = ["remaining", "settings", "submit", "work"]

LIMIT = 100

# Not installed where Python is too old for it, and not seen by type checkers there.
_oban: Any = importlib.import_module("oban")
_schema: Any = importlib.import_module("oban.schema")


class _Client:
    def __init__(self, pool: Any, oban: Any, noop: Any, stamp: Any) -> None:
        self._pool, self._oban, self._noop, self._stamp = pool, oban, noop, stamp

    async def one(self, n: int) -> None:
        await self._oban.enqueue(self._noop.new({"n": n}))

    async def many(self, numbers: Sequence[int]) -> None:
        await self._oban.enqueue_many([self._noop.new({"n": n}) for n in numbers])

    async def stamp(self, sent: float) -> None:
        await self._oban.enqueue(self._stamp.new({"sent": sent}))

    async def remaining(self) -> int:
        async with self._pool.connection() as connection:
            rows = await connection.execute("SELECT count(*) FROM oban_jobs WHERE state <> 'completed'")
            (count,) = await rows.fetchone()
        return int(count)


def _workers(tally: Tally) -> tuple[Any, Any]:
    @_oban.worker(queue="default")
    class Noop:
        async def process(self, job: Any) -> None:
            tally.ran += 1

    @_oban.worker(queue="default")
    class Stamp:
        async def process(self, job: Any) -> None:
            tally.stamp(job.args["sent"])

    return Noop, Stamp


class _Oban(AsyncSide):
    @asynccontextmanager
    async def client(self, store: str) -> AsyncIterator[_Client]:
        noop, stamp = _workers(Tally())
        pool = await _oban.Oban.create_pool(store, min_size=2, max_size=POOL)
        try:
            async with pool.connection() as connection:
                found = await (await connection.execute("SELECT to_regclass('oban_jobs')::text")).fetchone()
            if found[0] is None:
                await _schema.install(pool)
            async with _oban.Oban(pool=pool) as oban:
                yield _Client(pool, oban, noop, stamp)
        finally:
            await pool.close()

    @asynccontextmanager
    async def worker(self, store: str, tally: Tally) -> AsyncIterator[None]:
        _workers(tally)
        pool = await _oban.Oban.create_pool(store, min_size=2, max_size=POOL)
        try:
            async with _oban.Oban(pool=pool, queues={"default": LIMIT}):
                yield
        finally:
            await pool.close()

    def settings(self, store: str) -> str:
        """Its versions and what it is told."""
        python = platform.python_version()
        return f"{versions('oban', 'psycopg')}, CPython {python}; limit {LIMIT} on the queue, pool of {POOL}"


_side = _Oban()
submit, work, remaining, settings = _side.submit, _side.work, _side.remaining, _side.settings
