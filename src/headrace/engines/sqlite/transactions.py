"""Transactions of a SQLite store: writes within those of the user, and a connection of the engine's own for them."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

import apsw

from headrace.core.change import Change, Verdict
from headrace.core.job import Job
from headrace.engine import Bus, Companions, Enlisted, Hint, InsertAnswer, Statements, Topic
from headrace.engines.sql.subqueues import Recounts
from headrace.engines.sqlite.jobs.apply import applying
from headrace.engines.sqlite.jobs.insert import inserting
from headrace.engines.sqlite.store.connection import Synchronous, ask, connect, drive, translate
from headrace.engines.sqlite.store.files import Files, has_moved
from headrace.engines.sqlite.store.thread import LOCK_TIMEOUT_SECONDS
from headrace.errors import ConfigError, NotSupported
from headrace.runtime.host import Host

__all__ = ["ApswConnection", "Transactions"]

T = TypeVar("T")

_BUSY_WAIT_MILLISECONDS = 60
"""Milliseconds of one wait for the lock; short, so that a waiting caller can be cancelled."""


class Transactions:
    """The role ``transactions`` of one session."""

    def __init__(self, path: Path, synchronous: Synchronous, host: Host, bus: Bus, recounts: Recounts) -> None:
        self._path, self._synchronous, self._host, self._bus = path, synchronous, host, bus
        self._recounts = recounts

    def enlist(self, connection: Any) -> Enlisted:
        if not isinstance(connection, apsw.Connection):
            kind = f"{type(connection).__module__}.{type(connection).__qualname__}"
            raise NotSupported(
                f"connection: the SQLite engine takes an apsw.Connection, not a {kind}: apsw brings its own SQLite, and"
                " two SQLite libraries that work on one file in one process undo each other's locks, which ends in a"
                " damaged file. Open one with apsw.Connection(path)"
            )
        file, path = connection.db_filename("main"), self._path
        if not file or not path.exists() or not os.path.samefile(file, path):
            raise ConfigError(
                f"connection: it is open on {file or 'a database in memory'}, and the jobs are in {path}: only what is"
                " in one file can be committed together"
            )
        if has_moved(connection):
            raise ConfigError(
                f"connection: {path} was replaced by another file since it was opened, and what is committed on it"
                " would be lost: open a new one"
            )
        return ApswConnection(connection)

    async def inserting(
        self, jobs: Sequence[Job], now: datetime, *, companions: Companions | None = None
    ) -> Statements[list[InsertAnswer]]:
        # Profiles are made by the statements themselves: the user's transaction may hold the only lock there is.
        return inserting(jobs, companions, limited=(self._recounts, now))

    async def applying(self, change: Change, now: datetime) -> Statements[Verdict]:
        return applying(change, (self._recounts, now))

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[apsw.Connection]:
        """Open a connection in a transaction that ends with the block; no wait for the lock or the disk blocks the
        loop.

        If jobs were stored in it, the bus sends a hint after the commit.
        """
        path = self._path
        connection = await self._aside(lambda: connect(path, self._synchronous, make=None), lambda made: made.close())
        try:
            await self._begin(connection)
            before, files = _last_number(connection), Files(connection, path)
            try:
                yield connection
            except BaseException:
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise
            if connection.in_transaction:
                more = _last_number(connection) > before
                await self._aside(lambda: connection.execute("COMMIT"))
                files.check()
                if more:
                    self._bus.send(Hint(Topic.READY))
        finally:
            connection.close(True)

    async def _begin(self, connection: apsw.Connection) -> None:
        host = self._host
        until = host.clock.monotonic() + LOCK_TIMEOUT_SECONDS
        tries = 0

        def begin() -> bool:
            connection.set_busy_timeout(int(_BUSY_WAIT_MILLISECONDS * (0.5 + host.dice.chance())))
            try:
                connection.execute("BEGIN IMMEDIATE")
            except (apsw.BusyError, apsw.LockedError):
                # The count is for clocks that stand still.
                if host.clock.monotonic() > until or tries * _BUSY_WAIT_MILLISECONDS > 4000 * LOCK_TIMEOUT_SECONDS:
                    raise
                return False
            return True

        while not await self._aside(begin):
            tries += 1

    async def _aside(self, act: Callable[[], T], undo: Callable[[T], object] = lambda made: None) -> T:
        """Run it on a thread; a caller that is cancelled meanwhile leaves when it is done, and it is undone."""
        work = asyncio.ensure_future(asyncio.to_thread(act))
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            await asyncio.wait([work])
            if not work.cancelled() and work.exception() is None:
                undo(work.result())
            raise
        except apsw.Error as error:
            raise translate(error, self._path) from error


class ApswConnection:
    """A connection of the user, within the transaction that the user began."""

    blocking = True
    exclusive = True

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection

    @property
    def open(self) -> bool:
        try:
            return self._connection.in_transaction
        except apsw.ThreadingViolationError:  # its owner is using it at this very moment
            return True
        except apsw.ConnectionClosedError:
            return False

    def run_blocking(self, statements: Statements[T]) -> T:
        connection = self._connection
        if not connection.in_transaction:
            raise ConfigError('connection: no transaction is open on it: begin one first, as in execute("BEGIN")')
        tracer, connection.row_trace = connection.row_trace, None  # else rows have the shape that the user set
        try:
            self._refuse_shadows()
            return self._atomically(statements)
        finally:
            connection.row_trace = tracer

    async def run(self, statements: Statements[T]) -> T:
        return self.run_blocking(statements)

    def _atomically(self, statements: Statements[T]) -> T:
        """Run all of it or nothing, also if the user continues after an error."""
        connection = self._connection
        connection.execute("SAVEPOINT headrace")
        try:
            value = drive(connection, statements)
        except BaseException:
            if connection.in_transaction:  # SQLite itself ends one that found the disk full
                connection.execute("ROLLBACK TO headrace; RELEASE headrace")
            raise
        connection.execute("RELEASE headrace")
        return value

    def _refuse_shadows(self) -> None:
        shadows = "SELECT name FROM temp.sqlite_schema WHERE name IN (SELECT name FROM main.sqlite_schema) LIMIT 1"
        name = self._connection.execute(shadows).get
        if name is not None:
            raise ConfigError(f"connection: a temporary table {name!r} hides the one of the same name: rename it")


def _last_number(connection: apsw.Connection) -> int:
    tracer, connection.row_trace = connection.row_trace, None
    last: int = connection.execute(ask("last_number")).get
    connection.row_trace = tracer
    return last
