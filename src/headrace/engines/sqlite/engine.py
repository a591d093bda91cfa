"""A session on a SQLite file: the contract's verbs, each handed to the thread that does it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

import apsw

from headrace.core.batch import Batch
from headrace.core.change import Change, Verdict
from headrace.core.claim import Ask
from headrace.core.entry import BEGIN, Append, Cursor, Entry, Kept, Kind
from headrace.core.job import History, Job
from headrace.core.limit import Usage
from headrace.core.query import Count, Filter, Ledger, Page
from headrace.core.rule import Bound
from headrace.core.rules import Rules
from headrace.core.standing import MOST, WINDOW, Standing
from headrace.core.status import Status
from headrace.engine import (
    MAX_BATCH,
    Alive,
    Beat,
    Check,
    Claimed,
    Dead,
    Engine,
    Enlisted,
    InsertAnswer,
    Overdue,
    Processed,
    Profiles,
    Setting,
    Statements,
    WorkerInfo,
    WorkerRow,
)
from headrace.engine.bus import Bus
from headrace.engines.sqlite import (
    applying,
    batches,
    checks,
    claiming,
    entries,
    finding,
    limiting,
    migrate,
    notes,
    reading,
    statements,
    transactions,
)
from headrace.engines.sqlite.bus import SocketBus
from headrace.engines.sqlite.connection import (
    Synchronous,
    check_library,
    check_place,
    connect,
    setup,
    translate,
    trim_log,
)
from headrace.engines.sqlite.db_thread import DbThread
from headrace.engines.sqlite.documents import Documents
from headrace.engines.sqlite.inserting import Inserting
from headrace.engines.sqlite.workers import Workers
from headrace.errors import ConfigError
from headrace.host import Host

__all__ = ["SqliteEngine"]

T = TypeVar("T")


class SqliteEngine:
    """Jobs in one file, for any number of processes of one machine.

    ``synchronous="full"`` (the default) has every acknowledged write on disk; ``"normal"`` is faster, and a power
    failure may take the last commits, though never the file's consistency. A crash of the process alone takes nothing
    with either.
    """

    name = "sqlite"
    capabilities: frozenset[str] = frozenset({TRANSACTION})

    def __init__(self, path: str | Path, *, rules: Rules, host: Host, synchronous: Synchronous = "full") -> None:
        if str(path) in ("", ":memory:"):
            raise ConfigError("SQLite needs a file; to keep jobs in memory use memory://")
        if synchronous not in ("full", "normal"):
            raise ConfigError(f"synchronous must be full or normal, not {synchronous!r}")
        self.rules = rules
        self._path, self._host, self._synchronous = Path(path).absolute(), host, synchronous
        self._bus = SocketBus(self._path, host)
        self.bus: Bus = self._bus
        self._open = False
        self._writer = DbThread("headrace-sqlite-write", self._path, host, self._connect_writer, self._trim_log)
        self._reader = DbThread("headrace-sqlite-read", self._path, host, self._connect_reader)
        # Apart from the reader: whoever waits for a result must not wait for somebody's search through all jobs.
        self._searcher = DbThread("headrace-sqlite-search", self._path, host, self._connect_reader)
        self._remember_nothing()

    def _remember_nothing(self) -> None:
        """Begin a session: what an earlier one remembered was bound to its connections."""
        self._inserting = Inserting(self._writer)
        self._claiming = claiming.Claiming(self._writer, self.rules)
        self._reading = reading.Reading(self._reader, self._searcher)
        self._workers = Workers(self._writer, self._reader, self.rules)
        self._documents = Documents(self._writer, self._reader)

    async def open(self) -> None:
        if self._open:
            return
        check_library()
        check_place(self._path)
        self._remember_nothing()
        try:
            for thread in (self._writer, self._reader, self._searcher):
                await thread.open()
        except BaseException:
            await self._put_down()
            raise
        self._bus.open()
        self._open = True

    async def exists(self) -> bool:
        # A file in which nobody has put anything is none: opening would make the schema in it.
        return self._path.exists() and self._path.stat().st_size > 0

    async def close(self) -> None:
        self._open = False
        self._bus.close()
        await self._put_down()

    async def _put_down(self) -> None:
        for thread in (self._writer, self._reader, self._searcher):
            await thread.close()

    def twin(self) -> Engine:
        return SqliteEngine(self._path, rules=self.rules, host=self._host, synchronous=self._synchronous)

    async def migrate(self, *, plan: bool = False) -> list[str]:
        if plan and not self._path.exists():
            return [step.name for step in migrate.available()]

        def act(connection: apsw.Connection) -> list[str]:
            if plan:
                return [step.name for step in migrate.pending(connection, self._path)]
            return migrate.apply(connection, self._path, self._host.clock.now())

        return await self._aside(act)

    async def migrations(self) -> tuple[list[str], list[str]]:
        """The names of the migrations applied, and of those to come."""
        if not self._path.exists():
            return [], [step.name for step in migrate.available()]
        return await self._aside(
            lambda connection: (
                migrate.applied(connection),
                [step.name for step in migrate.pending(connection, self._path)],
            )
        )

    async def check(self, now: datetime) -> list[Check]:
        if not self._path.exists():
            return [
                Check("file", "warn", f"{self._path} is not there yet", "it is made when the engine is first opened")
            ]
        return await self._aside(lambda connection: list(checks.check(connection, self._path)))

    async def _aside(self, act: Callable[[apsw.Connection], T]) -> T:
        """Do something on a connection of its own, whether the session is open or not."""

        def run() -> T:
            try:
                connection = connect(self._path, self._synchronous)
                connection.set_busy_timeout(10_000)
                try:
                    return act(connection)
                finally:
                    connection.close()
            except Exception as error:
                raise translate(error, self._path) from error

        check_library()
        check_place(self._path)
        return await asyncio.to_thread(run)

    # -- connections, on their threads

    def _connect_writer(self) -> apsw.Connection:
        connection = connect(self._path, self._synchronous)
        try:
            if migrate.is_empty(connection):
                migrate.apply(connection, self._path, self._host.clock.now())
            migrate.check(connection, self._path)
            for verb in ("record", "insert", "claim", "apply", "delete"):
                connection.execute(setup(verb))
        except BaseException:
            connection.close()
            raise
        return connection

    def _trim_log(self, connection: apsw.Connection) -> float:
        return trim_log(connection, self._path)

    def _connect_reader(self) -> apsw.Connection:
        connection = connect(self._path, self._synchronous, ["record"])
        connection.pragma("query_only", True)
        finding.prepare(connection)
        return connection

    # -- jobs

    async def insert(
        self, jobs: Sequence[Job], now: datetime, batch: Batch | None = None, *, whole: bool = False
    ) -> list[InsertAnswer]:
        return await self._inserting.insert(jobs, batch, whole=whole)

    async def claim(self, worker: UUID, ask: Ask, request: int, now: datetime) -> Claimed | Dead:
        return await self._claiming.claim(worker, ask, request, now)

    async def apply(self, changes: Sequence[Change], now: datetime) -> list[Verdict]:
        return await applying.apply(self._writer, changes)

    async def tell(self, now: datetime, limit: int = MAX_BATCH) -> Processed:
        return await notes.process_notes(self._writer, self.rules, now, limit)

    async def batches(self, ids: Sequence[UUID]) -> list[Batch | None]:
        return await batches.batches(self._reader, ids)

    async def find_batches(self, limit: int = 50, cursor: str | None = None) -> Page[Batch]:
        return await batches.find(self._reader, limit, cursor)

    async def seal(self, batch: UUID, now: datetime) -> bool:
        return await batches.seal(self._writer, batch, now)

    async def cancel_batch(self, batch: UUID, now: datetime, by: str | None = None) -> Batch | None:
        return await batches.cancel(self._writer, batch, now, by)

    async def settle(self, batch: UUID) -> None:
        await batches.settle(self._writer, batch)

    async def usage(self, rates: Sequence[Bound] = ()) -> Usage:
        return await self._reader.run(lambda connection: limiting.usage(connection, set(rates)))

    async def standing(self, job: Job, now: datetime, window: float = WINDOW, most: int = MOST) -> Standing:
        return await self._reading.standing(job, now, window, most)

    async def promote(self, now: datetime, limit: int = MAX_BATCH) -> int:
        return await claiming.promote(self._writer, now, limit)

    async def overdue(self, now: datetime, limit: int = MAX_BATCH) -> list[Overdue]:
        return await self._workers.overdue(now, limit)

    async def get(self, ids: Sequence[UUID]) -> list[Job | None]:
        return await self._reading.get(ids)

    async def history(self, id: UUID) -> History:
        return await self._reading.history(id)

    async def find(self, filter: Filter, now: datetime, limit: int = 50, cursor: str | None = None) -> Page[Job]:
        return await finding.find(self._searcher, filter, now, limit, cursor)

    async def count(self, now: datetime) -> list[Count]:
        return await self._reading.count(now)

    async def ledger(self) -> Ledger:
        return await self._reading.ledger()

    async def delete(self, before: Mapping[Status, datetime], limit: int = MAX_BATCH) -> int:
        return await reading.delete(self._writer, before, limit)

    # -- what runs add to their jobs

    async def append(self, appends: Sequence[Append], now: datetime) -> list[Kept]:
        return await entries.append(self._writer, appends)

    async def tail(
        self, job: UUID, kind: Kind, after: Cursor = BEGIN, limit: int = MAX_BATCH, *, newest: bool = False
    ) -> list[Entry]:
        return await entries.tail(self._reader, job, kind, after, limit, newest)

    # -- in the user's own transaction

    def enlist(self, connection: Any) -> Enlisted:
        return transactions.enlist(connection, self._path)

    async def inserting(self, jobs: Sequence[Job], now: datetime) -> Statements[list[InsertAnswer]]:
        return statements.inserting(jobs)

    async def applying(self, change: Change, now: datetime) -> Statements[Verdict]:
        return statements.applying(change)

    def transaction(self) -> AbstractAsyncContextManager[apsw.Connection]:
        return transactions.transaction(self._path, self._synchronous, self._host, self.bus)

    # -- workers

    async def register(self, info: WorkerInfo, now: datetime) -> None:
        await self._workers.register(info, now)

    async def beat(self, worker: UUID, beat: Beat, now: datetime) -> Alive | Dead:
        return await self._workers.beat(worker, beat, now)

    async def bury(self, worker: UUID, beats: int) -> bool:
        return await self._workers.bury(worker, beats)

    async def retire(self, worker: UUID) -> None:
        await self._workers.retire(worker)

    async def workers(self) -> list[WorkerRow]:
        return await self._workers.workers()

    # -- the rest of the store

    async def profiles(self) -> Profiles:
        return await self._documents.profiles()

    async def settings(self, prefix: str = "") -> list[Setting]:
        return await self._documents.settings(prefix)

    async def put_setting(self, key: str, value: str | None, expect: int) -> Setting | None:
        return await self._documents.put_setting(key, value, expect)

    async def lease(self, name: str, holder: UUID, seconds: float, now: datetime) -> int | None:
        return await self._documents.lease(name, holder, seconds, now)

    async def unlease(self, name: str, holder: UUID) -> None:
        await self._documents.unlease(name, holder)
