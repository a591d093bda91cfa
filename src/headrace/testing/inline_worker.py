"""A worker for tests: claims what is due and runs it, one job after the other."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar
from uuid import UUID

from headrace.client.background import refuse_in_loop, run_on
from headrace.core.attempt import Ending, ErrorInfo, Failed, Progress
from headrace.core.change import Change
from headrace.core.job import Job
from headrace.core.lifecycle.claim import ClaimRequest
from headrace.core.lifecycle.execution import finish, progress, start
from headrace.core.status import Status
from headrace.engine import Claimed, Engine, WorkerInfo
from headrace.errors import NotOpen, Stale, TransitionRefused
from headrace.runtime.host import Host
from headrace.runtime.writes.writer import Writer
from headrace.worker.execution.backoff import timed
from headrace.worker.execution.call import call
from headrace.worker.execution.context import Caller, Context
from headrace.worker.execution.hooks import call_callbacks
from headrace.worker.execution.resources import Resource, Resources
from headrace.worker.execution.writers import EntryWriter
from headrace.worker.handler import Handler
from headrace.worker.log_capture import caught_logs
from headrace.worker.process.threads import ThreadPool

__all__ = ["Inline"]

T = TypeVar("T")

_MAX_RUNS, _MAX_JOB_RUNS = 100_000, 1000

_HANDLER_SECONDS = 0.02
"""Seconds a handler may take before the next job begins beside it: the handler may wait for that job's result."""


class _Reports(Caller):
    """Keeps the newest progress report until the run is over."""

    def __init__(self, resources: Resources) -> None:
        self.last: Progress | None = None
        self.writer: EntryWriter | None = None
        """Writes the entries that the run adds to its job."""
        self._resources = resources

    def report(self, report: Progress) -> None:
        self.last = report

    def log(self, data: str) -> None:
        if self.writer is not None:
            self.writer.log(data)

    def entry_writer(self) -> EntryWriter | None:
        return self.writer

    def resource(self, resource: Resource[T]) -> T:
        return self._resources.get(resource)


class Inline:
    """Runs jobs one after the other: coroutines on the caller's loop, plain functions in a thread it waits for.

    A thread, because that is where a worker runs them: there they may call ``submit_sync`` or start a loop.
    """

    def __init__(
        self,
        engine: Engine,
        writer: Writer,
        host: Host,
        handlers: Callable[[], Mapping[str, Handler]],
        resources: Sequence[Resource[Any]] = (),
    ) -> None:
        self.engine, self.writer, self.host = engine, writer, host
        self.handlers = handlers
        """The handlers to run; called each time, because a test may register more."""
        self.id = host.dice.new_id(host.clock.now())
        self.next_due: datetime | None = None
        """When the next deferred job is due, as of the last claim."""
        self.resources = Resources(resources)
        self._threads = ThreadPool("headrace-harness")
        self._plain = self._waiting = 0
        """How many plain functions are running, and how many handlers wait in them for the loop."""

    def close(self) -> None:
        """Stop the threads."""
        self._threads.close()

    def waiter(self) -> Callable[[Coroutine[Any, Any, Any]], Any]:
        """Return what ``app.wait`` does on other threads: it runs on this loop, where submits are recorded."""
        loop = asyncio.get_running_loop()

        def wait(work: Coroutine[Any, Any, Any]) -> Any:
            refuse_in_loop(work)
            return run_on(loop, self._waited(work, Context._current_or_none() is not None))

        return wait

    async def _waited(self, work: Coroutine[Any, Any, Any], inside: bool) -> Any:
        self._waiting += inside
        try:
            return await work
        finally:
            self._waiting -= inside

    async def register(self) -> None:
        """Register it in the store."""
        info = WorkerInfo(
            id=self.id,
            host=self.host.name,
            pid=self.host.pid,
            started_at=self.host.clock.now(),
            concurrency=1,
            tasks=tuple(sorted(self.handlers())),
        )
        await self.engine.workers.register(info, self.host.clock.now())

    async def drain(self) -> int:
        """Run everything that is due, and what those runs submit; return the number of runs."""
        total, times, running = 0, Counter[UUID](), set[asyncio.Task[None]]()
        try:
            while True:
                job = await self._claim()
                if job is not None:
                    total, times[job.id] = total + 1, times[job.id] + 1
                    if times[job.id] > _MAX_JOB_RUNS or total > _MAX_RUNS:
                        raise AssertionError(
                            f"{total} runs and the clock has not moved: do jobs of {job.task!r} submit or snooze "
                            f"themselves without a delay?"
                        )
                    running.add(asyncio.create_task(self.run(job), name=f"headrace-{job.task}"))
                elif not running:
                    return total
                done, running = await asyncio.wait(running, timeout=_HANDLER_SECONDS)
                while not done and self._plain > self._waiting:  # one runs and does not wait: begin nothing beside it
                    done, running = await asyncio.wait(running, timeout=_HANDLER_SECONDS)
                for task in done:
                    task.result()
        finally:
            for task in running:
                task.cancel()

    async def _claim(self) -> Job | None:
        await self.writer.notes.process()
        now, tasks = self.host.clock.now(), frozenset(self.handlers())
        profiles = (await self.engine.documents.profiles()).profiles
        # This worker meets whatever a job requires.
        ask = ClaimRequest(n=1, free=1, profiles=frozenset(profile.id for profile in profiles if profile.task in tasks))
        answer = await self.engine.jobs.claim(self.id, ask, self.host.dice.token(), now)
        if not isinstance(answer, Claimed):
            raise NotOpen("the harness was taken for dead by a sweeper: do not run workers beside it")
        self.next_due = answer.next_due
        self.writer.changes.tell(answer.jobs)
        return answer.jobs[0] if answer.jobs else None

    async def run(self, job: Job) -> None:
        """Run one claimed job, and write its outcome."""
        rules, caller = self.engine.rules, _Reports(self.resources)
        try:
            job = await self.writer.decide(job.id, lambda job, now: start(job, now, rules))
        except (Stale, TransitionRefused):
            return  # cancelled between claim and start
        ctx = Context(job, job.attempt, job.started_at or job.updated_at, caller)
        caller.writer = EntryWriter(self.writer, job.attempt, lambda: _now(job), asyncio.get_running_loop())
        with caught_logs():
            ending = await self._call(ctx, job)
        await caller.writer.finish()
        last = caller.last
        if last is not None:
            await self._write(job, lambda job, now: progress(job, now, last, rules))
        done = await self._write(job, lambda job, now: finish(job, ending, now, self.host.dice.chance(), rules))
        callbacks = self.handlers()[job.task].callbacks
        if done is not None and callbacks is not None:
            await call_callbacks(done, callbacks, self._threads)

    async def _call(self, ctx: Context, job: Job) -> Ending:
        handler = self.handlers()[job.task]
        plain = handler.mode != "async"
        self._plain += plain
        try:
            return await call(handler, ctx, job, self._threads)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            error = ErrorInfo("CancelledError", "the handler cancelled itself")
            ending = Failed(error=error, names=("CancelledError", "asyncio.exceptions.CancelledError"))
            return timed(ending, handler, job)
        finally:
            self._plain -= plain

    async def _write(self, ours: Job, verb: Callable[[Job, datetime], Change]) -> Job | None:
        """Write a change of a job that is running here, and give it as written; one that was taken away meanwhile is
        left alone."""

        def still(job: Job, now: datetime) -> Change:
            if job.status is not Status.RUNNING or (job.worker, job.epoch) != (self.id, ours.epoch):
                raise Stale(job)
            return verb(job, now)

        try:
            return await self.writer.decide(ours.id, still)
        except Stale:
            return None


async def _now(job: Job) -> Job:
    return job
