"""Pools of connections, of several kinds: each connects when needed, up to its size."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, NoReturn, cast

import asyncpg

from headrace.engines.postgres.connection import Connection, raise_meaning, sql
from headrace.engines.sql.files import Fetch
from headrace.errors import NotOpen
from headrace.runtime.host import Host

__all__ = ["COLD", "HOT", "LONG_PATIENCE", "WARM", "Pool", "connect_once", "fetching"]

_OUR_TRANSACTIONS = {
    # After a wait for a lock, the next statement must see what was committed meanwhile, whatever the defaults of the
    # role and the database are.
    "default_transaction_isolation": "read committed",
    "default_transaction_read_only": "off",
}

_NOT_FOR_LONG = {
    # A claim locks the gates of its tasks, and an insert its keys. A process that is halted or cut off within such a
    # transaction must not keep them locked.
    "idle_in_transaction_session_timeout": "5s",
}

_DOWN_THE_INDEX = {
    # The few statements of the hot path have one sensible plan each: down the index, row by row. The planner may think
    # otherwise of a table that was empty when it last looked.
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "enable_material": "off",
    "jit": "off",
    # A job that a user's transaction has locked must not keep all the others waiting for long.
    "lock_timeout": "1s",
}
HOT = {"plan_cache_mode": "force_generic_plan", **_DOWN_THE_INDEX, **_NOT_FOR_LONG, **_OUR_TRANSACTIONS}
"""Settings for statements that leave the planner no choice: they are planned once, and their plans are kept."""
WARM = HOT
"""Settings for joins of a batch with a table.

On an empty table every join order costs the same. So these statements are planned anew every second (``replan``), for
the table as it is by then.
"""
COLD = {"plan_cache_mode": "force_custom_plan", "jit": "off", **_NOT_FOR_LONG, **_OUR_TRANSACTIONS}
"""Settings for all other statements."""

_PATIENCE = 30.0
"""Seconds for a statement; after that the connection counts as broken."""
_REPLAN = 1.0
LONG_PATIENCE = 300.0
"""Seconds for a statement that may have to look at every job, or is the user's."""


class _Connection(Connection):
    """A connection that is not reset when it goes back to the pool.

    Nothing is left behind on it, and a reset would be a round trip.
    """

    planned_at = float("-inf")
    """When its plans were last discarded (monotonic)."""

    def get_reset_query(self) -> str:
        return ""

    async def replan(self, now: float) -> None:
        """Discard the plans if they are old."""
        if now - self.planned_at > _REPLAN:
            self.planned_at = now
            await self.execute("DISCARD PLANS")


class Pool:
    """The connections of one kind that a session has."""

    def __init__(
        self,
        url: str,
        *,
        size: int,
        settings: Mapping[str, str],
        pgbouncer: bool,
        long: bool = False,
        replan: Host | None = None,
    ) -> None:
        self._url, self._size, self._pgbouncer, self._replan = url, size, pgbouncer, replan
        self._settings = dict(settings)
        # PgBouncer keeps no settings for a client, so each transaction sets them again.
        said = [f"SET LOCAL {name} = '{value}'" for name, value in settings.items() if name not in _OUR_TRANSACTIONS]
        self._say = ";".join(["SET TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE", *said])
        self._say_to_read = ";".join(said)
        self._patience = LONG_PATIENCE if long else _PATIENCE
        self._pool: asyncpg.Pool[asyncpg.Record] | None = None

    async def open(self) -> None:
        """Open the pool; it connects when the first statement comes."""
        self._pool = await asyncpg.create_pool(
            self._url,
            min_size=0,
            max_size=self._size,
            connection_class=_Connection,
            max_inactive_connection_lifetime=120.0,
            command_timeout=self._patience,
            timeout=10.0,
            **_kept({} if self._pgbouncer else self._settings, self._pgbouncer),
        )

    async def close(self) -> None:
        """Close all connections, even those in use."""
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.terminate()

    async def fetch(self, text: str, *args: Any, patience: float | None = None) -> list[Any]:
        """The rows of one statement, run in a transaction of its own; ``patience``: another timeout, in seconds."""
        connection, pool = await self._take()
        try:
            if self._pgbouncer:  # without a transaction, parsing and running might reach two sessions of the server
                async with connection.transaction():
                    await connection.execute(self._say, timeout=patience)
                    return await connection.fetch(text, *args, timeout=patience)
            if self._replan is not None:
                await cast("_Connection", connection).replan(self._replan.clock.monotonic())
            return await connection.fetch(text, *args, timeout=patience)
        except Exception as error:
            _broken(connection, error)
        finally:
            await pool.release(connection, timeout=self._patience)

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        """A connection for the block; errors of the driver are raised as what they mean."""
        async with self._taken() as connection:
            try:
                yield connection
            except Exception as error:
                _broken(connection, error)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Connection]:
        """A connection in a transaction that ends with the block; errors of the driver are raised as what they mean."""
        async with self.connection() as connection, connection.transaction():
            if self._pgbouncer:
                await connection.execute(self._say)
            yield connection

    @asynccontextmanager
    async def snapshot(self) -> AsyncIterator[Connection]:
        """``transaction``, where nothing is written, and all statements see the same moment."""
        async with self.connection() as connection, connection.transaction(isolation="repeatable_read", readonly=True):
            if self._pgbouncer:
                await connection.execute(self._say_to_read)
            yield connection

    @asynccontextmanager
    async def lent(self) -> AsyncIterator[Connection]:
        """A connection for the user, in a transaction that ends with the block; what the block raises is passed on."""
        async with self._taken() as connection:
            transaction = connection.transaction()
            try:
                await transaction.start()
            except Exception as error:
                raise_meaning(error, sent=False)
            try:
                yield connection
            except BaseException:
                if not connection.is_closed():
                    await transaction.rollback()
                raise
            try:
                await transaction.commit()
            except Exception as error:
                raise_meaning(error)

    @asynccontextmanager
    async def _taken(self) -> AsyncIterator[Connection]:
        connection, pool = await self._take()
        try:
            yield connection
        finally:
            await pool.release(connection, timeout=self._patience)

    async def _take(self) -> tuple[Connection, Any]:
        """A connection, or its proxy, and the pool to give it back to."""
        pool = self._pool
        if pool is None:
            raise NotOpen("this session of the PostgreSQL engine is not open")
        try:
            return await pool.acquire(timeout=self._patience), pool  # type: ignore[return-value]
        except Exception as error:
            raise_meaning(error, sent=False)


def _broken(connection: Connection, error: Exception) -> NoReturn:
    # After a timeout its answer may still come; after an error within the driver nothing more can be asked on it.
    if isinstance(error, TimeoutError | asyncpg.exceptions.InternalClientError):
        connection.terminate()
    raise_meaning(error)


def fetching(pool: Pool, schema: str) -> Fetch:
    """A function that runs statements by name on connections of this pool."""

    async def fetch(name: str, *args: Any) -> list[Any]:
        return await pool.fetch(sql(name, schema), *args)

    return fetch


async def connect_once(url: str, *, pgbouncer: bool = False, timeout: float = 10.0) -> Connection:
    """A connection outside of any pool; the caller closes it."""
    try:
        return await asyncpg.connect(url, timeout=timeout, **_kept({}, pgbouncer))
    except Exception as error:
        raise_meaning(error, sent=False)


def _kept(settings: Mapping[str, str], pgbouncer: bool) -> dict[str, Any]:
    kept: dict[str, Any] = {"server_settings": {"application_name": "headrace", **settings}}
    return kept | ({"statement_cache_size": 0} if pgbouncer else {})
