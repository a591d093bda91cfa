"""Jobs submitted in a transaction of the user's, under the harness: stored by the commit, on real databases."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import apsw
import asyncpg
import pytest
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session

from headrace import App
from headrace.errors import ConfigError, NotCommitted, NotSupported
from headrace.testing import Harness, StoredAtOnce, harness
from tests.support.doors import ASYNC, BLOCKING, django_proxy, dsn

app = App("postgresql://127.0.0.1:1/never-touched")
done: list[int] = []


@app.task
async def receipt(order: int) -> int:
    done.append(order)
    return order


@app.task(dedup="once")
async def once(order: int) -> int:
    return order


class Undone(Exception):
    """Why a test rolls back."""


@contextmanager
def told(kind: str) -> Iterator[None]:
    """psycopg has no hook for a commit, so that its jobs are stored at once, with a warning."""
    if kind.startswith("psycopg."):
        with pytest.warns(StoredAtOnce, match="psycopg"):
            yield
    else:
        yield


@pytest.mark.parametrize("kind", ASYNC)
async def test_a_commit_stores_the_job(kind: str) -> None:
    async with harness(app) as h:
        with told(kind):
            async with ASYNC[kind]() as connection:
                handle = await receipt.options(connection=connection).submit(7)
                if not kind.startswith("psycopg."):
                    assert h.submitted == []
                    with pytest.raises(NotCommitted):
                        await handle.refresh()
        assert h.assert_submitted(receipt).id == handle.id
        assert await h.drain() == 1
        assert await handle.result() == 7


@pytest.mark.parametrize("kind", [one for one in ASYNC if not one.startswith("psycopg.")])
async def test_a_rollback_leaves_no_job(kind: str) -> None:
    async with harness(app) as h:
        with suppress(Undone):
            async with ASYNC[kind]() as connection:
                await receipt.options(connection=connection).submit(7)
                raise Undone
        h.assert_not_submitted(receipt)
        assert await h.drain() == 0


def used(kind: str, handles: list[Any], error: Exception | None = None) -> None:
    with BLOCKING[kind]() as connection:
        handles.append(receipt.options(connection=connection).submit_sync(7))
        if error is not None:
            raise error


@pytest.mark.parametrize("kind", BLOCKING)
async def test_a_commit_on_the_thread_of_a_program_stores_the_job(kind: str) -> None:
    handles = list[Any]()
    async with harness(app) as h:
        with told(kind):
            await asyncio.to_thread(used, kind, handles)
        assert h.assert_submitted(receipt, 7).id == handles[0].id


@pytest.mark.parametrize("kind", [one for one in BLOCKING if not one.startswith("psycopg.")])
async def test_a_rollback_on_the_thread_of_a_program_leaves_no_job(kind: str) -> None:
    async with harness(app) as h:
        with suppress(Undone):
            await asyncio.to_thread(used, kind, [], Undone())
        h.assert_not_submitted(receipt)


async def test_a_commit_is_seen_in_the_very_next_line() -> None:
    connection = await asyncpg.connect(dsn())
    try:
        async with harness(app) as h:
            async with connection.transaction():
                await receipt.options(connection=connection).submit(7)
            h.assert_submitted(receipt, 7)
            with suppress(Undone):
                async with connection.transaction():
                    await receipt.options(connection=connection).submit(8)
                    raise Undone
            async with connection.transaction():
                await receipt.options(connection=connection).submit(9)
            assert [job.payload for job in h.submitted] == [{"order": 7}, {"order": 9}]
    finally:
        await connection.close()


# -- savepoints


async def test_a_savepoint_that_is_rolled_back_takes_its_jobs_along_on_asyncpg() -> None:
    connection = await asyncpg.connect(dsn())
    try:
        async with harness(app) as h:
            async with connection.transaction():
                task = receipt.options(connection=connection)
                await task.submit(1)
                with suppress(Undone):
                    async with connection.transaction():
                        await task.submit(2)
                        raise Undone
                async with connection.transaction():
                    await task.submit(3)
            assert [job.payload["order"] for job in h.submitted] == [1, 3]
    finally:
        await connection.close()


async def nested(h: Harness, session: Any, begin: Any) -> None:
    task = receipt.options(connection=session)
    await task.submit(1)
    with suppress(Undone), begin():
        await task.submit(2)
        raise Undone
    with begin():
        await task.submit(3)
        with suppress(Undone), begin():
            await task.submit(4)
            raise Undone
    assert h.submitted == []


async def test_a_savepoint_that_is_rolled_back_takes_its_jobs_along_on_sqlalchemy() -> None:
    engine = create_engine("sqlite://")
    async with harness(app) as h:
        with Session(engine) as session, session.begin():
            await nested(h, session, session.begin_nested)
        assert [job.payload["order"] for job in h.submitted] == [1, 3]
    async with harness(app) as h:
        with engine.begin() as connection:
            await nested(h, connection, connection.begin_nested)
        assert [job.payload["order"] for job in h.submitted] == [1, 3]


def in_atomic_blocks() -> None:
    from django.db import transaction

    with django_proxy() as connection:
        task = receipt.options(connection=connection)
        task.submit_sync(1)
        with suppress(Undone), transaction.atomic():
            task.submit_sync(2)
            raise Undone
        with transaction.atomic():
            task.submit_sync(3)


async def test_a_savepoint_that_is_rolled_back_takes_its_jobs_along_on_django() -> None:
    async with harness(app) as h:
        await asyncio.to_thread(in_atomic_blocks)
        assert [job.payload["order"] for job in h.submitted] == [1, 3]


# -- sessions of tests


async def test_a_session_within_a_transaction_that_a_test_rolls_back_stores_what_it_commits() -> None:
    engine = create_async_engine(dsn().replace("postgresql://", "postgresql+asyncpg://", 1))
    async with harness(app) as h, engine.connect() as connection:
        outer = await connection.begin()
        async with AsyncSession(connection, join_transaction_mode="create_savepoint") as session:
            await receipt.options(connection=session).submit(1)
            await session.commit()
            h.assert_submitted(receipt, 1)
            await receipt.options(connection=session).submit(2)
        assert len(h.submitted) == 1, "closed without a commit"
        await outer.rollback()
    await engine.dispose()


# -- SQLite


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[apsw.Connection]:
    connection = apsw.Connection(str(tmp_path / "shop.db"))
    connection.execute("CREATE TABLE orders (number INTEGER)")
    yield connection
    connection.close()


@pytest.mark.parametrize("writes", [True, False], ids=["with rows", "without rows"])
async def test_a_commit_of_sqlite_stores_the_job(shop: apsw.Connection, writes: bool) -> None:
    async with harness(app) as h:
        with shop:
            if writes:
                shop.execute("INSERT INTO orders VALUES (7)")
            handle = await receipt.options(connection=shop).submit(7)
            assert h.submitted == []
        assert h.assert_submitted(receipt, 7).id == handle.id
        with suppress(Undone), shop:
            if writes:
                shop.execute("INSERT INTO orders VALUES (8)")
            await receipt.options(connection=shop).submit(8)
            raise Undone
        assert len(h.submitted) == 1
    with shop:  # the harness has left
        shop.execute("INSERT INTO orders VALUES (9)")
    assert shop.execute("SELECT count(*) FROM orders").get == (2 if writes else 1)


async def test_a_savepoint_that_is_rolled_back_takes_its_jobs_along_on_sqlite(shop: apsw.Connection) -> None:
    async with harness(app) as h:
        with shop:
            await nested(h, shop, lambda: shop)
        assert [job.payload["order"] for job in h.submitted] == [1, 3]


async def test_jobs_run_by_themselves_after_the_commit_if_they_are_inline(shop: apsw.Connection) -> None:
    done.clear()
    async with harness(app, inline=True):
        with shop:
            shop.execute("INSERT INTO orders VALUES (7)")
            await receipt.options(connection=shop).submit(7)
            assert done == []
    assert done == [7]


async def test_a_key_that_is_held_is_told_before_the_commit(shop: apsw.Connection) -> None:
    async with harness(app) as h:
        held = await once.submit(1)
        with shop:
            again = await once.options(connection=shop).submit(2)
            assert (again.id, again.duplicate) == (held.id, True)
        await h.drain()
        with shop:
            first = await once.options(connection=shop).submit(3)
            assert (await once.options(connection=shop).submit(4)).id == first.id
        await h.drain()
        with suppress(Undone), shop:
            await once.options(connection=shop).submit(5)
            raise Undone
        with shop:
            assert not (await once.options(connection=shop).submit(6)).duplicate, "the key of a rollback is free"
        assert [job.payload["order"] for job in h.submitted] == [1, 3, 6]


async def test_what_real_stores_refuse_is_refused(shop: apsw.Connection) -> None:
    async with harness(app) as h:
        with pytest.raises(ConfigError, match="no transaction is open"):
            await receipt.options(connection=shop).submit(1)
        with pytest.raises(NotSupported, match="takes a builtins"):
            await receipt.options(connection=1).submit(1)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            await receipt.submit(1)
        assert len(h.submitted) == 1
