"""Statements are carried by every driver, in the transaction that is open on the user's connection."""

from __future__ import annotations

import asyncio
import sqlite3
import uuid
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import asyncpg
import psycopg
import pytest
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.orm import Session

from headrace.engine.transactions import Statement, Statements
from headrace.engines.postgres.store.drivers import enlist
from headrace.errors import ConfigError, NotSupported
from tests.support.doors import ASYNC, BLOCKING, database, django_proxy, dsn
from tests.support.servers.postgres import shared

TEXTS = ["plain", "a 'quoted' :colon, 100 % and $1 ünï", '{"json": [1, null]}']


class Undone(Exception):
    """Why a test rolls back."""


@pytest.fixture
def table() -> Iterator[str]:
    """A table of the test's own."""
    name = f"notes_{uuid.uuid4().hex}"
    shared().execute(f"CREATE TABLE {name} (note text)", database())
    yield name
    shared().execute(f"DROP TABLE {name}", database())


def noting(table: str, *notes: str) -> Statements[list[str]]:
    """A write of several statements, each with everything in it that drivers stumble over."""
    answers = []
    for note in notes:
        sql = f"INSERT INTO {table} SELECT $1 WHERE ':x' <> '%s' AND 7 % 2 = '1'::int RETURNING '100 % :n ' || note"
        answers.append((yield Statement(sql, note)))
    return answers


def notes(table: str) -> list[str]:
    return [row[0] for row in shared().execute(f"SELECT note FROM {table}", database())]


@pytest.mark.variants
@pytest.mark.parametrize("kind", ASYNC)
async def test_steps_are_awaited_and_end_with_the_transaction(kind: str, table: str) -> None:
    async with ASYNC[kind]() as connection:
        enlisted = enlist(connection)
        assert (enlisted.blocking, enlisted.exclusive) == (False, False)
        assert await enlisted.run(noting(table, *TEXTS)) == [f"100 % :n {text}" for text in TEXTS]
        assert enlisted.open
        assert notes(table) == []
        with pytest.raises(ConfigError, match="event loop"):
            enlisted.run_blocking(noting(table, "never"))
    assert notes(table) == TEXTS
    with suppress(Undone):
        async with ASYNC[kind]() as connection:
            await enlist(connection).run(noting(table, "undone"))
            raise Undone
    assert notes(table) == TEXTS


@pytest.mark.variants
@pytest.mark.parametrize("kind", BLOCKING)
def test_steps_are_run_here_and_end_with_the_transaction(kind: str, table: str) -> None:
    with BLOCKING[kind]() as connection:
        enlisted = enlist(connection)
        assert (enlisted.blocking, enlisted.exclusive) == (True, False)
        assert enlisted.run_blocking(noting(table, *TEXTS)) == [f"100 % :n {text}" for text in TEXTS]
        opened = enlisted.open
        assert notes(table) == []
    assert (opened, enlisted.open) == (True, False)
    assert notes(table) == TEXTS
    with suppress(Undone), BLOCKING[kind]() as connection:
        enlist(connection).run_blocking(noting(table, "undone"))
        raise Undone
    assert notes(table) == TEXTS


@pytest.mark.variants
@pytest.mark.parametrize("kind", BLOCKING)
def test_an_error_of_the_driver_passes_through(kind: str, table: str) -> None:
    def wrong() -> Statements[None]:
        yield Statement("SELECT $1 FROM there_is_no_such_table", "x")

    with pytest.raises(Exception, match="there_is_no_such_table"), BLOCKING[kind]() as connection:
        enlist(connection).run_blocking(wrong())


# Without a transaction


async def test_a_connection_of_asyncpg_without_a_transaction_is_refused() -> None:
    connection = await asyncpg.connect(dsn())
    try:
        with pytest.raises(ConfigError, match="begin one first"):
            enlist(connection)
    finally:
        await connection.close()


def test_a_connection_of_psycopg_that_commits_by_itself_is_refused() -> None:
    with psycopg.connect(dsn(), autocommit=True) as connection, pytest.raises(ConfigError, match="begin one first"):
        enlist(connection)


def test_a_connection_of_django_outside_atomic_is_refused() -> None:
    with django_proxy():
        pass
    from django.db import connection

    try:
        with pytest.raises(ConfigError, match="atomic"):
            enlist(connection)
    finally:
        connection.close()


def test_a_connection_of_sqlalchemy_that_commits_by_itself_is_refused(table: str) -> None:
    engine = create_engine(dsn().replace("postgresql:", "postgresql+psycopg:"), isolation_level="AUTOCOMMIT")
    with engine.connect() as connection, pytest.raises(ConfigError, match="AUTOCOMMIT"):
        enlist(connection).run_blocking(noting(table, "never"))
    engine.dispose()
    assert notes(table) == []


async def test_an_asynchronous_one_that_commits_by_itself_is_refused(table: str) -> None:
    engine = create_async_engine(dsn().replace("postgresql:", "postgresql+asyncpg:"), isolation_level="AUTOCOMMIT")
    async with engine.connect() as connection:
        enlisted = enlist(connection)
        with pytest.raises(ConfigError, match="AUTOCOMMIT"):
            await enlisted.run(noting(table, "never"))
    await engine.dispose()
    assert notes(table) == []


# What is not known


@pytest.mark.parametrize("other", [object(), "postgresql://", 5], ids=["object", "url", "number"])
def test_what_is_no_connection_is_refused_with_what_would_be(other: Any) -> None:
    with pytest.raises(NotSupported, match=r"psycopg\.Connection.*Django.*not a builtins"):
        enlist(other)


def test_another_database_is_refused(table: str) -> None:
    connection = sqlite3.connect(":memory:")
    with pytest.raises(NotSupported, match=r"sqlite3\.Connection"):
        enlist(connection)
    connection.close()
    engine = create_engine("sqlite://")
    with Session(engine) as session, pytest.raises(NotSupported, match="leads to sqlite"):
        enlist(session).run_blocking(noting(table, "never"))
    engine.dispose()


def test_a_blocking_one_can_be_awaited_too(table: str) -> None:
    with BLOCKING["psycopg.Connection"]() as connection:
        assert asyncio.run(enlist(connection).run(noting(table, "a"))) == ["100 % :n a"]
    assert notes(table) == ["a"]
