"""The bench of the suite: one open engine, a clock moved by hand, and short names for the usual steps."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, ClassVar, TypeVar
from uuid import UUID

import pytest
from msgspec.structs import replace

from headrace.core.attempt import Attempt, Completed, Ending, ErrorInfo, Event, Failed
from headrace.core.change import Applied, Change, Verdict
from headrace.core.defaults import Rules
from headrace.core.job import Job, Spec
from headrace.core.lifecycle import actions, execution, submission
from headrace.core.lifecycle.claim import ClaimRequest
from headrace.core.lifecycle.sweep import sweep
from headrace.core.matching.customers import Customers
from headrace.core.status import Reason, Status
from headrace.engine import (
    Claimed,
    Dead,
    Direct,
    Engine,
    InsertAnswer,
    Inserted,
    Overdue,
    Setting,
    Transactions,
    WorkerInfo,
)
from headrace.runtime.clock import SystemDice
from headrace.runtime.host import Host

__all__ = ["BEGIN", "OOPS", "Choices", "Lab", "Part", "opened"]

T = TypeVar("T")

BEGIN = datetime(2030, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)
"""When every test begins; odd to the microsecond, because records are exact to it."""

OOPS = ErrorInfo("Oops", "it broke")


class Lab:
    """One engine under test."""

    def __init__(self, make: Callable[[], Engine], host: Host, rules: Rules) -> None:
        self.make = make
        self.engine = make()
        self.host = host
        self.rules = rules
        self.now = BEGIN
        self._requests = 0

    # -- time and names

    def later(self, seconds: float) -> datetime:
        """Let time pass; return the new now."""
        self.now += timedelta(seconds=seconds)
        return self.now

    def at(self, seconds: float) -> datetime:
        """Return the moment so many seconds from now."""
        return self.now + timedelta(seconds=seconds)

    def new_id(self) -> UUID:
        """Return a new id."""
        return self.host.dice.new_id(self.now)

    @property
    def transactions(self) -> Transactions:
        """The transactions of the engine; one without them skips the test."""
        return self.engine.transactions or pytest.skip("the engine has no transactions")

    @property
    def direct(self) -> Direct:
        """The direct inserts of the engine; one without them skips the test."""
        return self.engine.direct or pytest.skip("the engine has no direct inserts")

    def sessions(self, n: int = 1) -> AbstractAsyncContextManager[tuple[Engine, ...]]:
        """Open so many other sessions on the store."""
        return opened(*(self.engine.another_session() for _ in range(n)))

    async def set(self, key: str, value: str | None, expect: int | None = None, act: Event | None = None) -> Setting:
        """Write a setting; without ``expect``: whatever it was."""
        documents = self.engine.documents
        if expect is None:
            expect = next((one.rev for one in await documents.settings(key) if one.key == key), 0)
        written = await documents.put_setting(key, value, expect, act)
        assert written is not None
        return written

    # -- inserting

    def job(
        self,
        task: str = "work",
        *,
        payload: str = "{}",
        delay: float = 0.0,
        not_after: float | None = None,
        waits: int = 0,
        pending: bool = False,
        **spec: Any,
    ) -> Job:
        """Return a job not yet inserted; ``delay`` and ``not_after`` in seconds from now, the rest as in ``Spec``."""
        return submission.submit(
            self.new_id(),
            Spec(task=task, created_at=self.now, **spec),
            payload,
            self.now,
            available_at=self.at(delay),
            not_after=None if not_after is None else self.at(not_after),
            waits=waits,
            pending=pending,
        )

    async def insert(self, *jobs: Job) -> list[InsertAnswer]:
        """Insert in one call."""
        return await self.engine.jobs.insert(jobs, self.now)

    async def put(self, task: str = "work", **options: Any) -> Job:
        """Store a job; options as of ``job``."""
        return (await self.put_all(self.job(task, **options)))[0]

    async def put_all(self, *jobs: Job) -> list[Job]:
        """Store the jobs; return them as stored."""
        stored = []
        for answer in await self.insert(*jobs):
            assert isinstance(answer, Inserted), answer
            stored.append(answer.job)
        return stored

    # -- workers

    async def worker(self, **info: Any) -> UUID:
        """Register a worker."""
        id = self.new_id()
        fields: dict[str, Any] = {"id": id, "host": "lab", "pid": 1, "started_at": self.now, "concurrency": 8}
        await self.engine.workers.register(WorkerInfo(**fields | info), self.now)
        return id

    async def ask(
        self,
        worker: UUID,
        n: int = 1000,
        *,
        free: int | None = None,
        tasks: tuple[str, ...] | None = None,
        queues: tuple[str, ...] | None = None,
        accept: bool = True,
        request: int | None = None,
        lead: float = 0.0,
        customers: Customers | None = None,
    ) -> Claimed | Dead:
        """Claim as this worker, for every profile of these tasks (None: of all)."""
        if request is None:
            self._requests += 1
            request = self._requests
        known = (await self.engine.documents.profiles()).profiles
        profiles = frozenset(profile.id for profile in known if tasks is None or profile.task in tasks)
        free = n if free is None else free
        wish = ClaimRequest(
            n=n, free=free, profiles=profiles, queues=queues, accept=accept, lead=lead, customers=customers
        )
        return await self.engine.jobs.claim(worker, wish, request, self.now)

    async def claim(self, worker: UUID, n: int = 1000, **options: Any) -> list[Job]:
        """Return the jobs that a living worker gets."""
        return list((await self.claimed(worker, n, **options)).jobs)

    async def claimed(self, worker: UUID, n: int = 1000, **options: Any) -> Claimed:
        """Return the reply to a claim of a living worker."""
        claimed = await self.ask(worker, n, **options)
        assert isinstance(claimed, Claimed), claimed
        return claimed

    async def held(self, worker: UUID, task: str = "work", *, accept: bool = True, **options: Any) -> Job:
        """Return a new job held by this worker; its task must have no other queued job."""
        job = await self.put(task, **options)
        taken = await self.claim(worker, 1, tasks=(task,), accept=accept)
        assert [one.id for one in taken] == [job.id]
        return taken[0]

    async def running(self, worker: UUID, task: str = "work", **options: Any) -> Job:
        """Return a new job that this worker has started."""
        return await self.start(await self.held(worker, task, **options))

    # -- changes

    async def apply(self, *changes: Change) -> list[Verdict]:
        """Apply in one call, each under a change id of its own."""
        return await self.engine.jobs.apply([self.stamp(change) for change in changes], self.now)

    def stamp(self, change: Change) -> Change:
        """Return the change with an id, as every writer must give it one."""
        return replace(change, id=self.host.dice.token())

    async def do(self, change: Change | None) -> Job:
        """Apply a change that must be applied; return the job it made, which must be what the store has now."""
        assert change is not None
        [verdict] = await self.apply(change)
        assert isinstance(verdict, Applied), verdict
        assert verdict.job == change.job
        assert await self.get(change.job) == change.job
        return change.job

    async def start(self, job: Job) -> Job:
        """Start a held job."""
        return await self.do(execution.start(job, self.now, self.rules))

    def end(self, job: Job, ending: Ending, *, chance: float = 0.5, started_at: datetime | None = None) -> Change:
        """Return the decision about a handler's ending."""
        return execution.finish(job, ending, self.now, chance, self.rules, started_at)

    async def finish(self, job: Job, ending: Ending | None = None) -> Job:
        """End a running job; completed by default."""
        return await self.do(self.end(job, ending or Completed()))

    async def cancel(self, job: Job) -> Job:
        """Cancel a job, or request it."""
        return await self.do(actions.cancel(job, self.now, self.rules))

    async def stand(self, status: Status, task: str, **options: Any) -> Job:
        """Return a new job that got this status by the verbs of the lifecycle; no other job has this task."""
        match status:
            case Status.PENDING:
                return await self.put(task, pending=True, **options)
            case Status.WAITING:
                return await self.put(task, waits=1, **options)
            case Status.SCHEDULED:
                return await self.put(task, delay=60, **options)
            case Status.QUEUED:
                return await self.put(task, **options)
            case Status.ASSIGNED | Status.ACCEPTED:
                return await self.held(await self.worker(), task, accept=status is Status.ACCEPTED, **options)
            case Status.RUNNING:
                return await self.running(await self.worker(), task, **options)
            case Status.CANCELLED:
                return await self.cancel(await self.put(task, **options))
        job = await self.running(await self.worker(), task, **options)
        endings: dict[Status, Ending] = {
            Status.COMPLETED: Completed('"done"'),
            Status.RETRYING: Failed(error=OOPS),
            Status.FAILED: Failed(error=OOPS, reason=Reason.NON_RETRYABLE),
        }
        return await self.finish(job, endings[status])

    async def sweep(self, found: Overdue) -> Job:
        """Sweep this job, as the sweeper would."""
        return await self.do(self.swept(found))

    def swept(self, found: Overdue) -> Change | None:
        """Return what the sweeper decides about this job."""
        return sweep(
            found.job,
            self.now,
            0.5,
            self.rules,
            alive=found.alive,
            unnamed=found.unnamed,
            heard_at=found.heard_at,
            beside_suspect=found.beside_suspect,
            mass_death=found.mass_death,
        )

    async def process_notes(self, limit: int = 1000) -> list[Change]:
        """Process notes until none are left; return the changes."""
        changes = list[Change]()
        for _ in range(100):
            processed = await self.engine.families.process_notes(self.now, limit)
            changes += processed.changes
            if not processed.more:
                return changes
        raise AssertionError("there are always more notes")

    # -- reading

    async def get(self, job: Job | UUID) -> Job:
        """Return a job that must exist."""
        [found] = await self.engine.jobs.get([job.id if isinstance(job, Job) else job])
        assert found is not None
        return found

    async def gone(self, job: Job) -> bool:
        """Return whether the job does not exist."""
        return await self.engine.jobs.get([job.id]) == [None]

    async def attempts(self, job: Job) -> list[Attempt]:
        """Return the attempts on record."""
        return list((await self.engine.records.history(job.id)).attempts)

    async def overdue(self) -> list[Job]:
        """Return the jobs that a sweeper would find now."""
        return [found.job for found in (await self.engine.jobs.overdue(self.now)).jobs]


@asynccontextmanager
async def opened(*engines: Engine) -> AsyncIterator[tuple[Engine, ...]]:
    """Open the engines; close them at the end."""
    for engine in engines:
        await engine.open()
    try:
        yield engines
    finally:
        for engine in engines:
            await engine.close()


class Choices:
    """Chooses at random, the same for the same seed."""

    def __init__(self, seed: int) -> None:
        self._dice = SystemDice(seed)

    def __call__(self, *options: T) -> T:
        """Return one of them."""
        return options[int(self._dice.chance() * len(options))]


class Part:
    """A part of the suite. Its tests are coroutines that take a ``Lab``, and new workers as parameters of type
    ``UUID``; pytest sees plain functions."""

    durable: ClassVar[bool] = True
    """Whether another engine object on the same place finds the same store."""

    def engine(self, rules: Rules, host: Host, place: Path) -> Engine:
        """Return an engine, not opened, on the store of this place; a new place is an empty store."""
        raise NotImplementedError

    def lab(self, place: Path, rules: Rules | None = None) -> Lab:
        """Return a bench with an engine made for this place."""
        chosen = rules or Rules()
        host = Host(dice=SystemDice(1))
        return Lab(lambda: self.engine(chosen, host, place), host, chosen)

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for name, value in list(vars(cls).items()):
            if name.startswith("test_") and inspect.iscoroutinefunction(value):
                setattr(cls, name, _plain(value))


def _plain(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Return the test as a function for any pytest: it opens the engine, runs the coroutine, closes the engine."""

    async def bench(self: Part, place: Path, given: dict[str, Any]) -> None:
        lab = self.lab(place)
        await lab.engine.open()
        try:
            await test(self, lab, **given, **{name: await lab.worker() for name in workers})
        finally:
            await lab.engine.close()  # the one that the test has by then

    def run(self: Part, tmp_path: Path, **given: Any) -> None:
        asyncio.run(bench(self, tmp_path, given))

    signature = inspect.signature(test)
    own, _, *others = signature.parameters.values()
    workers = [parameter.name for parameter in others if parameter.annotation == "UUID"]
    given = [parameter for parameter in others if parameter.name not in workers]
    place = inspect.Parameter("tmp_path", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=Path)
    run.__signature__ = signature.replace(parameters=[own, place, *given])  # type: ignore[attr-defined]
    run.__name__, run.__qualname__, run.__doc__ = test.__name__, test.__qualname__, test.__doc__
    run.__module__ = test.__module__
    run.__dict__.update(test.__dict__)  # marks, such as parametrize
    return run
