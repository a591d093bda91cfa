"""headrace as it comes: every acknowledged write on disk, a worker with its default concurrency, all its services."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Coroutine, Sequence
from importlib.metadata import version
from typing import Any, TypeVar

from bench.plan import WARM
from bench.profiling import profiled
from bench.sides import How
from bench.sides.asynchronous import Tally, report, run, submit_by, versions
from bench.wire import await_word, say
from headrace import App, Status, Task
from headrace.worker.process.loops import tune_process

__all__ = ["UVLOOP", "prune", "remaining", "settings", "submit", "work"]

LINES = 1000
UVLOOP = "HEADRACE_BENCH_UVLOOP"
"""The environment variable that has every loop be one of uvloop's, as the command ``headrace worker`` does."""
KEPT = 0.5
"""Seconds for which ended jobs are kept when it is time to prune."""
T = TypeVar("T")


class _Bench:
    """The App under test, with its tasks; it is a client as the sides know it."""

    def __init__(self, store: str, how: How = "fill") -> None:
        self.on_postgres = store.startswith("postgres")
        self.app = App(store if "://" in store else f"sqlite:///{store}")
        self.tally = Tally()

        @self.app.task
        async def noop(n: int) -> None:
            pass

        @self.app.task
        async def stamp(sent: float) -> None:
            self.tally.stamp(sent)

        self._noop: Task[[int], None] = self._other() if how == "fill-other" else noop
        self._stamp, self._how = stamp, how

    def _other(self) -> Task[[int], None]:
        """A task that no worker has."""

        @self.app.task
        async def other(n: int) -> None:
            pass

        return other

    async def one(self, n: int) -> None:
        await self._noop.submit(n)

    def submit_sync(self, count: int) -> float:
        """Submit one by one on this thread, without a loop; the seconds it took."""
        for n in range(WARM["sqlite"]):
            self._noop.submit_sync(n)
        say(begins=True)
        began = time.perf_counter()
        for n in range(count):
            self._noop.submit_sync(n)
        return time.perf_counter() - began

    async def many(self, numbers: Sequence[int]) -> None:
        if self._how == "fill-lines":
            await asyncio.gather(*(self._noop.options(queue=f"line-{n % LINES}").submit(n) for n in numbers))
        elif self._how == "fill-required":
            await self._noop.options(requires={"special": True}).map([(n,) for n in numbers])
        else:
            await self._noop.map([(n,) for n in numbers])

    async def stamp(self, sent: float) -> None:
        await self._stamp.submit(sent)

    async def remaining(self) -> int:
        stats = await self.app.stats.counts()
        return sum(count for status, count in stats.statuses.items() if status is not Status.COMPLETED)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """On uvloop where all others are, too, or where it is asked for."""
        return run(work) if self.on_postgres or os.environ.get(UVLOOP) else asyncio.run(work)


def submit(store: str, how: How, count: int, per_second: float) -> float:
    """Submit through the App, in this process."""
    bench = _Bench(store, how)
    if how == "sync":
        return bench.submit_sync(count)

    async def act() -> float:
        async with bench.app:
            return await submit_by(bench, how, count, per_second, WARM["postgres" if bench.on_postgres else "sqlite"])

    with profiled("submit"):
        return bench.run(act())


def work(store: str, threads: int) -> None:
    """Run a worker in this process; ``threads`` means nothing here."""
    bench = _Bench(store)

    async def act() -> None:
        async with bench.app:
            worker = bench.app.worker()
            tune_process()  # as the command ``headrace worker`` does
            say(ready=True)
            await asyncio.to_thread(await_word)
            async with worker:
                # ``done`` counts finishes the store has acknowledged.
                await report(lambda: worker.stats.done, bench.tally.waits)

    with profiled("work"):
        bench.run(act())


def remaining(store: str) -> int:
    """Ask the App."""
    bench = _Bench(store)

    async def act() -> int:
        async with bench.app:
            return await bench.remaining()

    return bench.run(act())


def prune(store: str) -> int:
    """Remove all jobs that have ended; how many."""
    os.environ["HEADRACE_RETENTION_COMPLETED"] = str(KEPT)
    bench = _Bench(store)

    async def act() -> int:
        await asyncio.sleep(2 * KEPT)
        async with bench.app:
            return await bench.app.store.prune()

    return bench.run(act())


def settings(store: str) -> str:
    """Versions, and what its own doctor finds in a new store."""
    bench = _Bench(store)

    async def act() -> dict[str, str]:
        async with bench.app:
            return {check.name: check.message for check in await bench.app.store.doctor()}

    found = bench.run(act())
    if bench.on_postgres:
        return f"{versions('headrace', 'asyncpg')}; as it comes"
    import apsw

    return (
        f"headrace {version('headrace')}, SQLite {apsw.sqlite_lib_version()} by apsw, {found.get('journal', '?')}, "
        f"synchronous {found.get('synchronous', '?')}"
    )
