"""Completing a job in a transaction of its handler's: what it wrote and the end of its job are one commit."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import apsw
import asyncpg
import psycopg
import pytest
from msgspec.structs import replace

from headrace.core.attempt import TimedOut
from headrace.core.change import Change, Verdict
from headrace.core.defaults import Rules
from headrace.core.job import Job
from headrace.core.lifecycle import actions
from headrace.core.lifecycle.execution import release
from headrace.core.lifecycle.retry import Retry
from headrace.core.status import Outcome, Reason, Status, Verb
from headrace.errors import ConfigError, NotSupported, Stale, SyncInAsync, Unavailable
from headrace.worker.execution import completion
from headrace.worker.execution.context import Context
from tests.support.faults import Instead, LosesReplies
from tests.support.servers.postgres import shared
from tests.support.servers.schemas import schema_of
from tests.support.shop import Shop, open_shop
from tests.support.until import until

pytestmark = pytest.mark.every_engine

ONCE = Retry(max_retries=0)


class Till:
    """A table of the user's beside the jobs, and connections to it."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.kind, self._file = kind, folder / "jobs.db"
        self.table = "till" if kind == "sqlite" else f"{schema_of(folder)}.till"
        self._do(f"CREATE TABLE {self.table} (job text NOT NULL)")

    def _do(self, sql: str) -> list[Any]:
        if self.kind == "postgres":
            return shared().execute(sql)
        connection = apsw.Connection(str(self._file))
        try:
            connection.set_busy_timeout(5000)
            return connection.execute(sql).fetchall()
        finally:
            connection.close()

    def rows(self) -> list[str]:
        """What is committed."""
        return [row[0] for row in self._do(f"SELECT job FROM {self.table}")]

    async def write(self, connection: Any, ctx: Context) -> None:
        """A write of the user's."""
        await self.execute(connection, f"INSERT INTO {self.table} VALUES ('{ctx.job_id}')")

    async def execute(self, connection: Any, sql: str) -> None:
        """On whatever connection."""
        done = connection.execute(sql)
        if self.kind == "postgres":
            await done

    @asynccontextmanager
    async def begun(self) -> AsyncIterator[Any]:
        """A connection of the user's own, in a transaction that ends with the block."""
        if self.kind == "postgres":
            connection = await asyncpg.connect(shared().url())
            try:
                async with connection.transaction():
                    yield connection
            finally:
                await connection.close()
        else:
            with self.blocking() as held:
                yield held

    @contextmanager
    def blocking(self) -> Iterator[Any]:
        """The same for a thread."""
        if self.kind == "postgres":
            with psycopg.connect(shared().url()) as connection:
                yield connection
            return
        held = apsw.Connection(str(self._file))
        try:
            held.set_busy_timeout(5000)
            held.execute("BEGIN IMMEDIATE")
            try:
                yield held
            except BaseException:
                held.execute("ROLLBACK")
                raise
            held.execute("COMMIT")
        finally:
            held.close()


@pytest.fixture(params=["sqlite", "postgres"])
async def shop(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Shop]:
    async with open_shop(request.param, tmp_path) as shop:
        yield shop


@pytest.fixture
def till(shop: Shop, request: pytest.FixtureRequest, tmp_path: Path) -> Till:
    return Till(request.node.callspec.params["shop"], tmp_path)


async def the_attempt(shop: Shop, id: UUID) -> Any:
    (attempt,) = (await shop.history(id)).attempts
    return attempt


# The short form


async def test_what_a_handler_wrote_and_its_completion_are_one_commit(shop: Shop, till: Till) -> None:
    seen: list[Job] = []

    async def pay(ctx: Context, n: int) -> int:
        async with ctx.transaction() as tx:
            await till.write(tx.connection, ctx)
            tx.complete(2 * n)
            seen.append(await shop.get(ctx.job_id))
            assert till.rows() == []
        seen.append(await shop.get(ctx.job_id))
        return -1

    shop.task(pay)
    id = await shop.submit("pay", payload={"n": 4}, dedup="k")
    async with shop.worker() as worker:
        done = await shop.ended(id)
        await until(lambda: worker.stats.done == 1)
    assert (done.status, done.result, done.attempt, done.charged) == (Status.COMPLETED, 8, 1, 1)
    assert seen[0].held
    assert seen[1].status is Status.COMPLETED
    assert till.rows() == [str(id)]
    attempt = await the_attempt(shop, id)
    assert (attempt.outcome, attempt.number) == (Outcome.COMPLETED, 1)
    assert attempt.started_at == done.started_at == done.first_started_at is not None, "the start rode along"
    assert (worker.stats.stale, worker.stats.failed) == (0, 0)


async def test_a_start_on_record_is_kept(shop: Shop, till: Till) -> None:
    async def pay(ctx: Context) -> None:
        ctx.progress(30, "almost")
        await ctx.flush()
        async with ctx.transaction() as tx:
            await till.write(tx.connection, ctx)
            tx.complete()

    shop.task(pay)
    id = await shop.submit("pay", retry=ONCE)
    async with shop.worker():
        done = await shop.ended(id)
    assert (done.status, done.attempt) == (Status.COMPLETED, 1)
    assert done.progress is not None
    assert (done.progress.percent, done.progress.message) == (100, "almost")
    assert till.rows() == [str(id)]


async def test_a_block_that_raises_undoes_everything_and_the_error_counts(shop: Shop, till: Till) -> None:
    async def pay(ctx: Context) -> str:
        if ctx.attempt == 1:
            async with ctx.transaction() as tx:
                await till.write(tx.connection, ctx)
                tx.complete("never")
                raise ValueError("no money")
        return f"attempt {ctx.attempt}"

    shop.task(pay)
    id = await shop.submit("pay")
    async with shop.worker():
        done = await shop.ended(id)
    assert (done.status, done.result) == (Status.COMPLETED, "attempt 2")
    assert till.rows() == []
    assert await shop.outcomes(id) == ["failed", "completed"]


async def test_after_a_rollback_the_attempt_goes_on(shop: Shop, till: Till) -> None:
    async def pay(ctx: Context) -> str:
        try:
            async with ctx.transaction() as tx:
                await till.write(tx.connection, ctx)
                tx.complete("never")
                raise ValueError("no money")
        except ValueError:
            ctx.progress(50, "second try")
            await ctx.flush()
        return "without"

    shop.task(pay)
    id = await shop.submit("pay")
    async with shop.worker():
        done = await shop.ended(id)
    assert (done.status, done.result, done.attempt) == (Status.COMPLETED, "without", 1)
    assert till.rows() == []


async def test_without_a_completion_only_the_writes_are_committed(shop: Shop, till: Till) -> None:
    async def pay(ctx: Context) -> str:
        async with ctx.transaction() as tx:
            await till.write(tx.connection, ctx)
        assert till.rows() == [str(ctx.job_id)]
        assert (await shop.get(ctx.job_id)).held
        return "mine"

    shop.task(pay)
    id = await shop.submit("pay")
    async with shop.worker():
        assert (await shop.ended(id)).result == "mine"


async def test_what_is_raised_after_the_completion_is_only_logged(
    shop: Shop, till: Till, caplog: pytest.LogCaptureFixture
) -> None:
    async def pay(ctx: Context) -> None:
        async with ctx.transaction() as tx:
            await till.write(tx.connection, ctx)
            tx.complete()
        raise ValueError("too late")

    shop.task(pay)
    id = await shop.submit("pay")
    with caplog.at_level(logging.ERROR, "headrace.worker"):
        async with shop.worker() as worker:
            done = await shop.ended(id)
            await until(lambda: worker.stats.done == 1)
    assert (done.status, done.error) == (Status.COMPLETED, None)
    assert (await shop.get(id)) == done
    assert "before its handler raised ValueError: too late" in caplog.text
    assert await shop.outcomes(id) == ["completed"]


async def test_a_wrong_result_is_refused_before_anything_is_written(shop: Shop, till: Till) -> None:
    async def pay(ctx: Context) -> int:
        async with ctx.transaction() as tx:
            await till.write(tx.connection, ctx)
            tx.complete("not a number")
        return 1

    shop.task(pay)
    id = await shop.submit("pay")
    async with shop.worker():
        done = await shop.ended(id)
    assert (done.status, done.reason) == (Status.FAILED, Reason.INVALID_RESULT)
    assert till.rows() == []


async def test_a_job_that_was_taken_away_takes_the_writes_with_it(shop: Shop, till: Till) -> None:
    raised: list[Stale] = []

    async def pay(ctx: Context) -> str:
        if raised:
            return "by another"
        (job,) = await shop.engine.jobs.get([ctx.job_id])
        assert job is not None
        await shop.writer.apply(release(job, shop.host.clock.now()))
        try:
            async with ctx.transaction() as tx:
                await till.write(tx.connection, ctx)
                tx.complete("mine")
        except Stale as error:
            raised.append(error)
            raise
        return "never"

    shop.task(pay)
    id = await shop.submit("pay")
    async with shop.worker():
        done = await shop.ended(id)
    assert (done.status, done.result) == (Status.COMPLETED, "by another")
    assert raised[0].job.id == id
    assert till.rows() == []


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
async def test_a_cancel_that_comes_meanwhile_is_too_late(kind: str, tmp_path: Path) -> None:
    async with open_shop(kind, tmp_path, Rules()) as shop:  # no beat will tell the worker before the commit
        till = Till(kind, tmp_path)

        async def pay(ctx: Context) -> str:
            asked = actions.cancel(await shop.get(ctx.job_id), shop.host.clock.now(), shop.engine.rules)
            assert asked is not None
            await shop.engine.jobs.apply([replace(asked, id=1)], shop.host.clock.now())
            async with ctx.transaction() as tx:
                await till.write(tx.connection, ctx)
                tx.complete("paid")
            return "ignored"

        shop.task(pay)
        id = await shop.submit("pay")
        async with shop.worker():
            done = await shop.ended(id)
        assert (done.status, done.result) == (Status.COMPLETED, "paid")
        assert done.cancel_requested_at is not None
        assert till.rows() == [str(id)]


async def test_a_cancelled_handler_takes_its_writes_back(shop: Shop, till: Till) -> None:
    inside = asyncio.Event()

    async def pay(ctx: Context) -> Any:
        async with ctx.transaction() as tx:
            await till.write(tx.connection, ctx)
            tx.complete("paid")
            inside.set()
            await asyncio.sleep(60)

    shop.task(pay)
    id = await shop.submit("pay", timeout=600, retry=ONCE)
    async with shop.worker() as worker:
        await inside.wait()
        (run,) = worker._slots.runs.values()
        run.stop("timed_out")  # as when its time is up
        done = await shop.ended(id)
    assert (done.status, done.reason) == (Status.FAILED, Reason.TIMEOUT)
    assert till.rows() == []


async def test_what_was_committed_counts_although_its_handler_had_to_be_left_behind(shop: Shop, till: Till) -> None:
    committed, gate = asyncio.Event(), asyncio.Event()

    async def pay(ctx: Context) -> Any:
        async with ctx.transaction() as tx:
            await till.write(tx.connection, ctx)
            tx.complete("paid")
        committed.set()
        await gate.wait()

    shop.task(pay)
    id = await shop.submit("pay", timeout=600, retry=ONCE)
    async with shop.worker() as worker:
        await committed.wait()
        (run,) = worker._slots.runs.values()
        run.abandon(TimedOut())  # as when it does not stop after its time is up
        assert (worker.stats.done, worker.stats.failed, worker.stats.stale) == (1, 0, 0)
        gate.set()
        await until(lambda: worker.stats.busy == 0)
        assert (worker.stats.done, worker.stats.failed, worker.stats.stale) == (1, 0, 0)
        done = await shop.ended(id)
    assert (done.status, done.result) == (Status.COMPLETED, "paid")


async def test_many_at_once(shop: Shop, till: Till) -> None:
    async def pay(ctx: Context, n: int) -> Any:
        async with ctx.transaction() as tx:
            await till.write(tx.connection, ctx)
            await asyncio.sleep(0.005)
            tx.complete(n)

    shop.task(pay)
    ids = [await shop.submit("pay", payload={"n": n}) for n in range(40)]
    async with shop.worker(concurrency=10):
        jobs = await shop.all_ended(ids)
    assert [(job.status, job.result) for job in jobs] == [(Status.COMPLETED, n) for n in range(40)]
    assert sorted(till.rows()) == sorted(map(str, ids))


# On a connection of the handler's own


async def test_a_connection_of_the_handlers_own(shop: Shop, till: Till) -> None:
    async def pay(ctx: Context) -> str:
        async with till.begun() as connection:
            await till.write(connection, ctx)
            await ctx.complete("paid", connection=connection)
            assert (await shop.get(ctx.job_id)).held
        return "ignored"

    shop.task(pay)
    id = await shop.submit("pay")
    async with shop.worker() as worker:
        done = await shop.ended(id)
        await until(lambda: worker.stats.done == 1)
    assert (done.status, done.result) == (Status.COMPLETED, "paid")
    assert till.rows() == [str(id)]
    assert (await the_attempt(shop, id)).started_at == done.started_at is not None
    assert worker.stats.stale == 0


async def test_rolled_back_its_own_value_counts(shop: Shop, till: Till) -> None:
    async def pay(ctx: Context) -> str:
        try:
            async with till.begun() as connection:
                await till.write(connection, ctx)
                await ctx.complete("paid", connection=connection)
                raise ValueError("no money")
        except ValueError:
            return "not paid"

    shop.task(pay)
    id = await shop.submit("pay")
    async with shop.worker():
        done = await shop.ended(id)
    assert (done.status, done.result, done.attempt) == (Status.COMPLETED, "not paid", 1)
    assert till.rows() == []


async def test_after_a_rollback_a_long_handler_is_known_to_run(shop: Shop, till: Till) -> None:
    go = asyncio.Event()

    async def pay(ctx: Context) -> str:
        try:
            async with till.begun() as connection:
                await ctx.complete("paid", connection=connection)
                raise ValueError("no money")
        except ValueError:
            pass
        await go.wait()
        return "not paid"

    shop.task(pay)
    id = await shop.submit("pay")
    async with shop.worker():
        await shop.reaches(id, Status.RUNNING)
        go.set()
        assert (await shop.ended(id)).result == "not paid"


async def test_while_a_transaction_has_the_job_nothing_else_is_written_of_it(shop: Shop, till: Till) -> None:
    other = asyncio.Event()

    async def pay(ctx: Context) -> str:
        async with till.begun() as connection:
            await ctx.complete("paid", connection=connection)
            ctx.progress(10, "must not wait for the row, nor keep others waiting")
            if till.kind == "postgres":  # on SQLite nobody can write meanwhile
                await shop.submit("quick")
                await asyncio.wait_for(other.wait(), 45)
            await asyncio.sleep(1.0)
        return "ignored"

    async def quick() -> None:
        other.set()

    shop.task(pay)
    shop.task(quick)
    id = await shop.submit("pay")
    async with shop.worker() as worker:
        done = await shop.ended(id)
        await until(lambda: worker.stats.busy == 0)
    assert (done.status, done.result) == (Status.COMPLETED, "paid")
    assert await shop.outcomes(id) == ["completed"]
    assert worker.stats.stale == 0


async def test_a_second_completion_is_stale(shop: Shop, till: Till) -> None:
    errors: list[Exception] = []

    async def pay(ctx: Context) -> Any:
        async with ctx.transaction() as tx:
            await till.write(tx.connection, ctx)
            tx.complete("first")
        try:
            async with ctx.transaction() as tx:
                await till.write(tx.connection, ctx)
                tx.complete("second")
        except Stale as error:
            errors.append(error)

    shop.task(pay)
    id = await shop.submit("pay")
    async with shop.worker() as worker:
        done = await shop.ended(id)
        await until(lambda: worker.stats.done == 1)
    assert (done.result, len(errors)) == ("first", 1)
    assert till.rows() == [str(id)]


class Slow(LosesReplies):
    """An engine that keeps a start waiting."""

    gate: asyncio.Event
    waiting = False

    async def apply(self, changes: Sequence[Change], now: datetime) -> list[Verdict]:
        if any(one.verb is Verb.START for one in changes):
            self.waiting = True
            await self.gate.wait()
        return await self._engine.jobs.apply(changes, now)


async def test_a_start_that_is_on_its_way(shop: Shop, till: Till) -> None:
    engine: Any = Slow(shop.engine, {})
    engine.gate = asyncio.Event()
    order: list[str] = []

    def let_go() -> None:
        order.append("start")
        engine.gate.set()

    async def pay(ctx: Context) -> str:
        ctx.progress(10, "begun")
        await until(lambda: engine.waiting)
        async with ctx.transaction() as tx:
            await till.write(tx.connection, ctx)
            tx.complete("paid")
            if till.kind == "postgres":
                asyncio.get_running_loop().call_later(0.2, let_go)
        order.append("completion")
        if till.kind == "sqlite":
            let_go()
        return "ignored"

    shop.task(pay)
    id = await shop.submit("pay")
    async with shop.worker(engine=engine) as worker:
        done = await shop.ended(id)
        await until(lambda: worker.stats.done == 1)
    # On SQLite the start could not be written before the commit, so the completion does not wait for it.
    assert order == (["start", "completion"] if till.kind == "postgres" else ["completion", "start"])
    assert (done.status, done.result, done.attempt) == (Status.COMPLETED, "paid", 1)
    assert await shop.get(id) == done
    assert till.rows() == [str(id)]
    assert await shop.outcomes(id) == ["completed"]


@pytest.mark.parametrize("commits", [True, False])
async def test_a_transaction_that_outlives_its_handler(
    shop: Shop, till: Till, commits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(completion, "OPEN_TRANSACTION_SECONDS", 0.3)
    left, over = AsyncExitStack(), asyncio.Event()

    async def pay(ctx: Context) -> str:
        connection = await left.enter_async_context(till.begun())
        await till.write(connection, ctx)
        await ctx.complete("paid", connection=connection)
        over.set()
        return "not paid"

    shop.task(pay)
    id = await shop.submit("pay")
    async with shop.worker() as worker:
        await over.wait()
        await asyncio.sleep(0.6)
        assert (await shop.get(id)).held
        with suppress(ZeroDivisionError):
            async with left:
                if not commits:
                    raise ZeroDivisionError
        done = await shop.ended(id)
        await until(lambda: worker.stats.busy == 0)
    assert (done.status, done.result) == (Status.COMPLETED, "paid" if commits else "not paid")
    assert till.rows() == ([str(id)] if commits else [])
    assert await shop.outcomes(id) == ["completed"]


# Plain handlers


async def test_a_plain_handler_uses_its_connection_on_its_own_thread(shop: Shop, till: Till) -> None:
    def pay(ctx: Context, commit: bool) -> str:
        try:
            with till.blocking() as connection:
                connection.execute(f"INSERT INTO {till.table} VALUES ('{ctx.job_id}')")
                ctx.complete_sync("paid", connection=connection)
                if not commit:
                    raise ValueError("no money")
        except ValueError:
            return "not paid"
        return f"ignored, on {threading.current_thread().name}"

    shop.task(pay)
    paid, unpaid = [await shop.submit("pay", payload={"commit": commit}) for commit in (True, False)]
    async with shop.worker() as worker:
        done, undone = await shop.all_ended([paid, unpaid])
        await until(lambda: worker.stats.done == 2)
    assert [(job.status, job.result) for job in (done, undone)] == [
        (Status.COMPLETED, "paid"),
        (Status.COMPLETED, "not paid"),
    ]
    assert till.rows() == [str(paid)]


async def test_a_plain_handler_whose_time_is_up_completes_nothing(shop: Shop, till: Till) -> None:
    errors: list[Exception] = []
    over = threading.Event()

    def pay(ctx: Context) -> None:
        over.wait(45)
        try:
            with till.blocking() as connection:
                connection.execute(f"INSERT INTO {till.table} VALUES ('{ctx.job_id}')")
                ctx.complete_sync("paid", connection=connection)
        except Exception as error:
            errors.append(error)
            raise

    shop.task(pay)
    id = await shop.submit("pay", timeout=0.3, retry=ONCE)
    async with shop.worker() as worker:
        done = await shop.ended(id)
        over.set()
        await until(lambda: worker.stats.busy == 0)
    assert (done.status, done.reason) == (Status.FAILED, Reason.TIMEOUT)
    assert len(errors) == 1
    assert till.rows() == []


# A lost reply


class Forgetful:
    """The engine, but the reply to a commit is lost: with the commit, or without."""

    def __init__(self, engine: Any, *, committed: bool) -> None:
        self._engine, self._committed = engine, committed
        self.transactions = Instead(engine.transactions, transaction=self._transaction)
        self.lost = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    @asynccontextmanager
    async def _transaction(self) -> AsyncIterator[Any]:
        if self.lost:
            async with self._engine.transactions.transaction() as connection:
                yield connection
            return
        self.lost += 1
        try:
            async with self._engine.transactions.transaction() as connection:
                yield connection
                if not self._committed:
                    raise Unavailable("the connection broke before the commit arrived", outcome="unknown")
        except Unavailable as error:
            raise Unavailable("the reply was lost", outcome="unknown") from error
        raise Unavailable("the reply was lost", outcome="unknown")


@pytest.mark.parametrize("committed", [True, False])
async def test_a_lost_reply_to_the_commit_is_settled_by_looking(shop: Shop, till: Till, committed: bool) -> None:
    async def pay(ctx: Context) -> str:
        async with ctx.transaction() as tx:
            await till.write(tx.connection, ctx)
            tx.complete(f"attempt {ctx.attempt}")
        return "ignored"

    shop.task(pay)
    id = await shop.submit("pay")
    engine: Any = Forgetful(shop.engine, committed=committed)
    async with shop.worker(engine=engine):
        done = await shop.ended(id)
    assert (done.status, engine.lost) == (Status.COMPLETED, 1)
    assert done.result == ("attempt 1" if committed else "attempt 2")
    assert till.rows() == [str(id)]
    assert await shop.outcomes(id) == (["completed"] if committed else ["failed", "completed"])


# What cannot be done


async def test_it_must_be_a_connection_the_engine_knows(shop: Shop) -> None:
    async def pay(ctx: Context) -> str:
        with pytest.raises(NotSupported):
            await ctx.complete("paid", connection=object())
        with pytest.raises(TypeError):
            await ctx.complete("paid")  # type: ignore[call-arg]
        return "mine"

    shop.task(pay)
    id = await shop.submit("pay")
    async with shop.worker():
        assert (await shop.ended(id)).result == "mine"


async def test_a_transaction_must_be_open(shop: Shop, till: Till, tmp_path: Path) -> None:
    async def pay(ctx: Context) -> str:
        idle = (
            apsw.Connection(str(tmp_path / "jobs.db"))
            if till.kind == "sqlite"
            else await asyncpg.connect(shared().url())
        )
        with pytest.raises(ConfigError, match="begin one first"):
            await ctx.complete("paid", connection=idle)
        if (closing := idle.close()) is not None:
            await closing
        return "mine"

    shop.task(pay)
    id = await shop.submit("pay")
    async with shop.worker():
        assert (await shop.ended(id)).result == "mine"


async def test_the_blocking_form_does_not_block_a_loop(shop: Shop, till: Till) -> None:
    async def pay(ctx: Context) -> str:
        with till.blocking() as connection, pytest.raises(SyncInAsync):
            ctx.complete_sync("paid", connection=connection)
        return "mine"

    shop.task(pay)
    id = await shop.submit("pay")
    async with shop.worker():
        assert (await shop.ended(id)).result == "mine"


async def test_an_engine_without_transactions_says_so(tmp_path: Path) -> None:
    async with open_shop("memory", tmp_path) as shop:

        async def pay(ctx: Context) -> str:
            with pytest.raises(NotSupported, match="memory"):
                await ctx.complete("paid", connection=object())
            with pytest.raises(NotSupported, match="memory"):
                async with ctx.transaction():
                    pass
            return "mine"

        shop.task(pay)
        id = await shop.submit("pay")
        async with shop.worker():
            assert (await shop.ended(id)).result == "mine"


async def test_a_function_called_directly_has_no_job_to_complete(shop: Shop) -> None:
    ctx = Context._detached(shop.job("pay"))
    with pytest.raises(NotSupported, match="directly"):
        await ctx.complete("paid", connection=object())
    with pytest.raises(NotSupported, match="process"):
        ctx.complete_sync("paid", connection=object())
    with pytest.raises(NotSupported, match="worker"):
        ctx.transaction()
