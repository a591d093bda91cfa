"""A memory store under a clock that tests move by hand, with workers played by the test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any
from uuid import UUID

from headrace.core.attempt import Completed
from headrace.core.change import Applied
from headrace.core.defaults import Rules
from headrace.core.job import Job, Spec
from headrace.core.lifecycle.claim import ClaimRequest
from headrace.core.lifecycle.execution import finish, start
from headrace.core.lifecycle.submission import submit
from headrace.engine import Alive, Beat, Claimed, Dead, WorkerInfo
from headrace.engines.memory import MemoryEngine
from headrace.engines.memory.documents import Documents
from headrace.engines.memory.entries import Entries
from headrace.engines.memory.families import Families
from headrace.engines.memory.jobs import Jobs
from headrace.engines.memory.records import Records
from headrace.engines.memory.workers import Workers
from headrace.errors import Unavailable
from headrace.runtime.clock import SystemDice
from headrace.runtime.host import Host
from headrace.runtime.writes.writer import Writer
from headrace.testing.clock import FakeClock


class SimHost(Host):
    """A host on which waiting moves the clock instead of taking time; ``until`` ends the services at a moment."""

    clock: FakeClock

    def __init__(self, clock: FakeClock, seed: int = 1) -> None:
        super().__init__(clock, SystemDice(seed))
        self.waits: list[float] = []
        self.until: Callable[[], bool] = lambda: False
        self.stops: list[asyncio.Event] = []

    async def sleep(self, seconds: float) -> None:
        self.clock.advance(seconds)
        await asyncio.sleep(0)

    async def wait(self, event: asyncio.Event, seconds: float | None) -> bool:
        await asyncio.sleep(0)  # hints are delivered between two turns of the loop
        if event.is_set():
            return True
        assert seconds is not None
        self.waits.append(seconds)
        self.clock.advance(max(seconds, 0.001))
        await asyncio.sleep(0)
        if self.until():
            for stop in self.stops:
                stop.set()
        return event.is_set()


class ShakyEngine(MemoryEngine):
    """A memory engine that can hang (the clock moves on during a call) or be away."""

    def __init__(self, rules: Rules, host: Host, shared: Any = None) -> None:
        super().__init__(rules, host, shared)
        self._reach, self._session.state = self._session.state, self._shaky  # type: ignore[method-assign]
        self.jobs, self.records, self.entries = Jobs(self._session), Records(self._session), Entries(self._session)
        self.families, self.workers = Families(self._session), Workers(self._session)
        self.documents = Documents(self._session)
        self.hang: float = 0.0
        self.away = False
        self.between: Callable[[], None] | None = None
        """Called once, inside the next call, before the store sees it."""

    def _shaky(self) -> Any:
        if self.hang:
            assert isinstance(self._host.clock, FakeClock)
            seconds, self.hang = self.hang, 0.0
            self._host.clock.advance(seconds)
        if self.between is not None:
            act, self.between = self.between, None
            act()
        if self.away:
            raise Unavailable("the store is away")
        return self._reach()


class Player:
    """A worker whose every move the test makes."""

    def __init__(self, world: World, id: UUID) -> None:
        self.world, self.id = world, id
        self.held: dict[UUID, Job] = {}

    async def claim(self, n: int = 1, *, accept: bool = True) -> list[Job]:
        engine, host = self.world.engine, self.world.host
        profiles = frozenset(profile.id for profile in (await engine.documents.profiles()).profiles)
        ask = ClaimRequest(n=n, free=n, profiles=profiles, accept=accept)
        answer = await engine.jobs.claim(self.id, ask, host.dice.token(), host.clock.now())
        assert isinstance(answer, Claimed)
        self.held |= {job.id: job for job in answer.jobs}
        return list(answer.jobs)

    async def start(self, job: Job) -> Job:
        world = self.world
        verdict = await world.writer.apply(start(job, world.host.clock.now(), world.engine.rules))
        assert isinstance(verdict, Applied)
        self.held[job.id] = verdict.job
        return verdict.job

    async def run(self) -> Job:
        """Claim one job and start it."""
        (job,) = await self.claim()
        return await self.start(job)

    async def complete(self, job: Job) -> object:
        world = self.world
        self.held.pop(job.id, None)
        return await world.writer.apply(finish(job, Completed("1"), world.host.clock.now(), 0.5, world.engine.rules))

    async def beat(self) -> Alive | Dead:
        return await self.world.engine.workers.beat(self.id, Beat(held=tuple(self.held)), self.world.host.clock.now())


class World:
    """An open store with everything a duty needs."""

    def __init__(self, engine: ShakyEngine, host: SimHost) -> None:
        self.engine, self.host, self.clock = engine, host, host.clock
        self.writer = Writer(engine, host, timeout=0.0)

    @property
    def now(self) -> datetime:
        return self.clock.now()

    async def submit(self, task: str = "work", *, available_at: datetime | None = None, **options: Any) -> Job:
        not_after = options.pop("not_after", None)
        spec = Spec(task=task, created_at=self.now, **options)
        id = self.host.dice.new_id(self.now)
        job = submit(id, spec, "{}", self.now, available_at=available_at, not_after=not_after)
        return (await self.writer.inserts.insert(job)).job

    async def worker(self) -> Player:
        id = self.host.dice.new_id(self.now)
        info = WorkerInfo(id=id, host="here", pid=1, started_at=self.now, concurrency=10, tasks=("work",))
        await self.engine.workers.register(info, self.now)
        return Player(self, id)

    async def job(self, job: Job) -> Job:
        (found,) = await self.engine.jobs.get([job.id])
        assert found is not None
        return found

    async def alive(self) -> set[UUID]:
        return {row.info.id for row in await self.engine.workers.list() if row.alive}

    def holder(self) -> UUID:
        return self.host.dice.new_id(self.now)


@asynccontextmanager
async def world(rules: Rules | None = None, now: datetime | None = None) -> AsyncIterator[World]:
    """A world for the length of a test."""
    host = SimHost(FakeClock(now))
    engine = ShakyEngine(rules or Rules(), host)
    await engine.open()
    made = World(engine, host)
    try:
        yield made
    finally:
        engine.away = False
        await made.writer.close()
        await engine.close()
