"""Pools of connections, of several kinds: each connects when needed, up to its size.

The driver's pool makes a task and two timers whenever a connection is taken or given back, which takes longer than a
short statement. So a connection that worked without error is kept idle for the next statement. It goes back to the
driver's pool only if a caller waits there, if something went wrong on it, or if it was not needed for a while. A lone
statement runs on it as the driver's coroutine, without a task around it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, NoReturn, cast

import asyncpg
from asyncpg.prepared_stmt import PreparedStatement
from asyncpg.protocol import NO_TIMEOUT

from headrace.engines.postgres.store.connection import Connection, raise_meaning, sql
from headrace.engines.sql.templates import Fetch
from headrace.errors import NotOpen, Unavailable
from headrace.runtime.host import Host

__all__ = ["COLD", "HOT", "LONG_TIMEOUT_SECONDS", "SEARCH", "WARM", "Pool", "connect_once", "fetching", "step_through"]


def step_through(coroutine: Coroutine[Any, Any, Any], done: Callable[[Any, BaseException | None], None]) -> None:
    """Run a coroutine step by step, each as soon as its awaited future is done; ``done`` gets its result, or its error.

    A task would do the same, one round of the loop later. And a task could be cancelled: this runs to its end even if
    its caller stops waiting. For coroutines that wait for nothing but futures, such as a statement on a connection; in
    a coroutine that uses its current task, as ``asyncio.timeout`` does, that would be None or another task.
    """
    _Steps(coroutine, done).step()


class _Steps:
    """The state of a coroutine. Not a function that names itself: that is a cycle, which only the garbage collector
    breaks, and what a statement needed would stay in memory until some hundreds of others have come."""

    __slots__ = ("_coroutine", "_done")

    def __init__(self, coroutine: Coroutine[Any, Any, Any], done: Callable[[Any, BaseException | None], None]) -> None:
        self._coroutine, self._done = coroutine, done

    def step(self, _: object = None) -> None:
        result, error = None, None
        try:
            waited: asyncio.Future[Any] = self._coroutine.send(None)
        except StopIteration as end:
            result = end.value
        except BaseException as raised:
            error = raised
        else:
            waited.add_done_callback(self.step)
            return
        try:
            self._done(result, error)
        finally:
            if isinstance(error, KeyboardInterrupt | SystemExit):  # for the loop; but the caller gets it first
                raise error


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
    # The few statements of the hot path have one sensible plan each: down the index, row by row. The planner may choose
    # another for a table that was empty when it was last analyzed.
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
SEARCH = {**COLD, "enable_bitmapscan": "off"}
"""Settings for searches: they stop at a number of rows, while a bitmap is of all rows, however long history is."""

_STATEMENT_TIMEOUT_SECONDS = 30.0
"""Seconds for a statement; after that the connection counts as broken."""
_TICK_SECONDS = 0.001
"""Seconds by which a timer may fire too early."""
_REPLAN_SECONDS = 1.0
_UNUSED_SECONDS = 120.0
"""Seconds after which a connection that was not needed is closed; at most twice that."""
LONG_TIMEOUT_SECONDS = 300.0
"""Seconds for a statement that may have to read every job, or is the user's."""


class _Connection(Connection):
    """A connection that is not reset when it goes back to the pool.

    Nothing is left behind on it, and a reset would be a round trip.
    """

    planned_at = float("-inf")
    """When its plans were last discarded (monotonic)."""
    prepared: dict[str, PreparedStatement[asyncpg.Record]] | None = None
    """The statements that ``run_prepared`` keeps, by their texts."""

    def get_reset_query(self) -> str:
        return ""

    async def reset(self, *, timeout: float | None = None) -> None:
        self.prepared = None  # the driver treats it as void once the connection was in its pool
        await super().reset(timeout=timeout)

    def run_prepared(self, text: str, args: Sequence[Any]) -> Coroutine[Any, Any, list[Any]]:
        """Do ``fetch`` of a statement that runs repeatedly: the driver need not look it up each time, which takes a
        good part of the time of a statement. It has no timeout once it is prepared."""
        prepared = None if self.prepared is None else self.prepared.get(text)
        if prepared is None:
            return self._prepare_and_run(text, args)
        # What ``PreparedStatement.fetch`` calls in the end. What it does before that, on four levels of coroutines, is
        # to make sure that the connection did not go back to the pool: then it was reset, see there.
        running: Coroutine[Any, Any, list[Any]] = self._protocol.bind_execute(  # type: ignore[attr-defined]
            prepared._state,  # type: ignore[attr-defined]
            args,
            "",
            0,
            False,
            NO_TIMEOUT,
        )
        return running

    async def _prepare_and_run(self, text: str, args: Sequence[Any]) -> list[Any]:
        prepared = await self.prepare(text)
        if self.prepared is None:
            self.prepared = {}
        self.prepared[text] = prepared
        return await prepared.fetch(*args)

    async def replan(self, now: float) -> None:
        """Discard the plans if they are old."""
        if now - self.planned_at > _REPLAN_SECONDS:
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
        self._patience = LONG_TIMEOUT_SECONDS if long else _STATEMENT_TIMEOUT_SECONDS
        self._pool: asyncpg.Pool[asyncpg.Record] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._at_hand: list[Connection] = []
        """Idle connections of the pool; the last is taken first."""
        self._fewest = 0
        """How many of them, the first ones, were not needed since the last check."""
        self._looking: asyncio.TimerHandle | None = None
        self._releasing: set[asyncio.Future[None]] = set()
        self._begun: dict[Connection, tuple[float, Callable[[None, BaseException], None]]] = {}
        """The statements that ``begin`` has begun, by connection: when (by the loop's clock), and how to end them."""
        self._watching: asyncio.TimerHandle | None = None
        self._asking = 0
        """How many callers wait for a connection of the driver's pool."""

    async def open(self) -> None:
        """Open the pool; it connects with the first statement."""
        self._loop = asyncio.get_running_loop()
        self._pool = await asyncpg.create_pool(
            self._url,
            min_size=0,
            max_size=self._size,
            connection_class=_Connection,
            max_inactive_connection_lifetime=_UNUSED_SECONDS,
            command_timeout=self._patience,
            timeout=10.0,
            **_kept({} if self._pgbouncer else self._settings, self._pgbouncer),
        )

    async def close(self) -> None:
        """Close all connections, even those in use."""
        pool, self._pool = self._pool, None
        self._at_hand.clear()
        for timer in (self._looking, self._watching):
            if timer is not None:
                timer.cancel()
        self._looking = self._watching = None
        if pool is not None:
            pool.terminate()

    async def fetch(self, text: str, *args: Any, patience: float | None = None) -> list[Any]:
        """Return the rows of one statement, in a transaction of its own; ``patience``: another timeout, in seconds."""
        connection, pool = await self._take()
        well = False
        try:
            if self._pgbouncer:  # without a transaction, parsing and running might reach two sessions of the server
                async with connection.transaction():
                    await connection.execute(self._say, timeout=patience)
                    rows = await connection.fetch(text, *args, timeout=patience)
            else:
                if self._replan is not None:
                    await cast("_Connection", connection).replan(self._replan.clock.monotonic())
                rows = await connection.fetch(text, *args, timeout=patience)
            well = True
            return rows
        except Exception as error:
            _broken(connection, error)
        finally:
            if not (well and self._keep(connection, pool)):
                await pool.release(connection, timeout=self._patience)

    def at_hand(self) -> _Connection | None:
        """Return a connection for ``begin``, if one is idle, and a statement is all that has to be sent on it."""
        if self._pgbouncer or self._replan is not None:
            return None
        return self._take_at_hand()  # type: ignore[return-value]  # the pool makes them so

    def begin(
        self,
        connection: _Connection,
        text: str,
        args: Sequence[Any],
        done: Callable[[list[Any], Exception | None], None],
    ) -> None:
        """Do ``fetch`` without a task, on a connection of ``at_hand``; ``done`` is called with the rows, or with the
        error that ``fetch`` would have raised."""
        pool, loop = self._pool, self._loop
        assert pool is not None
        assert loop is not None

        def over(rows: list[Any] | None, error: BaseException | None) -> None:
            if self._begun.pop(connection, None) is None:
                return  # it was given up
            meant = None if error is None else _meant(connection, error)
            try:
                if meant is not None or not self._keep(connection, pool):
                    releasing = asyncio.ensure_future(pool.release(connection, timeout=self._patience))  # type: ignore[arg-type]
                    self._releasing.add(releasing)
                    releasing.add_done_callback(self._released)
            finally:
                done(rows or [], meant)

        self._begun[connection] = loop.time(), over
        if self._watching is None:
            self._watching = loop.call_later(self._patience, self._watch)
        # The connection itself: the pool's proxy for it looks up each name, and forwards each call.
        inner: _Connection = connection._con  # type: ignore[attr-defined]
        step_through(inner.run_prepared(text, args), over)

    def _watch(self) -> None:
        """Abandon statements that were begun too long ago. One timer watches all of them: on uvloop one for each, set
        and cancelled, would cost another round of the loop."""
        loop, self._watching = asyncio.get_running_loop(), None
        late = loop.time() - self._patience
        for began, over in list(self._begun.values()):
            if began <= late + _TICK_SECONDS:
                over(None, TimeoutError())
        if self._begun:
            first = min(began for began, _ in self._begun.values())
            self._watching = loop.call_later(max(_TICK_SECONDS, first - late), self._watch)

    def _released(self, releasing: asyncio.Future[None]) -> None:
        self._releasing.discard(releasing)
        if not releasing.cancelled():
            releasing.exception()  # no caller waits for it: the pool has released the connection in any case

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Connection]:
        """Take a connection for the block; errors of the driver are raised as what they mean."""
        async with self._taken() as connection:
            try:
                yield connection
            except Exception as error:
                _broken(connection, error)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Connection]:
        """Take a connection in a transaction that ends with the block; errors are raised by their meaning."""
        async with self.connection() as connection, connection.transaction():
            if self._pgbouncer:
                await connection.execute(self._say)
            yield connection

    @asynccontextmanager
    async def snapshot(self) -> AsyncIterator[Connection]:
        """Do ``transaction`` for reads only, with all statements as of one moment."""
        async with self.connection() as connection, connection.transaction(isolation="repeatable_read", readonly=True):
            if self._pgbouncer:
                await connection.execute(self._say_to_read)
            yield connection

    @asynccontextmanager
    async def lent(self) -> AsyncIterator[Connection]:
        """Take a connection for the user, in a transaction that ends with the block; its errors pass through."""
        async with self._taken(keep=False) as connection:  # the user may have left something on it
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
    async def _taken(self, *, keep: bool = True) -> AsyncIterator[Connection]:
        connection, pool = await self._take()
        well = False
        try:
            yield connection
            well = keep
        finally:
            if not (well and self._keep(connection, pool)):
                await pool.release(connection, timeout=self._patience)

    async def _take(self) -> tuple[Connection, Any]:
        """Return a connection, or its proxy, and the pool to give it back to."""
        pool = self._pool
        if pool is None:
            raise NotOpen("this session of the PostgreSQL engine is not open")
        if (connection := self._take_at_hand()) is not None:
            return connection, pool
        self._asking += 1
        try:
            return await pool.acquire(timeout=self._patience), pool  # type: ignore[return-value]
        except Exception as error:
            raise_meaning(error, sent=False)
        finally:
            self._asking -= 1

    def _take_at_hand(self) -> Connection | None:
        while self._at_hand:
            connection = self._at_hand.pop()
            self._fewest = min(self._fewest, len(self._at_hand))
            if _is_usable(connection):
                return connection
        return None

    def _keep(self, connection: Connection, pool: object) -> bool:
        """Keep a connection idle, unless a caller waits for one, or it is not needed any more."""
        if self._asking or pool is not self._pool:
            return False
        self._at_hand.append(connection)
        if self._looking is None:
            self._look_later()
        return True

    def _look_later(self) -> None:
        self._fewest = len(self._at_hand)
        self._looking = asyncio.get_running_loop().call_later(_UNUSED_SECONDS, self._look)

    def _look(self) -> None:
        """Close the connections that were not needed since the last check."""
        unused, self._at_hand = self._at_hand[: self._fewest], self._at_hand[self._fewest :]
        for connection in unused:
            if _is_usable(connection):
                connection.terminate()
        self._looking = None
        if self._at_hand:
            self._look_later()


def _is_usable(connection: Connection) -> bool:
    inner: _Connection | None = connection._con  # type: ignore[attr-defined]  # as in ``begin``
    if inner is not None and not inner.is_closed():
        return True
    try:
        connection.terminate()  # which frees its slot in the pool
    except asyncpg.InterfaceError:
        pass  # the server cut it, and the driver's pool has taken it back by itself
    return False


def _broken(connection: Connection, error: Exception) -> NoReturn:
    # After a timeout its reply may still come; after an error within the driver it is unusable.
    if isinstance(error, TimeoutError | asyncpg.exceptions.InternalClientError) and _is_usable(connection):
        connection.terminate()
    raise_meaning(error)


def _meant(connection: Connection, error: BaseException) -> Exception:
    """Do ``_broken`` where the error is passed on instead of raised."""
    if not isinstance(error, Exception):  # another task cancelled the future that the driver waits for
        if _is_usable(connection):
            connection.terminate()
        return Unavailable(f"PostgreSQL did not answer: {error!r}", outcome="unknown")
    try:
        _broken(connection, error)
    except Exception as meant:
        return meant


def fetching(pool: Pool, schema: str) -> Fetch:
    """Return a function that runs statements by name on connections of this pool."""

    async def fetch(name: str, *args: Any) -> list[Any]:
        return await pool.fetch(sql(name, schema), *args)

    return fetch


async def connect_once(url: str, *, pgbouncer: bool = False, timeout: float = 10.0) -> Connection:
    """Return a connection outside of any pool; the caller closes it."""
    try:
        return await asyncpg.connect(url, timeout=timeout, **_kept({}, pgbouncer))
    except Exception as error:
        raise_meaning(error, sent=False)


def _kept(settings: Mapping[str, str], pgbouncer: bool) -> dict[str, Any]:
    kept: dict[str, Any] = {"server_settings": {"application_name": "headrace", **settings}}
    return kept | ({"statement_cache_size": 0} if pgbouncer else {})
