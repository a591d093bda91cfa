"""Connections: as many as are needed at once, no more than allowed, of several kinds."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, NoReturn, cast

import asyncpg

from headrace.engines.postgres.connection import Connection, raise_meaning, sql
from headrace.engines.sql.roles import Fetch
from headrace.errors import NotOpen
from headrace.runtime.host import Host

__all__ = ["COLD", "HOT", "LONG_PATIENCE", "WARM", "Pool", "connect_once", "fetching"]

_OUR_TRANSACTIONS = {
    # What was waited for must be seen, whatever the role or the database defaults to.
    "default_transaction_isolation": "read committed",
    "default_transaction_read_only": "off",
}

_NOT_FOR_LONG = {
    # A claim holds the gates of its tasks, an insert keys: whoever is stopped or cut off halfway must not keep them.
    "idle_in_transaction_session_timeout": "5s",
}

_DOWN_THE_INDEX = {
    # The few statements of the hot path have one sensible plan each: down the index, row by row, whatever the planner
    # believes of a table it last looked at while it was empty.
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "enable_material": "off",
    "jit": "off",
    # A job that a transaction of the user's holds must not hold up all the others for long.
    "lock_timeout": "1s",
}
HOT = {"plan_cache_mode": "force_generic_plan", **_DOWN_THE_INDEX, **_NOT_FOR_LONG, **_OUR_TRANSACTIONS}
"""For statements that leave the planner no choice: planned once, and kept."""
WARM = HOT
"""For joins with a table that changes: for an empty one every order of joining costs the same, so these are planned
anew every second (``replan``), for the table as it is by then."""
COLD = {"plan_cache_mode": "force_custom_plan", "jit": "off", **_NOT_FOR_LONG, **_OUR_TRANSACTIONS}
"""For all the others."""

_PATIENCE = 30.0
"""Seconds for a statement, beyond which the way to the server counts as broken."""
_REPLAN = 1.0
LONG_PATIENCE = 300.0
"""Seconds for one that may have to look at every job, or is the user's."""


class _Connection(Connection):
    """Nothing is left behind on a connection, so nothing is reset when it goes back: that would be a round trip."""

    planned_at = float("-inf")
    """When the plans on it were last thrown away (monotonic)."""

    def get_reset_query(self) -> str:
        return ""

    async def replan(self, now: float) -> None:
        """Throw the plans away if they are old."""
        if now - self.planned_at > _REPLAN:
            self.planned_at = now
            await self.execute("DISCARD PLANS")


class Pool:
    """The connections of one session of one kind."""

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
        # A pooler in between keeps no settings and no statements for us: they are said again in each transaction.
        said = [f"SET LOCAL {name} = '{value}'" for name, value in settings.items() if name not in _OUR_TRANSACTIONS]
        self._say = ";".join(["SET TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE", *said])
        self._patience = LONG_PATIENCE if long else _PATIENCE
        self._pool: asyncpg.Pool[asyncpg.Record] | None = None

    async def open(self) -> None:
        """Make ready; connects when the first statement comes."""
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
        """Close every connection, those in use as well."""
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.terminate()

    async def fetch(self, text: str, *args: Any, patience: float | None = None) -> list[Any]:
        """The rows one statement answers, in a transaction of its own; ``patience`` if it cannot wait for as long."""
        connection, pool = await self._take()
        try:
            if self._pgbouncer:  # otherwise parsing and running might meet two different sessions of the server
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
        """A connection for a moment; errors come out as what they mean."""
        async with self._taken() as connection:
            try:
                yield connection
            except Exception as error:
                _broken(connection, error)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Connection]:
        """A connection in a transaction that ends with the block; errors come out as what they mean."""
        async with self.connection() as connection, connection.transaction():
            if self._pgbouncer:
                await connection.execute(self._say)
            yield connection

    @asynccontextmanager
    async def lent(self) -> AsyncIterator[Connection]:
        """A connection for the user, in a transaction that ends with the block; what the block raises is the user's."""
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
        """A connection, or what stands in for one, and the pool to give it back to."""
        pool = self._pool
        if pool is None:
            raise NotOpen("this session of the PostgreSQL engine is not open")
        try:
            return await pool.acquire(timeout=self._patience), pool  # type: ignore[return-value]
        except Exception as error:
            raise_meaning(error, sent=False)


def _broken(connection: Connection, error: Exception) -> NoReturn:
    # Its answer is not waited for any more, or nothing can be asked on it.
    if isinstance(error, TimeoutError | asyncpg.exceptions.InternalClientError):
        connection.terminate()
    raise_meaning(error)


def fetching(pool: Pool, schema: str) -> Fetch:
    """Runs statements by name on connections of this pool."""

    async def fetch(name: str, *args: Any) -> list[Any]:
        return await pool.fetch(sql(name, schema), *args)

    return fetch


async def connect_once(url: str, *, pgbouncer: bool = False, timeout: float = 10.0) -> Connection:
    """A connection outside of any pool; its user closes it."""
    try:
        return await asyncpg.connect(url, timeout=timeout, **_kept({}, pgbouncer))
    except Exception as error:
        raise_meaning(error, sent=False)


def _kept(settings: Mapping[str, str], pgbouncer: bool) -> dict[str, Any]:
    kept: dict[str, Any] = {"server_settings": {"application_name": "headrace", **settings}}
    return kept | ({"statement_cache_size": 0} if pgbouncer else {})
