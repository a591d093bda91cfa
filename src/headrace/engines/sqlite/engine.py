"""A session on a SQLite file."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import TypeVar

import apsw

from headrace.core.defaults import Rules
from headrace.engine import Bus, Check, Engine
from headrace.engines.sql.subqueues import Recounts
from headrace.engines.sqlite import records
from headrace.engines.sqlite.bus import SocketBus
from headrace.engines.sqlite.documents import Documents
from headrace.engines.sqlite.entries import Entries
from headrace.engines.sqlite.families import Families
from headrace.engines.sqlite.jobs.direct import Direct
from headrace.engines.sqlite.jobs.role import Jobs
from headrace.engines.sqlite.records import Records
from headrace.engines.sqlite.rollups import Rollups
from headrace.engines.sqlite.store import checks
from headrace.engines.sqlite.store import schema as migrate
from headrace.engines.sqlite.store.connection import (
    OWN_FILE_MODE,
    Synchronous,
    ask,
    check_library,
    check_place,
    connect,
    prepare,
    translate,
    trim_log,
)
from headrace.engines.sqlite.store.presence import Presence
from headrace.engines.sqlite.store.thread import DbThread
from headrace.engines.sqlite.transactions import Transactions
from headrace.engines.sqlite.workers import Workers
from headrace.errors import ConfigError
from headrace.runtime.host import Host

__all__ = ["MODES", "SqliteEngine"]

MODES = (OWN_FILE_MODE, 0o640, 0o660)
"""The modes that a file may be made with: its user's alone; its group may read it; its group may write it."""

T = TypeVar("T")


class SqliteEngine:
    """Jobs in one file, for any number of processes of one machine.

    ``synchronous="full"`` (the default) has every acknowledged write on disk; ``"normal"`` is faster, and a power
    failure may take the last commits, though never the file's consistency. A crash of the process alone takes nothing
    with either.
    """

    name = "sqlite"

    def __init__(
        self,
        path: str | Path,
        *,
        rules: Rules,
        host: Host,
        synchronous: Synchronous = "full",
        mode: int = OWN_FILE_MODE,
    ) -> None:
        """``mode``: of a file that is made, and so of all files beside it; ``MODES`` lists the choices."""
        if str(path) in ("", ":memory:"):
            raise ConfigError("SQLite needs a file; to keep jobs in memory use memory://")
        if synchronous not in ("full", "normal"):
            raise ConfigError(f"synchronous must be full or normal, not {synchronous!r}")
        if mode not in MODES:
            raise ConfigError(f"mode must be {' or '.join(f'{one:#o}' for one in MODES)}, not {mode:#o}")
        self.rules, self._mode = rules, mode
        self._path, self._host, self._synchronous = Path(path).absolute(), host, synchronous
        self._bus = SocketBus(self._path, host)
        self.bus: Bus = self._bus
        self._open = False
        self._holders: set[SqliteEngine] = set()
        """The open sessions made from one another: while there is one, a file that is gone is lost and never made."""
        self._writer = DbThread("headrace-sqlite-write", self._path, host, self._connect_writer, self._tidy)
        self._reader = DbThread("headrace-sqlite-read", self._path, host, self._connect_reader)
        # A thread of its own: a caller that waits for a result must not wait for a search through all jobs.
        self._searcher = DbThread("headrace-sqlite-search", self._path, host, self._connect_reader)
        self._threads = (self._writer, self._reader, self._searcher)
        recounts = Recounts(host.clock)
        self.jobs = Jobs(self._writer, self._reader, rules, recounts)
        self.direct = Direct(self._writer, self.jobs)
        self.records = Records(self._reader, self._searcher)
        self.entries = Entries(self._writer, self._reader)
        self.families = Families(self._writer, self._reader, rules)
        self._presence = Presence(self._path)
        self.workers = Workers(self._writer, self._reader, rules, self._presence)
        self.documents = Documents(self._writer, self._reader)
        self.rollups = Rollups(self._writer, self._searcher)
        self.transactions = Transactions(self._path, synchronous, host, self.bus, recounts)

    async def open(self) -> None:
        if self._open:
            return
        check_library()
        if self._make is not None:
            check_place(self._path)
        self.jobs.forget()
        try:
            for thread in self._threads:
                await thread.open()
                self._holders.add(self)
        except BaseException:
            await self._end_threads()
            raise
        self._bus.open()
        self._open = True

    async def exists(self) -> bool:
        # An empty file does not count: opening would make the schema in it.
        return self._path.exists() and self._path.stat().st_size > 0

    async def close(self) -> None:
        self._open = False
        self._bus.close()
        await self._end_threads()
        self._presence.let_go()

    async def _end_threads(self) -> None:
        self._holders.discard(self)
        for thread in self._threads:
            await thread.close()

    def another_session(self) -> Engine:
        another = SqliteEngine(
            self._path, rules=self.rules, host=self._host, synchronous=self._synchronous, mode=self._mode
        )
        another._holders = self._holders
        return another

    @property
    def _make(self) -> int | None:
        """Return the mode of a missing file that is a new one, as no session has it open; None: it was lost."""
        return None if self._holders else self._mode

    async def migrate(self, *, plan: bool = False) -> list[str]:
        if plan and not self._path.exists():
            return [step.name for step in migrate.available()]

        def act(connection: apsw.Connection) -> list[str]:
            if plan:
                return [step.name for step in migrate.pending(connection, self._path)]
            return migrate.apply(connection, self._path, self._host.clock.now())

        return await self._aside(act)

    async def migrations(self) -> tuple[list[str], list[str]]:
        """Return the names of the applied migrations, and of the pending ones."""
        if not self._path.exists():
            return [], [step.name for step in migrate.available()]
        return await self._aside(
            lambda connection: (
                migrate.applied(connection),
                [step.name for step in migrate.pending(connection, self._path)],
            )
        )

    async def time(self) -> datetime | None:
        return None

    async def check(self, now: datetime) -> list[Check]:
        if not self._path.exists():
            return [
                Check("file", "warn", f"{self._path} is not there yet", "it is made when the engine is first opened")
            ]
        return await self._aside(lambda connection: list(checks.check(connection, self._path, self._mode)))

    async def _aside(self, act: Callable[[apsw.Connection], T]) -> T:
        """Run a call on a connection of its own, whether the session is open or not."""

        def run() -> T:
            try:
                connection = connect(self._path, self._synchronous, make=self._make)
                connection.set_busy_timeout(10_000)
                try:
                    return act(connection)
                finally:
                    connection.close()
            except Exception as error:
                raise translate(error, self._path) from error

        check_library()
        if self._make is not None:
            check_place(self._path)
        return await asyncio.to_thread(run)

    # -- connections, on their threads

    def _connect_writer(self) -> apsw.Connection:
        connection = connect(self._path, self._synchronous, make=self._make)
        try:
            if migrate.is_empty(connection):
                migrate.apply(connection, self._path, self._host.clock.now())
            migrate.check(connection, self._path)
            for verb in ("record", "insert", "insert_one", "insert_plain", "claim", "apply", "delete"):
                prepare(connection, verb)
        except BaseException:
            connection.close()
            raise
        return connection

    def _tidy(self, connection: apsw.Connection) -> float:
        with suppress(apsw.Error):  # the next writer of the counters does it
            connection.execute(ask("count_jobs"))  # so that the ledger notices a loss of the newest jobs, too
        return trim_log(connection, self._path)

    def _connect_reader(self) -> apsw.Connection:
        connection = connect(self._path, self._synchronous, ["record"], make=None)
        connection.pragma("query_only", True)
        records.prepare(connection)
        return connection
