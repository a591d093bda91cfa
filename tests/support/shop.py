"""A store with workers in it, in real time but with short leases: for tests of the worker itself."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import msgspec

from headrace.core.attempt import History
from headrace.core.defaults import Rules
from headrace.core.job import Job, Spec
from headrace.core.lifecycle import actions
from headrace.core.lifecycle.retry import Retry
from headrace.core.lifecycle.submission import submit
from headrace.core.status import Status
from headrace.engine import Engine
from headrace.engines.memory import MemoryEngine
from headrace.maintenance import services
from headrace.runtime.host import Host
from headrace.runtime.writes.writer import Writer
from headrace.worker.handler import Handler
from headrace.worker.worker import Worker
from tests.support.servers.schemas import postgres_engine
from tests.support.sqlite_files import new_store
from tests.support.until import until

ENGINES = ("memory", "sqlite", "postgres")

QUICK = Rules(beat=0.5, lease=1.5, accept=5.0, start=5.0, cancel_grace=0.3, timeout_slack=1.0)
"""Beats and leases short enough to watch, and not so short that a loop is taken for blocked on a busy machine."""

NO_WAIT = Retry(3, backoff="fixed", initial=0.0, jitter=False)


class Shop:
    """One session on a store, the handlers it knows, and shorthands."""

    def __init__(self, engine: Engine, host: Host) -> None:
        self.engine, self.host = engine, host
        self.writer = Writer(engine, host)
        self.handlers: dict[str, Handler] = {}

    def task(self, fn: Callable[..., Any], **options: Any) -> Callable[..., Any]:
        """Register a handler."""
        handler = Handler(fn, **options)
        self.handlers[handler.name] = handler
        return fn

    def worker(self, *, maintain: bool = False, engine: Engine | None = None, **options: Any) -> Worker:
        """A worker of all handlers; with ``maintain`` it also sweeps, prunes and plans."""
        store = engine or self.engine
        writer = self.writer if engine is None else Writer(engine, self.host)
        if maintain:
            options["services"] = lambda holder, ended: services(store, writer, self.host, holder, ended=ended)
        return Worker(store, self.handlers, host=self.host, writer=writer, **options)

    def job(self, task: str, *, delay: float = 0.0, not_after: float | None = None, **spec: Any) -> Job:
        """A job to be inserted; ``payload`` is its arguments."""
        now = self.host.clock.now()
        payload = msgspec.json.encode(spec.pop("payload", {})).decode()
        due = now + timedelta(seconds=delay)
        last = None if not_after is None else now + timedelta(seconds=not_after)
        made = Spec(task=task, created_at=now, **({"retry": NO_WAIT} | spec))
        return submit(self.host.dice.new_id(now), made, payload, now, available_at=due, not_after=last)

    async def submit(self, task: str, **options: Any) -> UUID:
        """Insert one job; its id."""
        job = self.job(task, **options)
        await self.writer.inserts.insert(job)
        return job.id

    async def submit_many(self, task: str, n: int, **options: Any) -> list[UUID]:
        """Insert n jobs at once; their ids."""
        jobs = [self.job(task, **options) for _ in range(n)]
        await self.writer.inserts.insert_many(jobs)
        return [job.id for job in jobs]

    async def get(self, id: UUID) -> Job:
        """The job as it stands."""
        (job,) = await self.engine.jobs.get([id])
        assert job is not None
        return job

    async def history(self, id: UUID) -> History:
        """Its attempts and events."""
        return await self.engine.records.history(id)

    async def outcomes(self, id: UUID) -> list[str]:
        """The outcomes of its attempts, oldest first."""
        return [attempt.outcome.value for attempt in (await self.history(id)).attempts]

    async def cancel(self, id: UUID) -> Job:
        """Ask for its end."""
        rules = self.engine.rules
        return await self.writer.decide(id, lambda job, now: actions.cancel(job, now, rules))

    async def bury(self, worker: UUID) -> None:
        """Have a worker declared dead, however often it beats meanwhile."""

        async def buried() -> bool:
            beats = [row.beats for row in await self.engine.workers.list() if row.info.id == worker]
            return await self.engine.workers.bury(worker, beats[0])

        await until(buried, what=f"worker {worker} buried")

    async def ended(self, id: UUID, *, within: float = 45.0) -> Job:
        """The job once it ended."""
        await until(lambda: self._has(id, lambda job: job.ended), within=within, what=f"job {id} ended")
        return await self.get(id)

    async def reaches(self, id: UUID, status: Status, *, within: float = 45.0) -> Job:
        """The job once it is in a status."""
        await until(lambda: self._has(id, lambda job: job.status is status), within=within, what=f"job {id} {status}")
        return await self.get(id)

    async def all_ended(self, ids: Sequence[UUID], *, within: float = 60.0) -> list[Job]:
        """The jobs once all of them ended."""

        async def check() -> bool:
            return all(job is not None and job.ended for job in await self.engine.jobs.get(ids))

        await until(check, within=within, what=f"{len(ids)} jobs ended")
        return [job for job in await self.engine.jobs.get(ids) if job is not None]

    async def _has(self, id: UUID, check: Callable[[Job], bool]) -> bool:
        return check(await self.get(id))


def make_engine(kind: str, folder: Path, rules: Rules = QUICK, host: Host | None = None) -> Engine:
    """An engine of the kind, not yet open."""
    host = host or Host()
    if kind == "memory":
        return MemoryEngine(rules, host)
    if kind == "postgres":
        return postgres_engine(rules, host, folder)
    from headrace.engines.sqlite import SqliteEngine

    return SqliteEngine(new_store(folder / "jobs.db"), rules=rules, host=host)


@asynccontextmanager
async def open_shop(kind: str, folder: Path, rules: Rules = QUICK) -> AsyncIterator[Shop]:
    """A shop on a fresh store."""
    host = Host()
    engine = make_engine(kind, folder, rules, host)
    await engine.open()
    shop = Shop(engine, host)
    try:
        yield shop
    finally:
        await shop.writer.close()
        await engine.close()
