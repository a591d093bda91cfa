"""headrace on SQLite, as it comes: synchronous FULL, a worker with its default concurrency, all its services."""

from __future__ import annotations

import asyncio
import time
from importlib.metadata import version
from pathlib import Path

import apsw

from bench.pacing import gaps
from bench.plan import CHUNK, SUBMITTERS, WARM
from bench.profiling import profiled
from bench.sides import How
from bench.wire import await_word, say
from headrace import App, Status, Task
from headrace.worker.tuning import tune_process

__all__ = ["remaining", "settings", "submit", "work"]


class _Bench:
    """The App under test, with its tasks."""

    def __init__(self, path: Path) -> None:
        self.app = App(f"sqlite:///{path}")
        self.waits: list[float] = []

        @self.app.task
        async def noop(n: int) -> None:
            pass

        @self.app.task
        async def stamp(sent: float) -> None:
            self.waits.append(time.time() - sent)

        self.noop, self.stamp = noop, stamp

    def other(self) -> Task[[int], None]:
        """A task that no worker has."""

        @self.app.task
        async def other(n: int) -> None:
            pass

        return other


def submit(path: Path, how: How, count: int, per_second: float) -> float:
    """Submit through the App, in this process."""
    with profiled("submit"):
        return asyncio.run(_submit(_Bench(path), how, count, per_second))


async def _submit(bench: _Bench, how: How, count: int, per_second: float) -> float:
    task = bench.other() if how == "fill-other" else bench.noop
    async with bench.app:
        if how in ("one", "concurrent", "bulk"):
            await _one_by_one(task, WARM)
        began = time.perf_counter()
        match how:
            case "one":
                await _one_by_one(task, count)
            case "concurrent":
                await asyncio.gather(*(_one_by_one(task, count // SUBMITTERS) for _ in range(SUBMITTERS)))
            case "bulk" | "fill" | "fill-other":
                for first in range(0, count, CHUNK):
                    await task.map([(n,) for n in range(first, min(first + CHUNK, count))])
            case "paced":
                for gap in gaps(count, per_second):
                    await asyncio.sleep(gap)
                    await bench.stamp.submit(time.time())
        return time.perf_counter() - began


async def _one_by_one(task: Task[[int], None], count: int) -> None:
    for n in range(count):
        await task.submit(n)


def work(path: Path, count: int, threads: int) -> None:
    """Run a worker in this process; ``threads`` means nothing here."""
    with profiled("work"):
        asyncio.run(_work(_Bench(path), count))


async def _work(bench: _Bench, count: int) -> None:
    async with bench.app:
        worker = bench.app.worker()
        tune_process()  # as the command ``headrace worker`` does
        say(ready=True)
        await asyncio.to_thread(await_word)
        began = time.perf_counter()
        async with worker:
            # ``done`` counts finishes the store has acknowledged.
            while worker.stats.done < count:  # noqa: ASYNC110 — a worker has no event for this
                await asyncio.sleep(0.005)
            say(seconds=time.perf_counter() - began, waits=bench.waits)
            await asyncio.to_thread(await_word)


def remaining(path: Path) -> int:
    """Ask the App."""

    async def ask(app: App) -> int:
        async with app:
            stats = await app.stats()
        return sum(count for status, count in stats.statuses.items() if status is not Status.COMPLETED)

    return asyncio.run(ask(_Bench(path).app))


def settings(path: Path) -> str:
    """Versions, and what its own doctor finds in a new store."""

    async def ask(app: App) -> dict[str, str]:
        async with app:
            return {check.name: check.message for check in await app.doctor()}

    found = asyncio.run(ask(_Bench(path).app))
    return (
        f"headrace {version('headrace')}, SQLite {apsw.sqlite_lib_version()} by apsw, {found.get('journal', '?')}, "
        f"synchronous FULL ({found.get('synchronous', '?')})"
    )
