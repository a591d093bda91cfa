"""Transactions of the user's on PostgreSQL, by every driver: committed at the end of the block, or rolled back."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, contextmanager
from typing import Any

import asyncpg
import psycopg
from sqlalchemy import create_engine
from sqlalchemy.ext.asyncio import AsyncSession, async_scoped_session, async_sessionmaker, create_async_engine
from sqlalchemy.orm import Session, scoped_session, sessionmaker
from sqlalchemy.pool import NullPool

from tests.support.servers.postgres import shared


@functools.cache
def database() -> str:
    """A database for all tests of this process, in which each keeps to names of its own: Django is configured once."""
    return shared().create_database()


def dsn() -> str:
    """Where it is."""
    return shared().url(database())


def _alchemy(driver: str) -> str:
    return dsn().replace("postgresql://", f"postgresql+{driver}://", 1)


# What is awaited


@asynccontextmanager
async def asyncpg_connection() -> AsyncIterator[Any]:
    connection = await asyncpg.connect(dsn())
    try:
        async with connection.transaction():
            yield connection
    finally:
        await connection.close()


@asynccontextmanager
async def asyncpg_pool() -> AsyncIterator[Any]:
    async with (
        asyncpg.create_pool(dsn(), min_size=1, max_size=1) as pool,
        pool.acquire() as connection,
        connection.transaction(),
    ):
        yield connection


@asynccontextmanager
async def psycopg_async() -> AsyncIterator[Any]:
    async with await psycopg.AsyncConnection.connect(dsn(), row_factory=psycopg.rows.dict_row) as connection:
        yield connection


@asynccontextmanager
async def alchemy_async_session(driver: str = "asyncpg") -> AsyncIterator[Any]:
    engine = create_async_engine(_alchemy(driver), poolclass=NullPool)
    async with AsyncSession(engine) as session, session.begin():
        yield session


@asynccontextmanager
async def alchemy_async_scoped() -> AsyncIterator[Any]:
    engine = create_async_engine(_alchemy("asyncpg"), poolclass=NullPool)
    session = async_scoped_session(async_sessionmaker(engine), scopefunc=lambda: 1)
    try:
        async with session.begin():
            yield session
    finally:
        await session.remove()


@asynccontextmanager
async def alchemy_async_connection() -> AsyncIterator[Any]:
    engine = create_async_engine(_alchemy("psycopg"), poolclass=NullPool)
    async with engine.begin() as connection:
        yield connection


ASYNC: dict[str, Callable[[], AbstractAsyncContextManager[Any]]] = {
    "asyncpg": asyncpg_connection,
    "asyncpg pool": asyncpg_pool,
    "psycopg.AsyncConnection": psycopg_async,
    "AsyncSession on asyncpg": alchemy_async_session,
    "AsyncSession on psycopg": lambda: alchemy_async_session("psycopg"),
    "async_scoped_session": alchemy_async_scoped,
    "AsyncConnection": alchemy_async_connection,
}


# What is used on the thread of its owner


@contextmanager
def psycopg_blocking() -> Iterator[Any]:
    with psycopg.connect(dsn(), row_factory=psycopg.rows.dict_row) as connection:
        yield connection


@contextmanager
def psycopg_autocommit() -> Iterator[Any]:
    with psycopg.connect(dsn(), autocommit=True) as connection, connection.transaction():
        yield connection


@contextmanager
def alchemy_session() -> Iterator[Any]:
    with Session(create_engine(_alchemy("psycopg"), poolclass=NullPool)) as session, session.begin():
        yield session


@contextmanager
def alchemy_scoped() -> Iterator[Any]:
    session = scoped_session(sessionmaker(create_engine(_alchemy("psycopg"), poolclass=NullPool)))
    try:
        with session.begin():
            yield session
    finally:
        session.remove()


@contextmanager
def alchemy_connection() -> Iterator[Any]:
    with create_engine(_alchemy("psycopg"), poolclass=NullPool).begin() as connection:
        yield connection


@functools.cache
def _configure_django() -> None:
    import django
    from django.conf import settings

    with psycopg.connect(dsn()) as connection:
        info = connection.info
        place = {"HOST": info.host, "PORT": info.port, "NAME": info.dbname, "USER": info.user}
        password = info.password
    engine = "django.db.backends.postgresql"
    settings.configure(DATABASES={"default": place | {"ENGINE": engine, "PASSWORD": password}}, USE_TZ=True)
    django.setup()


@contextmanager
def django_proxy() -> Iterator[Any]:
    _configure_django()
    from django.db import connection, transaction

    try:
        with transaction.atomic():
            yield connection
    finally:
        connection.close()


@contextmanager
def django_wrapper() -> Iterator[Any]:
    _configure_django()
    from django.db import connections, transaction

    try:
        with transaction.atomic():
            yield connections["default"]
    finally:
        connections["default"].close()


BLOCKING: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "psycopg.Connection": psycopg_blocking,
    "psycopg.Connection, autocommit": psycopg_autocommit,
    "Session": alchemy_session,
    "scoped_session": alchemy_scoped,
    "Connection": alchemy_connection,
    "django.db.connection": django_proxy,
    "django.db.connections": django_wrapper,
}
