"""The user's own app under test: a memory store, a clock that moves by hand, and no worker but the test itself."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, ParamSpec, Self, TypeVar, overload
from uuid import UUID

import msgspec

from headrace.app import App
from headrace.client.handle import JobHandle
from headrace.client.task import Task
from headrace.core.job import Job
from headrace.engine import InsertAnswer, Inserted, Refused
from headrace.errors import JobNotFound
from headrace.maintenance import Planner, Sweeper
from headrace.testing.clock import FakeClock
from headrace.testing.inline_worker import Inline
from headrace.testing.transactions import HarnessTransactions
from headrace.worker.handler import Handler

__all__ = ["Harness", "harness"]

P = ParamSpec("P")
T = TypeVar("T")

_MAX_SHOWN_JOBS = 20


def harness(app: App, *, now: datetime | None = None, inline: bool = False) -> Harness:
    """Return an async context manager in which ``app`` runs on a memory store and a fake clock that starts at ``now``.

    Jobs wait until ``drain`` or ``advance`` runs them; with ``inline`` a job that is due runs before its submit
    returns.
    """
    return Harness(app, FakeClock(now), inline=inline)


class Harness:
    """An App under test: see what was submitted, run jobs, move the clock."""

    def __init__(self, app: App, clock: FakeClock, *, inline: bool = False) -> None:
        self.app, self.clock = app, clock
        self._inline = inline
        self._submitted: dict[UUID, Job] = {}
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            stack.enter_context(self.app.override(url="memory://", clock=self.clock))
            await stack.enter_async_context(self.app)
            app, engine, writer, host = self.app, self.app.session.engine, self.app.session.writer, self.app.host
            self._runner = Inline(engine, writer, host, lambda: app._handlers, app._resources)
            stack.callback(self._runner.close)
            stack.push_async_callback(self._runner.resources.close)
            await self._runner.resources.open()
            stack.callback(setattr, app, "_waiter", None)
            app._waiter = self._runner.waiter()
            self._planner = Planner(engine, writer, host, self._runner.id)
            self._sweeper = Sweeper(engine, writer, host, self._runner.id)
            await self._runner.register()
            await app.tasks.announce()
            self._record()
            self._transactions = HarnessTransactions(engine, self._committed)
            vars(engine).update(transactions=self._transactions)
            stack.push_async_callback(self._transactions.close)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    def _record(self) -> None:
        """Record every job that is stored, by any path; store and writer are new each time the app is entered.

        Jobs are recorded at the store, where the jobs of batches and what follows their end pass, too. With ``inline``
        jobs run at the writer after the submit: at the store they would wait for themselves.
        """
        engine, submits = self.app.session.engine, self.app.session.writer.inserts
        insert, settle = engine.jobs.insert, engine.families.settle

        async def inserted(jobs: Sequence[Job], *args: Any, **kwargs: Any) -> list[InsertAnswer]:
            answers = await insert(jobs, *args, **kwargs)
            self._keep([answer.job for answer in answers if isinstance(answer, Inserted)])
            return answers

        async def settled(batch: UUID, now: datetime, jobs: Sequence[Job] = ()) -> Refused | None:
            refused = await settle(batch, now, jobs)
            self._keep([job for job in await engine.jobs.get([job.id for job in jobs]) if job is not None])
            return refused

        vars(engine.jobs).update(insert=inserted)
        vars(engine.families).update(settle=settled)
        if self._inline:
            names = ("insert", "insert_many", "insert_batch")
            vars(submits).update({name: self._drained(getattr(submits, name)) for name in names})

    async def _committed(self, jobs: Sequence[Job]) -> None:
        """Go on after a commit of the user: the jobs are stored."""
        self._keep([job for job in await self.app.session.engine.jobs.get([job.id for job in jobs]) if job is not None])
        if self._inline:
            await self._runner.drain()

    def _keep(self, jobs: Sequence[Job]) -> None:
        for job in jobs:
            self._submitted.setdefault(job.id, job)

    def _drained(self, store: Callable[P, Awaitable[T]]) -> Callable[P, Awaitable[T]]:
        async def submit(*args: P.args, **kwargs: P.kwargs) -> T:
            answer = await store(*args, **kwargs)
            await self._runner.drain()
            return answer

        return submit

    # -- reading

    @property
    def now(self) -> datetime:
        """The time of the clock."""
        return self.clock.now()

    @property
    def submitted(self) -> list[Job]:
        """Every job submitted so far, in order, as it was then: by the test or a handler, alone, in a batch or graph,
        by a schedule, or because a batch ended."""
        self._transactions.settle()
        return list(self._submitted.values())

    async def job(self, job: JobHandle[Any] | Job | UUID) -> Job:
        """Return the job as it is now; :raises JobNotFound:"""
        id = job if isinstance(job, UUID) else job.id
        self._transactions.settle()
        (found,) = await self.app.session.engine.jobs.get([id])
        if found is None:
            raise JobNotFound(id)
        return found

    @overload
    def assert_submitted(self, task: Task[..., Any]) -> Job: ...
    @overload
    def assert_submitted(self, task: Task[P, Any], *args: P.args, **kwargs: P.kwargs) -> Job: ...

    def assert_submitted(self, task: Task[..., Any], *args: Any, **kwargs: Any) -> Job:
        """Assert that a job of this task was submitted, with any arguments if none are given, or with these; return the
        last such job, as it was then. Of arguments those left out count as their defaults, on both sides."""
        __tracebackhide__ = True  # a test runner shows the line of the test instead
        handler = task.handler
        if not args and not kwargs:
            if found := self._of(handler):
                return found[-1]
            raise AssertionError(f"not submitted: {handler.name}\n{self._listed()}")
        expected = _arguments(handler, handler.encode(args, kwargs))
        for job in reversed(self._of(handler)):
            if _arguments(handler, job.payload_text) == expected:
                return job
        raise AssertionError(f"not submitted: {_call(handler.name, expected)}\n{self._listed()}")

    def assert_not_submitted(self, task: Task[..., Any]) -> None:
        """Assert that no job of this task was submitted."""
        __tracebackhide__ = True
        if found := self._of(task.handler):
            raise AssertionError(f"{task.name} was submitted {len(found)} times\n{self._listed()}")

    def _of(self, handler: Handler) -> list[Job]:
        names = {handler.name, *handler.aliases}
        return [job for job in self.submitted if job.task in names]

    def _listed(self) -> str:
        jobs = self.submitted
        if not jobs:
            return "nothing was submitted"
        lines = [f"  {_call(job.task, job.payload)}" for job in jobs[-_MAX_SHOWN_JOBS:]]
        more = [f"  … and {len(jobs) - _MAX_SHOWN_JOBS} before them"] if len(jobs) > _MAX_SHOWN_JOBS else []
        return "\n".join(["submitted were:", *more, *lines])

    # -- running

    async def drain(self) -> int:
        """Run everything that is due now, and the jobs that those submit; return the number of runs."""
        self._transactions.settle()
        return await self._runner.drain()

    async def advance(self, seconds: float = 0.0, *, minutes: float = 0, hours: float = 0, days: float = 0) -> int:
        """Move the clock from one due moment to the next, and run what is due; return the number of runs."""
        passed = timedelta(seconds=seconds, minutes=minutes, hours=hours, days=days)
        if passed < timedelta(0):
            raise ValueError(f"time passes in one direction, not by {passed}")
        target, total = self.now + passed, await self._due()
        while (moment := self._next_moment()) is not None and moment <= target:
            self.clock.advance_to(moment)
            total += await self._due()
        self.clock.advance_to(target)
        return total + await self._due()

    def _next_moment(self) -> datetime | None:
        moments = (self._runner.next_due, self._planner.next_due)
        return min((one for one in moments if one is not None and one > self.now), default=None)

    async def _due(self) -> int:
        """Fire due schedules, end expired jobs, run due jobs."""
        self._transactions.settle()
        await self._planner.tick()
        await self._sweeper.sweep()
        total = await self._runner.drain()
        # A job that has run may have made or changed a schedule, or a fire may have waited for it.
        while await self._planner.tick():
            total += await self._runner.drain()
        return total


def _arguments(handler: Handler, payload_text: str) -> dict[str, Any]:
    defaults = {one.name: one.default for one in handler.parameters if not one.required}
    return defaults | handler.decode(payload_text)


def _call(name: str, arguments: dict[str, Any]) -> str:
    return f"{name}({', '.join(f'{key}={_shown(value)}' for key, value in arguments.items())})"


def _shown(value: Any) -> str:
    text = repr(value) if not isinstance(value, msgspec.Struct) else str(value)
    return text if len(text) <= 200 else f"{text[:200]}…"
