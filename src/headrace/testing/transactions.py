"""Transactions of the user under the harness: a job is kept in memory until the user's own transaction is committed.

``listeners`` hears of the commit where a driver tells of it.
"""

from __future__ import annotations

import asyncio
import threading
import warnings
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager, ExitStack
from datetime import datetime
from typing import Any, TypeVar, cast

from headrace.client.background import run_on
from headrace.core.change import Applied, Change, Verdict
from headrace.core.job import Job
from headrace.core.matching.customers import dedup_of
from headrace.engine import Companions, Duplicated, Engine, Enlisted, InsertAnswer, Inserted, Refused, Statements
from headrace.engine.transactions import Statement, walk
from headrace.errors import NotSupported
from headrace.testing.listeners import Listened, Write, listen, own

__all__ = ["HarnessTransactions", "StoredAtOnce"]

T = TypeVar("T")


class StoredAtOnce(UserWarning):
    """A job was submitted on a connection with a driver that does not tell of commits: it is stored at once."""


class _Step(Statement, frozen=True):
    """What is to be written when the transaction is committed."""

    write: Write


class HarnessTransactions:
    """The role ``transactions`` of a harness; what is committed is stored by the harness's own ``stored``."""

    def __init__(self, engine: Engine, stored: Callable[[Sequence[Job]], Coroutine[Any, Any, None]]) -> None:
        self._engine, self._stored = engine, stored
        self._loop, self._thread = asyncio.get_running_loop(), threading.get_ident()
        self._listened = dict[int, Listened]()
        self._tasks = set[asyncio.Task[None]]()
        self._closing = ExitStack()

    # -- the role

    def enlist(self, connection: Any) -> Enlisted:
        """Listen to the connection; :raises NotSupported, ConfigError: as a real store does"""
        self.settle()
        connection = own(connection)
        known = self._listened.get(id(connection))
        if known is None or known.over:
            known = listen(connection, self._store)
            self._listened[id(connection)] = known
            self._closing.callback(known.close)
        known.check()
        return _Joined(known, self._store)

    async def inserting(
        self, jobs: Sequence[Job], now: datetime, *, companions: Companions | None = None
    ) -> Statements[list[InsertAnswer]]:
        """Return what inserts the jobs when it is committed."""
        return self._inserting(jobs, companions or {}, now)

    def _inserting(self, jobs: Sequence[Job], companions: Companions, now: datetime) -> Statements[list[InsertAnswer]]:
        answers, new = list[InsertAnswer](), list[Job]()
        for job in jobs:
            answer = self._answer(job, [*self._coming(), *new], now)
            answers.append(answer)
            if isinstance(answer, Inserted) and answer.job is job:
                new.append(job)
        if new:
            others = {job.id: found for job in new if (found := companions.get(job.id))}

            async def insert() -> None:
                await self._engine.jobs.insert(new, now, companions=others or None)

            yield _Step("", "", Write(tuple(new), insert))
        return answers

    async def applying(self, change: Change, now: datetime) -> Statements[Verdict]:
        """Return what applies the change when it is committed."""
        return self._applying(change, now)

    def _applying(self, change: Change, now: datetime) -> Statements[Verdict]:
        async def apply() -> None:
            await self._engine.jobs.apply([change], now)

        yield _Step("", "", Write(change.inserts, apply))
        return Applied(change.job)

    def transaction(self) -> AbstractAsyncContextManager[Any]:
        """Refuse: there is no database; :raises NotSupported:"""
        raise NotSupported("a test harness has no connections to complete a job with: use a worker on a real store")

    # -- what the store would say

    def _answer(self, job: Job, coming: Sequence[Job], now: datetime) -> InsertAnswer:
        """Return what the store would reply now, with what other transactions are yet to commit."""
        known = next((one for one in coming if one.id == job.id), None)
        if known is not None:
            return Inserted(known)
        memory = cast("Any", self._engine)
        with memory.jobs._state() as state:
            holder: Job | None = state.table.holder(job)
            why = None if coming else state.refusal([job], now)  # it may belong to one of those that are coming
        key = dedup_of(job.spec)
        same = (
            one for one in coming if key is not None and (one.spec.task, dedup_of(one.spec)) == (job.spec.task, key)
        )
        if (holder := holder or next(same, None)) is not None:
            return Duplicated(holder)
        return Inserted(job) if why is None else Refused(why)

    def _coming(self) -> list[Job]:
        return [job for one in self._listened.values() for write in one.writes for job in write.jobs]

    # -- storing

    def settle(self) -> None:
        """Store what was committed by transactions of which only their state tells."""
        for one in list(self._listened.values()):
            one.settle()

    def _store(self, writes: Sequence[Write]) -> None:
        """Store what was committed: before this returns, on any thread."""
        work = self._write(writes)
        if threading.get_ident() != self._thread:
            run_on(self._loop, self._finished(work, writes))
            return
        try:
            work.send(None)  # the memory engine waits for nothing
        except StopIteration:
            pass
        else:
            raise AssertionError("the memory engine waited")
        task = self._loop.create_task(self._stored([job for write in writes for job in write.jobs]))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _finished(self, work: Coroutine[Any, Any, None], writes: Sequence[Write]) -> None:
        await work
        await self._stored([job for write in writes for job in write.jobs])

    async def _write(self, writes: Sequence[Write]) -> None:
        for write in writes:
            await write.store()

    async def close(self) -> None:
        """Leave the connections of the user as they were; wait for jobs that run because they were committed."""
        self._closing.close()
        while self._tasks:
            await asyncio.gather(*self._tasks)


class _Joined:
    """A connection of the user."""

    exclusive = False

    def __init__(self, listened: Listened, store: Callable[[Sequence[Write]], None]) -> None:
        self._listened, self._store = listened, store
        self.blocking = listened.blocking

    @property
    def open(self) -> bool:
        return self._listened.open

    def run_blocking(self, statements: Statements[T]) -> T:
        return walk(statements, self._execute)

    async def run(self, statements: Statements[T]) -> T:
        await asyncio.sleep(0)  # what asyncpg has logged so far, such as a savepoint, is told first
        return self.run_blocking(statements)

    def _execute(self, statement: Statement) -> str:
        assert isinstance(statement, _Step)
        if not self._listened.add(statement.write):
            warnings.warn(
                f"the harness is not told when a {self._listened.kind} commits: the job is stored at once, and stays if"
                " you roll back",
                StoredAtOnce,
                stacklevel=2,
            )
            self._store([statement.write])
        return ""
