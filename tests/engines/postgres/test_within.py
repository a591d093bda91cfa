"""Submitting and completing within transactions of the user's on PostgreSQL, by every driver, from end to end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest

from headrace import App, Context, Duplicate, Retry, Status
from headrace.client.background import close
from headrace.core.status import Outcome
from headrace.errors import ConfigError, NotCommitted, Unavailable
from tests.support.doors import ASYNC, BLOCKING, database, dsn
from tests.support.servers.postgres import shared
from tests.support.servers.schemas import schema_of
from tests.support.until import until


class Undone(Exception):
    """Why a test rolls back."""


class Shop:
    """An App on a schema of the test's own, in the database that every driver of the tests leads to."""

    def __init__(self, place: Path) -> None:
        self.schema = schema_of(place)
        self.app = App(shared().url(database(), schema=self.schema))

        @self.app.task
        async def add(a: int, b: int = 1) -> int:
            return a + b

        @self.app.task(dedup="key:{key}")
        async def keyed(key: str) -> str:
            return key

        self.add, self.keyed = add, keyed


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    shop = Shop(tmp_path)
    yield shop
    shared().execute(f"DROP SCHEMA IF EXISTS {shop.schema} CASCADE", database())


@pytest.fixture
async def opened(shop: Shop) -> AsyncIterator[Shop]:
    async with shop.app:
        yield shop


@pytest.mark.variants
@pytest.mark.parametrize("kind", ASYNC)
async def test_a_job_of_an_awaited_transaction(kind: str, opened: Shop) -> None:
    app, add, keyed = opened.app, opened.add, opened.keyed
    async with ASYNC[kind]() as connection:
        within = add.options(connection=connection)
        one, other = await within.submit(1, 2), await app.submit("add", {"a": 5}, connection=connection)
        more = await within.map([(n,) for n in range(3)])
        first, twin = [await keyed.options(connection=connection).submit("k") for _ in range(2)]
        assert (first.duplicate, twin.duplicate, twin.id) == (False, True, first.id)
        with pytest.raises(Duplicate):
            await keyed.options(connection=connection, on_duplicate="raise").submit("k")
        replacing = keyed.options(connection=connection, on_duplicate="replace", queue="other", priority=90)
        swapped = [await replacing.submit("k"), await replacing.options(delay=0.1).submit("k")]
        assert [(handle.id, handle.replaced) for handle in swapped] == [(first.id, True)] * 2
        with pytest.raises(NotCommitted):
            await one.result(timeout=45)
        assert (await app.stats.counts()).statuses == {}
    assert [event.verb for event in (await app.jobs.history(first.id)).events] == ["replace"] * 2
    assert (await app.jobs.get(first.id)).queue == "other"
    async with app.worker():
        assert await one.result(timeout=45) == 3
        assert [await handle.result(timeout=45) for handle in (other, *more)] == [6, 1, 2, 3]
        assert await twin.result(timeout=45) == "k"
    with suppress(Undone):
        async with ASYNC[kind]() as connection:
            undone = await add.options(connection=connection).submit(1, 2)
            raise Undone
    with pytest.raises(NotCommitted):
        await undone.refresh()


@pytest.mark.variants
@pytest.mark.parametrize("kind", BLOCKING)
def test_a_job_of_a_blocking_transaction(kind: str, shop: Shop) -> None:
    app = shop.app
    try:
        with BLOCKING[kind]() as connection:
            within = shop.add.options(connection=connection)
            one = within.submit_sync(1, 2)
            other = app.wait(app.draft("add", {"a": 5}, connection=connection)).submit_sync()
            first, twin = [shop.keyed.options(connection=connection).submit_sync("k") for _ in range(2)]
            assert (first.duplicate, twin.duplicate, twin.id) == (False, True, first.id)
            swapped = shop.keyed.options(connection=connection, on_duplicate="replace", queue="other").submit_sync("k")
            assert (swapped.id, swapped.replaced) == (first.id, True)
            with pytest.raises(NotCommitted):
                app.wait(one.result(timeout=45))
        for handle in (one, other, first, twin):
            assert app.wait(handle.refresh()).status is Status.QUEUED
        with suppress(Undone), BLOCKING[kind]() as connection:
            undone = shop.add.options(connection=connection).submit_sync(1, 2)
            raise Undone
        with pytest.raises(NotCommitted):
            app.wait(undone.refresh())
        assert app.wait(app.stats.counts()).statuses == {Status.QUEUED: 3}
    finally:
        close()


def test_what_must_be_awaited_is_refused_by_the_blocking_form(shop: Shop) -> None:
    async def connect() -> Any:
        return await psycopg.AsyncConnection.connect(dsn())

    try:
        connection = shop.app.wait(connect())
        with pytest.raises(ConfigError, match="must be awaited"):
            shop.add.options(connection=connection).submit_sync(1)
        shop.app.wait(connection.close())
    finally:
        close()


async def test_a_key_that_is_held_does_not_abort_the_transaction(opened: Shop) -> None:
    holder = await opened.keyed.submit("k")
    async with ASYNC["asyncpg"]() as connection:
        again = await opened.keyed.options(connection=connection).submit("k")
        assert (again.duplicate, again.id) == (True, holder.id)
        await connection.execute(f"CREATE TABLE {opened.schema}.mine AS SELECT 1 AS one")
        fresh = await opened.keyed.options(connection=connection).submit("l")
    assert (await fresh.refresh()).status is Status.QUEUED
    assert shared().execute(f"SELECT one FROM {opened.schema}.mine", database()) == [(1,)]


async def test_a_waiting_worker_hears_of_the_commit(opened: Shop) -> None:
    async with opened.app.worker():
        await (await opened.add.submit(1)).result(timeout=45)
        async with ASYNC["asyncpg"]() as connection:
            handle = await opened.add.options(connection=connection).submit(1)
        assert await handle.result(timeout=45) == 2


@pytest.mark.variants
@pytest.mark.parametrize("kind", ASYNC)
async def test_a_job_is_completed_by_an_awaited_transaction(kind: str, opened: Shop) -> None:
    app = opened.app

    @app.task
    async def pay(ctx: Context, commit: bool) -> str:
        with suppress(Undone):
            async with ASYNC[kind]() as connection:
                await ctx.complete("paid", connection=connection)
                if not commit:
                    raise Undone
        return "not paid"

    async with app.worker():
        assert await asyncio.wait_for(pay.run(True), 45) == "paid"
        assert await asyncio.wait_for(pay.run(False), 45) == "not paid"


@pytest.mark.variants
@pytest.mark.parametrize("kind", BLOCKING)
async def test_a_job_is_completed_by_a_blocking_transaction(kind: str, opened: Shop) -> None:
    app = opened.app

    @app.task
    def pay(ctx: Context, commit: bool) -> str:
        with suppress(Undone), BLOCKING[kind]() as connection:
            ctx.complete_sync("paid", connection=connection)
            if not commit:
                raise Undone
        return "not paid"

    async with app.worker():
        assert await asyncio.wait_for(pay.run(True), 45) == "paid"
        assert await asyncio.wait_for(pay.run(False), 45) == "not paid"


@pytest.mark.timeout(240)
async def test_many_transactions_of_handlers_do_not_wait_for_each_other_for_ever(opened: Shop) -> None:
    app = opened.app
    gate, inside = asyncio.Event(), set[int]()

    @app.task
    async def child() -> str:
        return "done"

    @app.task
    async def parent(ctx: Context, n: int) -> str:
        async with ctx.transaction() as tx:
            inside.add(n)
            if len(inside) == 8:
                gate.set()
            await asyncio.wait_for(gate.wait(), 90)  # all of them are in a transaction; one that is tried again was
            # A pair of task and requirements that nobody has seen: it is made known in a commit of its own.
            within = child.options(connection=tx.connection, requires={"gpu": n})
            handle = await asyncio.wait_for(within.submit(), 90)
            tx.complete(str(handle.id))
        return "ignored"

    async with app.worker(concurrency=8):
        handles = await parent.map([(n,) for n in range(8)])
        ids = [await handle.result(timeout=200) for handle in handles]
        assert [(await app.jobs.get(id)).status for id in ids] == [Status.QUEUED] * 8


async def test_a_start_that_waits_for_the_transaction_does_not_keep_it_from_completing(opened: Shop) -> None:
    app = opened.app

    @app.task
    async def child() -> str:
        return "done"

    @app.task
    async def parent(ctx: Context) -> str:
        owned = worker._slots.owned[ctx.job_id.int]
        async with ctx.transaction() as tx:
            handle = await child.options(connection=tx.connection).submit()
            # The transaction has the row of its job now. A start that was left out is written before a second is over,
            # and cannot be while that is so.
            await until(lambda: owned._flying is not None)
            tx.complete(str(handle.id))
        return "ignored"

    async with app.worker() as worker:
        job = await parent.submit()
        id = await job.result(timeout=30)
        assert await app.jobs.handle(id).result(timeout=30) == "done"
    [attempt] = (await app.jobs.history(job.id)).attempts
    assert (attempt.outcome, attempt.number) == (Outcome.COMPLETED, 1)


async def test_a_commit_that_is_cut_off_is_settled_by_looking(opened: Shop) -> None:
    app, schema = opened.app, opened.schema
    shared().execute(f"CREATE TABLE {schema}.till (job text)", database())
    # The commit takes its time, and is cut off in the middle of it.
    dawdle = "RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(30); RETURN NULL; END'"
    shared().execute(f"CREATE FUNCTION {schema}.dawdle() {dawdle}", database())
    late = f"AFTER INSERT ON {schema}.till DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN (new.job LIKE '% 1')"
    shared().execute(f"CREATE CONSTRAINT TRIGGER late {late} EXECUTE FUNCTION {schema}.dawdle()", database())
    cut: list[asyncio.Task[None]] = []
    errors: list[Exception] = []

    @app.task(retry=Retry(3, backoff="fixed", initial=0.0))
    async def pay(ctx: Context) -> str:
        async def cut_off(pid: int) -> None:
            dawdling = f"SELECT 1 FROM pg_stat_activity WHERE pid = {pid} AND wait_event = 'PgSleep'"
            await until(lambda: shared().execute(dawdling, database()))
            shared().execute(f"SELECT pg_terminate_backend({pid})", database())

        try:
            async with ctx.transaction() as tx:
                await tx.connection.execute(f"INSERT INTO {schema}.till VALUES ($1)", f"{ctx.job_id} {ctx.attempt}")
                if ctx.attempt == 1:
                    cut.append(asyncio.create_task(cut_off(tx.connection.get_server_pid())))
                tx.complete(f"attempt {ctx.attempt}")
        except Exception as error:
            errors.append(error)
            raise
        return "ignored"

    async with app.worker():
        handle = await pay.submit()
        assert await handle.result(timeout=40) == "attempt 2"
    await cut[0]
    assert [type(error) for error in errors] == [Unavailable]
    assert shared().execute(f"SELECT job FROM {schema}.till", database()) == [(f"{handle.id} 2",)]


async def test_a_connection_that_is_cut_before_the_completion_fails_the_attempt(opened: Shop) -> None:
    app = opened.app

    @app.task(retry=Retry(3, backoff="fixed", initial=0.0))
    async def pay(ctx: Context) -> str:
        async with ctx.transaction() as tx:
            if ctx.attempt == 1:
                shared().execute(f"SELECT pg_terminate_backend({tx.connection.get_server_pid()})", database())
            tx.complete(f"attempt {ctx.attempt}")
        return "ignored"

    async with app.worker():
        assert await asyncio.wait_for(pay.run(), 40) == "attempt 2"


async def test_whoever_replaces_waits_for_a_transaction_that_has_the_holder(opened: Shop) -> None:
    replacing = opened.keyed.options(on_duplicate="replace", delay=3600)
    holder = await replacing.submit("k")
    async with ASYNC["asyncpg"]() as connection:
        inner = await replacing.options(connection=connection, priority=60).submit("k")
        outer = asyncio.ensure_future(replacing.options(priority=70).submit("k"))
        plain = await opened.add.submit(1)
        assert (plain.duplicate, inner.replaced, outer.done()) == (False, True, False)
    assert ((await outer).id, (await outer).replaced) == (holder.id, True)
    details = [event.details or {} for event in (await opened.app.jobs.history(holder.id)).events]
    assert [one["to_priority"] for one in details] == [60, 70]
    assert (await opened.app.store.verify()).ok


async def test_a_running_holder_lets_go_within_a_transaction(opened: Shop) -> None:
    app, going, reached = opened.app, asyncio.Event(), asyncio.Event()

    @app.task(dedup="slow", on_duplicate="replace")
    async def slow(n: int) -> int:
        reached.set()
        await going.wait()
        return n

    async with app.worker():
        first = await slow.submit(1)
        await reached.wait()
        async with ASYNC["asyncpg"]() as connection:
            within = slow.options(connection=connection)
            second, third = await within.submit(2), await within.submit(3)
            assert (second.duplicate, third.id, third.replaced) == (False, second.id, True)
        going.set()
        assert [await first.result(timeout=45), await second.result(timeout=45)] == [1, 3]
    assert (await app.store.verify()).ok
