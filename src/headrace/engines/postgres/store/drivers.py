"""Statements on a user's connection to PostgreSQL, of any known driver.

A connection is recognized by the name of its class, so that no driver is imported that is not in use.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from headrace.engine.transactions import Enlisted, Statement, Statements, walk, walk_async
from headrace.errors import ConfigError, NotSupported, Unavailable

__all__ = ["Waiting", "enlist", "run_statements"]

T = TypeVar("T")

_PAUSES = (0.005, 0.01, 0.02)
"""Seconds between tries for a lock where waiting is not allowed: enough for a commit under way elsewhere."""

_bools = msgspec.json.Decoder(list[bool]).decode

_KNOWN = (
    "an asyncpg.Connection, a psycopg.Connection or AsyncConnection, a Session, AsyncSession, Connection or"
    " AsyncConnection of SQLAlchemy, or Django's connection"
)


def enlist(connection: Any) -> Enlisted:
    """Use a user's connection, within the transaction that is open on it.

    :raises NotSupported: its driver is not known, or it leads to no PostgreSQL
    :raises ConfigError: no transaction is open on it, and none begins by itself
    """
    for one in type(connection).__mro__:
        if (driver := _DRIVERS.get(f"{one.__module__}.{one.__qualname__}")) is not None:
            return driver(connection)
    kind = f"{type(connection).__module__}.{type(connection).__qualname__}"
    raise NotSupported(f"connection: the PostgreSQL engine takes {_KNOWN}, not a {kind}")


async def run_statements(connection: Any, statements: Statements[T]) -> T:
    """Run the statements on a connection of asyncpg."""

    async def execute(statement: Statement) -> str:
        answer: str = await connection.fetchval(_spelled(statement.sql, "$1"), statement.document)
        return answer

    return await walk_async(statements, execute)


def _spelled(sql: str, parameter: str) -> str:
    """Return the statement with the driver's form of parameter, cast to text: some drivers would encode other types."""
    return sql.replace("$1", f"{parameter}::text")


def _percented(sql: str) -> str:
    return _spelled(sql.replace("%", "%%"), "%s")


def _not_begun(how: str) -> ConfigError:
    return ConfigError(f"connection: no transaction is open on it: begin one first, as in {how}")


class _Async:
    """A connection with calls that are awaited."""

    blocking = False
    exclusive = False

    def run_blocking(self, statements: Statements[T]) -> T:
        raise ConfigError("connection: an asynchronous one cannot be used without its event loop: await the submit")


class Waiting(Statement, frozen=True):
    """A statement that takes locks, and waits for those that others have."""

    trying: str
    """The same statement without waiting, with the same parameter: it returns for each lock whether it was taken."""
    locked: Callable[[str], bool] = lambda answer: all(_bools(answer))
    """Whether a result says that all locks were taken."""


def _loop_runs_here() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


class _Blocking:
    """A connection that blocks, and is used on the thread of its owner."""

    blocking = True
    exclusive = False

    def _execute(self, statement: Statement) -> str:
        raise NotImplementedError

    def run_blocking(self, statements: Statements[T]) -> T:
        return walk(statements, self._try if _loop_runs_here() else self._execute)

    def _try(self, statement: Statement) -> str:
        """Execute on an event loop's thread without waiting: the holder of a lock may need this loop to release it."""
        if not isinstance(statement, Waiting):
            return self._execute(statement)
        for pause in (*_PAUSES, None):
            answer = self._execute(Statement(statement.trying, statement.document))
            if statement.locked(answer):
                return answer
            if pause is not None:
                time.sleep(pause)
        raise Unavailable(
            "another transaction that is still open holds this dedup key, or a job that this one belongs to or waits"
            " for, and a synchronous connection cannot wait for it on the thread of an event loop: try again, or use an"
            " asynchronous connection or another thread"
        )

    async def run(self, statements: Statements[T]) -> T:
        return self.run_blocking(statements)


class _Asyncpg(_Async):
    """A connection of asyncpg, or one from its pool."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        if not self.open:
            raise _not_begun("async with connection.transaction():")

    @property
    def open(self) -> bool:
        return bool(self._connection.is_in_transaction())

    async def run(self, statements: Statements[T]) -> T:
        return await run_statements(self._connection, statements)


class _Psycopg:
    """What both kinds of psycopg share."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        if connection.autocommit and not self.open:
            raise _not_begun("with connection.transaction():")

    @property
    def open(self) -> bool:
        return self._connection.info.transaction_status in (1, 2, 3)  # neither idle nor closed

    def _cursor(self) -> Any:
        from psycopg.rows import tuple_row

        return self._connection.cursor(row_factory=tuple_row)  # the user may have set another kind of row


class _PsycopgAsync(_Psycopg, _Async):
    """A ``psycopg.AsyncConnection``."""

    async def run(self, statements: Statements[T]) -> T:
        async def execute(statement: Statement) -> str:
            async with self._cursor() as cursor:
                await cursor.execute(_percented(statement.sql), (statement.document,))
                answer: str = (await cursor.fetchone())[0]
                return answer

        return await walk_async(statements, execute)


class _PsycopgBlocking(_Psycopg, _Blocking):
    """A ``psycopg.Connection``."""

    def _execute(self, statement: Statement) -> str:
        with self._cursor() as cursor:
            cursor.execute(_percented(statement.sql), (statement.document,))
            answer: str = cursor.fetchone()[0]
            return answer


class _Django(_Blocking):
    """A connection of Django, within ``transaction.atomic()``."""

    def __init__(self, connection: Any) -> None:
        # ``django.db.connection`` is another connection on every thread; its method is bound to that of this thread.
        self._connection = connection.cursor.__self__
        if self._connection.vendor != "postgresql":
            raise NotSupported(f"connection: it leads to {self._connection.vendor}, and the jobs are in PostgreSQL")
        # By the method, because the attribute means nothing before the first connect.
        if not self._connection.in_atomic_block and self._connection.get_autocommit():
            raise _not_begun("with transaction.atomic():")

    @property
    def open(self) -> bool:
        return bool(self._connection.in_atomic_block or not self._connection.autocommit)

    def _execute(self, statement: Statement) -> str:
        with self._connection.cursor() as cursor:
            cursor.execute(_percented(statement.sql), [statement.document])
            answer: str = cursor.fetchone()[0]
            return answer


def _text(statement: Statement) -> tuple[Any, dict[str, str]]:
    """Return a statement as SQLAlchemy takes it, with any driver; single colons, which are no parameters, escaped."""
    from sqlalchemy import bindparam, text
    from sqlalchemy.types import Text

    escaped = re.sub(r"(?<!:):(?!:)", r"\\:", statement.sql)
    clause = text(escaped.replace("$1", "CAST(:headrace_document AS text)"))
    return clause.bindparams(bindparam("headrace_document", type_=Text())), {"headrace_document": statement.document}


def _check_alchemy(connection: Any) -> None:
    """Refuse a connection to another database, or one in autocommit mode; takes a synchronous ``Connection``."""
    if connection.dialect.name != "postgresql":
        raise NotSupported(f"connection: it leads to {connection.dialect.name}, and the jobs are in PostgreSQL")
    if getattr(connection.connection.dbapi_connection, "autocommit", False) is True:
        raise ConfigError("connection: it commits each statement by itself (AUTOCOMMIT), so there is nothing to join")


class _Alchemy:
    """What sessions and connections of SQLAlchemy share; both begin a transaction by themselves."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    @property
    def open(self) -> bool:
        return bool(self._connection.in_transaction())


class _AlchemySession(_Alchemy, _Blocking):
    """A ``Session``."""

    def run_blocking(self, statements: Statements[T]) -> T:
        return _AlchemyConnection(self._connection.connection()).run_blocking(statements)


class _AlchemyConnection(_Alchemy, _Blocking):
    """A ``Connection``."""

    def run_blocking(self, statements: Statements[T]) -> T:
        _check_alchemy(self._connection)
        return super().run_blocking(statements)

    def _execute(self, statement: Statement) -> str:
        answer: str = self._connection.execute(*_text(statement)).scalar_one()
        return answer


class _AlchemyAsyncSession(_Alchemy, _Async):
    """An ``AsyncSession``."""

    async def run(self, statements: Statements[T]) -> T:
        return await _AlchemyAsyncConnection(await self._connection.connection()).run(statements)


class _AlchemyAsyncConnection(_Alchemy, _Async):
    """An ``AsyncConnection``."""

    async def run(self, statements: Statements[T]) -> T:
        _check_alchemy(self._connection.sync_connection)

        async def execute(statement: Statement) -> str:
            answer: str = (await self._connection.execute(*_text(statement))).scalar_one()
            return answer

        return await walk_async(statements, execute)


_DRIVERS: dict[str, Callable[[Any], Enlisted]] = {
    "asyncpg.connection.Connection": _Asyncpg,
    "asyncpg.pool.PoolConnectionProxy": _Asyncpg,
    "psycopg.Connection": _PsycopgBlocking,
    "psycopg.AsyncConnection": _PsycopgAsync,
    "sqlalchemy.orm.session.Session": _AlchemySession,
    "sqlalchemy.orm.scoping.scoped_session": lambda scoped: _AlchemySession(scoped()),
    "sqlalchemy.engine.base.Connection": _AlchemyConnection,
    "sqlalchemy.ext.asyncio.session.AsyncSession": _AlchemyAsyncSession,
    "sqlalchemy.ext.asyncio.scoping.async_scoped_session": lambda scoped: _AlchemyAsyncSession(scoped()),
    "sqlalchemy.ext.asyncio.engine.AsyncConnection": _AlchemyAsyncConnection,
    "django.db.backends.base.base.BaseDatabaseWrapper": _Django,
    "django.utils.connection.ConnectionProxy": _Django,
}
