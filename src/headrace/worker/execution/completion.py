"""Complete a job in a transaction of its handler: what the handler wrote and the end of its job are one commit."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from msgspec.structs import replace

from headrace.core.attempt import Completed
from headrace.core.change import Change, Verdict, WasStale, until_applied
from headrace.core.job import Job
from headrace.core.lifecycle.execution import finish
from headrace.core.status import Outcome
from headrace.engine import Enlisted, Statements, Transactions
from headrace.engine.bus import Hint, Topic
from headrace.engine.transactions import walk, walk_async
from headrace.errors import ConfigError, HeadraceError, NotSupported, Stale, Stopped, TransitionRefused, Unavailable
from headrace.logs import labels
from headrace.runtime.writes.decision import in_transaction
from headrace.runtime.writes.omissions import log_left_out
from headrace.worker.execution.context import Context, Transaction
from headrace.worker.owned_job import OwnedJob
from headrace.worker.process.loops import wait_on_loop

__all__ = ["Completion"]

_log = logging.getLogger("headrace.worker")

T = TypeVar("T")

_POLL_SECONDS = (0.0, 0.05, 0.2, 0.5, 1.0, 2.0, 4.0)
"""Seconds between reads of a store that does not reply."""
OPEN_TRANSACTION_SECONDS = 5.0
"""How long to wait for a transaction that is still open after its handler has ended."""


class Completion:
    """What became of the completion of one run. The store is the judge: a commit is known by what is there after it.

    From the moment the change is within the user's transaction until that is over, the owned job writes nothing of its
    own: it would wait for the user.
    """

    def __init__(self, owned: OwnedJob, loop: asyncio.AbstractEventLoop, flush: Callable[[], Awaitable[None]]) -> None:
        """``flush`` writes what the run added to its job."""
        self._owned, self._loop, self._flush = owned, loop, flush
        self._writer = owned.writer
        self._engine, self._host = owned.writer.engine, owned.writer.host
        self._enlisted: Enlisted | None = None
        self._busy = 0
        """While this is not 0, the transaction is not over, whatever its connection says of itself."""
        self._change: Change | None = None
        """The change that was written within a transaction that may not be over."""
        self._settling: asyncio.Task[bool] | None = None
        self.done = False
        """Whether the completion is committed."""

    # -- what the handler calls

    async def complete(self, ctx: Context, result: Any, connection: Any) -> None:
        """Write the completion as part of the transaction that is open on the connection."""
        text = self._encoded(ctx, result)
        await self._write(text, self._transactions.enlist(connection))

    def complete_blocking(self, ctx: Context, result: Any, connection: Any) -> None:
        """The same on the thread of a plain handler, to which its connection belongs."""
        text = self._encoded(ctx, result)
        enlisted = self._transactions.enlist(connection)
        if not enlisted.blocking:
            raise ConfigError("ctx.complete_sync: the connection must be awaited, which a plain function cannot do")
        self._busy += 1
        try:
            job = self._on_loop(self._enter(enlisted))
            self._change = walk(
                self._decide(job, text),
                lambda change: enlisted.run_blocking(self._on_loop(self._applying(change))),
            )
        finally:
            self._busy -= 1

    @asynccontextmanager
    async def transaction(self, ctx: Context) -> AsyncIterator[Transaction]:
        """A transaction of the engine's own; its last statement is the completion, if there is one."""
        self._check(ctx)
        await self._flush()  # while it is begun, some stores take no other write
        tx = Transaction(lambda result: self._encoded(ctx, result))
        committed = False
        self._busy += 1
        try:
            async with self._transactions.transaction() as connection:
                tx.connection = connection
                yield tx
                if tx.result_text is not None:
                    await self._write(tx.result_text, self._transactions.enlist(connection))
            committed = True
        except Unavailable as error:
            # The reply to a commit was lost: whether it took place, only the store can say.
            if error.outcome != "unknown" or self._change is None or not await self.settle():
                raise
        finally:
            self._busy -= 1
            if committed and tx.result_text is not None:
                self._committed()
            elif self._owned.in_transaction and self._change is None:
                self._given_up()
            # Otherwise the commit failed, and the next read of the store shows how it ended.

    # -- writing

    @property
    def _transactions(self) -> Transactions:
        if self._engine.transactions is None:
            raise NotSupported(f"the {self._engine.name} engine has no transactions to complete a job in")
        return self._engine.transactions

    def _check(self, ctx: Context) -> None:
        assert self._transactions, "or it is not supported"
        if self._owned.over:
            raise Stopped(ctx.stopping or "lost")

    def _encoded(self, ctx: Context, result: Any) -> str:
        self._check(ctx)
        return self._owned.handler.encode_result(result)

    async def _write(self, text: str, enlisted: Enlisted) -> None:
        self._busy += 1
        try:
            job = await self._enter(enlisted)
            self._change = await walk_async(self._decide(job, text), lambda change: self._apply(change, enlisted))
        finally:
            self._busy -= 1

    async def _applying(self, change: Change | None) -> Statements[Verdict]:
        if change is None:
            raise in_transaction(self._owned.job.id)
        return await self._transactions.applying(change, change.job.updated_at)

    async def _apply(self, change: Change | None, enlisted: Enlisted) -> Verdict:
        steps = await self._applying(change)
        return enlisted.run_blocking(steps) if enlisted.blocking else await enlisted.run(steps)

    async def _enter(self, enlisted: Enlisted) -> Job:
        """Let the user's transaction have the job: nothing more is written about it, and a change on its way is
        awaited, unless it waits for this very transaction."""
        owned = self._owned
        if not enlisted.exclusive:
            await self._flush()  # nothing can be added to a job that is completed
        if self._settling is not None:  # of a transaction before this one
            await asyncio.shield(self._settling)
        self._enlisted, self._change = enlisted, None
        owned.in_transaction = True
        if not enlisted.exclusive:
            await owned.landed()
        if not owned.kept:
            raise Stale(owned.job)
        return owned.job

    def _decide(self, job: Job, text: str) -> Generator[Change | None, Verdict | None, Change]:
        """Yield the completion, decided again whenever the job has changed; the change that was applied;
        :raises Stale: the job has another owner, or has ended"""

        def decide(job: Job) -> Change:
            now = self._host.clock.now()
            try:
                change = finish(job, Completed(text), now, 0.0, self._engine.rules, self._owned.started_at)
            except TransitionRefused:
                raise Stale(job) from None
            return replace(change, id=self._host.dice.token())

        change, verdict = yield from until_applied(job, decide)
        if change is None or isinstance(verdict, WasStale):
            raise Stale(verdict.job or job)
        log_left_out(verdict.left_out)
        return change

    def _on_loop(self, work: Coroutine[Any, Any, T]) -> T:
        return wait_on_loop(self._loop, work, "ctx.complete")

    # -- finding out what came of it

    def tick(self) -> None:
        """Find out how a transaction ended while its handler goes on, and have the job again."""
        if (
            self._owned.in_transaction
            and not self.done
            and not self._busy
            and self._settling is None
            and not self._open()
        ):
            self._settling = self._loop.create_task(self._settle(), name="headrace-settle")

    async def settle(self) -> bool:
        """Whether the completion is committed; called when the handler is done, or cannot know itself."""
        if self.done or not self._owned.in_transaction:
            return self.done
        if self._settling is None:
            self._settling = self._loop.create_task(self._settle(), name="headrace-settle")
        return await asyncio.shield(self._settling)

    def _open(self) -> bool:
        try:
            return self._enlisted is not None and self._enlisted.open
        except Exception:  # whatever a driver says of a connection that is closed, or went back to its pool
            return False

    async def _settle(self) -> bool:
        try:
            await self._over()
            if self._change is not None and await self._is_in(self._change):
                self._committed()
            else:
                self._given_up()
            return self.done
        finally:
            self._settling = None

    async def _over(self) -> None:
        """Wait for the end of the user's transaction, but not for ever."""
        until = self._host.clock.monotonic() + OPEN_TRANSACTION_SECONDS
        while self._open() and self._host.clock.monotonic() < until:
            await self._host.sleep(0.02)
        if self._open():
            job = self._owned.job
            _log.warning("job %s: the transaction it was completed in was left open", job.id, extra=labels(job))

    async def _is_in(self, change: Change) -> bool:
        """Whether the store has the change. A commit after this read does no harm: a completion takes the owner from
        the job, so that the store refuses every later write of this worker."""
        held = self._owned.job
        for pause in _POLL_SECONDS:
            await self._host.sleep(pause)
            try:
                (job,) = await self._engine.jobs.get([held.id])
                if job is None or (job.worker, job.epoch) == (held.worker, held.epoch):
                    return job is None  # only what has ended is ever removed
                attempts = (await self._engine.records.history(held.id)).attempts
                return any(one.outcome is Outcome.COMPLETED and one.epoch == held.epoch for one in attempts)
            except HeadraceError as error:
                what = "job %s: whether it is completed cannot be seen yet: %s"
                _log.warning(what, held.id, error, extra=labels(held))
        return False

    def _committed(self) -> None:
        assert self._change is not None
        self.done = True
        self._owned.completed(self._change.job)
        if self._engine.bus.wanted(Topic.ENDED):
            self._engine.bus.send(Hint(Topic.ENDED, (str(self._owned.job.id),)))
        self._writer.changes.tell([self._owned.job])
        self._writer.notes.ask()  # others may wait for it

    def _given_up(self) -> None:
        """Go on with the attempt, because the transaction was rolled back."""
        self._change = None
        self._owned.take_back()
