"""procrastinate; it keeps ended jobs and their events, and no results."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import procrastinate

from bench.plan import POOL
from bench.sides.asynchronous import AsyncSide, Tally, versions

__all__ = ["remaining", "settings", "submit", "work"]

CONCURRENCY = 100


class _Client:
    def __init__(self, app: procrastinate.App, noop: Any, stamp: Any) -> None:
        self._app, self._noop, self._stamp = app, noop, stamp

    async def one(self, n: int) -> None:
        await self._noop.defer_async(n=n)

    async def many(self, numbers: Sequence[int]) -> None:
        await self._noop.batch_defer_async(*({"n": n} for n in numbers))

    async def stamp(self, sent: float) -> None:
        await self._stamp.defer_async(sent=sent)

    async def remaining(self) -> int:
        found = await self._app.connector.execute_query_one_async(
            "SELECT count(*) AS count FROM procrastinate_jobs WHERE status IN ('todo', 'doing')"
        )
        return int(found["count"])


def _app(store: str, tally: Tally) -> tuple[procrastinate.App, Any, Any]:
    app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=store, min_size=2, max_size=POOL))

    @app.task(name="noop")
    async def noop(n: int) -> None:
        tally.ran += 1

    @app.task(name="stamp")
    async def stamp(sent: float) -> None:
        tally.stamp(sent)

    return app, noop, stamp


class _Procrastinate(AsyncSide):
    @asynccontextmanager
    async def client(self, store: str) -> AsyncIterator[_Client]:
        app, noop, stamp = _app(store, Tally())
        async with app.open_async():
            if not await app.check_connection_async():
                await app.schema_manager.apply_schema_async()
            yield _Client(app, noop, stamp)

    @asynccontextmanager
    async def worker(self, store: str, tally: Tally) -> AsyncIterator[None]:
        app, _, _ = _app(store, tally)
        async with app.open_async():
            running = asyncio.create_task(app.run_worker_async(concurrency=CONCURRENCY, install_signal_handlers=False))
            yield
            running.cancel()
            await asyncio.wait([running])

    def settings(self, store: str) -> str:
        """Its versions and what it is told."""
        return f"{versions('procrastinate', 'psycopg')}; concurrency={CONCURRENCY}, pool of {POOL}"


_side = _Procrastinate()
submit, work, remaining, settings = _side.submit, _side.work, _side.remaining, _side.settings
