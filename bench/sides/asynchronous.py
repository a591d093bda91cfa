"""What the sides that run on an event loop share: how they submit, work and answer."""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager
from importlib.metadata import version
from typing import Any, Protocol, TypeVar

import uvloop

from bench.pacing import gaps
from bench.plan import CHUNK, SUBMITTERS, WARM
from bench.sides import How
from bench.wire import TICK, await_word, say

__all__ = ["AsyncSide", "Client", "Tally", "report", "run", "submit_by", "versions"]

T = TypeVar("T")


class Client(Protocol):
    """A connected producer."""

    async def one(self, n: int) -> None:
        """Submit a job that does nothing, with a number as payload."""

    async def many(self, numbers: Sequence[int]) -> None:
        """Submit such jobs in one call, or as near to that as the side can."""

    async def stamp(self, sent: float) -> None:
        """Submit a job that carries the time of its submit."""

    async def remaining(self) -> int:
        """How many jobs are not over."""
        ...


class Tally:
    """What the handlers of a worker note."""

    def __init__(self) -> None:
        self.ran = 0
        self.waits: list[float] = []

    def stamp(self, sent: float) -> None:
        """A job that carries the time of its submit has begun."""
        self.waits.append(time.time() - sent)
        self.ran += 1


class AsyncSide(ABC):
    """A side with an asynchronous client and worker, on PostgreSQL."""

    @abstractmethod
    def client(self, store: str) -> AbstractAsyncContextManager[Client]:
        """Connect; create what is missing in the database."""

    @abstractmethod
    def worker(self, store: str, tally: Tally) -> AbstractAsyncContextManager[None]:
        """Work, beginning now, in the background; leaving stops in good order."""

    def submit(self, store: str, how: How, count: int, per_second: float) -> float:
        """Submit in this process."""
        return run(self._submit(store, how, count, per_second))

    async def _submit(self, store: str, how: How, count: int, per_second: float) -> float:
        async with self.client(store) as client:
            return await submit_by(client, how, count, per_second, WARM["postgres"])

    def work(self, store: str, threads: int) -> None:
        """Run a worker in this process; ``threads`` means nothing here."""
        run(self._work(store))

    async def _work(self, store: str) -> None:
        tally = Tally()
        say(ready=True)
        await asyncio.to_thread(await_word)
        async with self.worker(store, tally):
            await report(lambda: tally.ran, tally.waits)

    def remaining(self, store: str) -> int:
        """Ask the client."""

        async def ask() -> int:
            async with self.client(store) as client:
                return await client.remaining()

        return run(ask())


async def report(done: Callable[[], int], waits: Sequence[float]) -> None:
    """As ``wire.report``, on the loop."""
    word = asyncio.ensure_future(asyncio.to_thread(await_word))
    said = 0
    while not word.done():
        if (count := done()) != said:
            say(done=count, at=time.time())
            said = count
        await asyncio.wait([word], timeout=TICK)
    word.result()
    say(waits=list(waits))


async def submit_by(client: Client, how: How, count: int, per_second: float, warm: int) -> float:
    """Submit so many jobs in one way; the seconds it took, without the ``warm`` ones before a measurement."""
    if how in ("one", "concurrent", "bulk"):
        await _one_by_one(client, warm)
    say(begins=True)
    began = time.perf_counter()
    match how:
        case "one":
            await _one_by_one(client, count)
        case "concurrent":
            await asyncio.gather(*(_one_by_one(client, count // SUBMITTERS) for _ in range(SUBMITTERS)))
        case "bulk" | "fill" | "fill-other" | "fill-required" | "fill-lines":
            for first in range(0, count, CHUNK):
                await client.many(range(first, min(first + CHUNK, count)))
        case "paced":
            for gap in gaps(count, per_second):
                await asyncio.sleep(gap)
                await client.stamp(time.time())
    return time.perf_counter() - began


async def _one_by_one(client: Client, count: int) -> None:
    for n in range(count):
        await client.one(n)


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run on uvloop, as everybody recommends who cares for speed."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(work)


def versions(*packages: str) -> str:
    """The packages with their versions."""
    return ", ".join(f"{package} {version(package)}" for package in (*packages, "uvloop"))
