"""A session on a PostgreSQL database: the contract's verbs, each a statement or a few."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import datetime
from typing import Any
from uuid import UUID

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
    TRANSACTION,
    Alive,
    Beat,
    Check,
    Claimed,
    Dead,
    Engine,
    Enlisted,
    InsertAnswer,
    Overdue,
    Profiles,
    Setting,
    Steps,
    Told,
    WorkerInfo,
    WorkerRow,
)
from headrace.engine.bus import Bus
from headrace.engines.postgres import checks, migrate
from headrace.engines.postgres.applying import Applying
from headrace.engines.postgres.batches import Batches
from headrace.engines.postgres.bus import NotifyBus
from headrace.engines.postgres.claiming import Claiming
from headrace.engines.postgres.connection import Connection, check_schema, raise_meaning
from headrace.engines.postgres.documents import Documents
from headrace.engines.postgres.drivers import enlist
from headrace.engines.postgres.entries import Entries
from headrace.engines.postgres.inserting import Inserting
from headrace.engines.postgres.notes import Telling
from headrace.engines.postgres.pool import COLD, HOT, WARM, Pool, connect_once
from headrace.engines.postgres.records import Reading
from headrace.engines.postgres.workers import Workers
from headrace.errors import ConfigError
from headrace.host import Host

__all__ = ["PostgresEngine"]

_WARM_SIZE, _COLD_SIZE, _SEARCH_SIZE = 2, 2, 1
_REST = _WARM_SIZE + _COLD_SIZE + _SEARCH_SIZE
_LEAST = _REST + 1


class PostgresEngine:
    """Jobs in one schema of a PostgreSQL database.

    ``pool`` is the most connections a session opens for its own statements, and again for transactions of handlers; it
    opens as many as it needs at once.
    ``listen_url`` names the server directly when ``url`` leads through a pooler, and ``pgbouncer`` says that it does;
    without it such a session hears no hints and polls. ``migrate`` lets it bring an older schema up to date by itself.
    """

    name = "postgresql"
    capabilities: frozenset[str] = frozenset({TRANSACTION})

    def __init__(
        self,
        url: str,
        *,
        rules: Rules,
        host: Host,
        schema: str = "headrace",
        pool: int = 8,
        listen_url: str | None = None,
        pgbouncer: bool = False,
        migrate: bool = False,
    ) -> None:
        if pool < _LEAST:
            raise ConfigError(f"postgresql://: pool must be at least {_LEAST}, not {pool}")
        self.rules, self._host, self._url = rules, host, url
        self._schema, self._name = check_schema(schema), schema
        self._size, self._pgbouncer, self._migrate = pool, pgbouncer, migrate
        self._listen_url = listen_url or (None if pgbouncer else url)
        self._hot = Pool(url, size=pool - _REST, settings=HOT, pgbouncer=pgbouncer)
        self._warm = Pool(url, size=_WARM_SIZE, settings=WARM, pgbouncer=pgbouncer, replan=host)
        self._cold = Pool(url, size=_COLD_SIZE, settings=COLD, pgbouncer=pgbouncer)
        # Apart from the others: a search or a count may have to look at every job.
        self._search = Pool(url, size=_SEARCH_SIZE, settings=COLD, pgbouncer=pgbouncer, long=True)
        # And these: a handler's transaction may take its time. It has the isolation that the user's are set to have.
        self._lent = Pool(url, size=pool, settings={}, pgbouncer=pgbouncer, long=True)
        self._pools = (self._hot, self._warm, self._cold, self._search, self._lent)
        connect = None if self._listen_url is None else self._connect_listener
        self._bus = NotifyBus(schema, host, notify=self._notify, connect=connect, beat=rules.beat)
        self.bus: Bus = self._bus
        self._open = False
        self._remember_nothing()

    def _remember_nothing(self) -> None:
        """Begin a session: what an earlier one remembered may not hold any more."""
        self._inserting = Inserting(self._hot, self._cold, self._schema, self._bus, self._host)
        self._claiming = Claiming(self._hot, self._schema, self.rules)
        self._applying = Applying(self._warm, self._cold, self._schema, self._inserting.steps)
        self._batches = Batches(self._hot, self._schema, self.rules)
        self._telling = Telling(
            self._hot, self._cold, self._schema, self.rules, self._batches, self._host, self._inserting.steps
        )
        self._entries = Entries(self._hot, self._schema)
        self._reading = Reading(self._hot, self._cold, self._search, self._schema)
        self._workers = Workers(self._hot, self._cold, self._schema, self.rules)
        self._documents = Documents(self._hot, self._cold, self._schema)

    # -- connecting

    async def open(self) -> None:
        if self._open:
            return
        async with self._aside() as connection:
            if connection.get_server_version().major < checks.OLDEST // 10000:
                raise ConfigError("headrace needs PostgreSQL 13 or newer")
            if self._migrate or not await migrate.applied(connection, self._schema):
                await migrate.apply(connection, self._schema, self._host.clock.now())
            await migrate.check(connection, self._schema)
        self._remember_nothing()
        for pool in self._pools:
            await pool.open()
        self._bus.open()
        self._open = True

    async def close(self) -> None:
        self._open = False
        await self._bus.close()
        for pool in self._pools:
            await pool.close()

    async def exists(self) -> bool:
        async with self._aside() as connection:
            return bool(await migrate.applied(connection, self._schema))

    def twin(self) -> Engine:
        return PostgresEngine(
            self._url,
            rules=self.rules,
            host=self._host,
            schema=self._name,
            pool=self._size,
            listen_url=self._listen_url,
            pgbouncer=self._pgbouncer,
            migrate=self._migrate,
        )

    async def migrate(self, *, plan: bool = False) -> list[str]:
        async with self._aside() as connection:
            if plan:
                return [step.name for step in await migrate.pending(connection, self._schema)]
            return await migrate.apply(connection, self._schema, self._host.clock.now())

    async def migrations(self) -> tuple[list[str], list[str]]:
        """The names of the migrations applied, and of those to come."""
        async with self._aside() as connection:
            done = await migrate.applied(connection, self._schema)
            return done, [step.name for step in await migrate.pending(connection, self._schema)]

    async def check(self, now: datetime) -> list[Check]:
        async with self._aside() as connection:
            return [one async for one in checks.check(connection, self._schema, now)]

    @asynccontextmanager
    async def _aside(self) -> AsyncIterator[Connection]:
        """A connection of its own, whether the session is open or not."""
        connection = await connect_once(self._url, pgbouncer=self._pgbouncer)
        try:
            yield connection
        except Exception as error:
            raise_meaning(error)
        finally:
            connection.terminate()

    async def _connect_listener(self) -> Connection:
        assert self._listen_url is not None
        return await connect_once(self._listen_url)

    async def _notify(self, notices: Sequence[tuple[str, str]]) -> None:
        text = "SELECT count(pg_notify(channel, payload)) FROM unnest($1::text[], $2::text[]) AS t (channel, payload)"
        await self._hot.fetch(text, [channel for channel, _ in notices], [payload for _, payload in notices])

    # -- jobs

    async def insert(
        self, jobs: Sequence[Job], now: datetime, batch: Batch | None = None, *, whole: bool = False
    ) -> list[InsertAnswer]:
        return await self._inserting.insert(jobs, batch, whole=whole)

    async def claim(self, worker: UUID, ask: Ask, request: int, now: datetime) -> Claimed | Dead:
        return await self._claiming.claim(worker, ask, request, now)

    async def apply(self, changes: Sequence[Change], now: datetime) -> list[Verdict]:
        return await self._applying.apply(changes)

    async def tell(self, now: datetime, limit: int = MAX_BATCH) -> Told:
        return await self._telling.tell(now, limit)

    async def batches(self, ids: Sequence[UUID]) -> list[Batch | None]:
        return await self._batches.batches(ids)

    async def find_batches(self, limit: int = 50, cursor: str | None = None) -> Page[Batch]:
        return await self._batches.find(limit, cursor)

    async def seal(self, batch: UUID, now: datetime) -> bool:
        return await self._batches.seal(batch, now)

    async def cancel_batch(self, batch: UUID, now: datetime, by: str | None = None) -> Batch | None:
        return await self._batches.cancel(batch, now, by)

    async def settle(self, batch: UUID) -> None:
        await self._batches.settle(batch)

    async def usage(self, rates: Sequence[Bound] = ()) -> Usage:
        return await self._claiming.usage(rates)

    async def standing(self, job: Job, now: datetime, window: float = WINDOW, most: int = MOST) -> Standing:
        return await self._reading.standing(job, now, window, most)

    async def promote(self, now: datetime, limit: int = MAX_BATCH) -> int:
        return await self._claiming.promote(now, limit)

    async def overdue(self, now: datetime, limit: int = MAX_BATCH) -> list[Overdue]:
        return await self._workers.overdue(now, limit)

    async def get(self, ids: Sequence[UUID]) -> list[Job | None]:
        return await self._reading.get(ids)

    async def history(self, id: UUID) -> History:
        return await self._reading.history(id)

    async def find(self, filter: Filter, now: datetime, limit: int = 50, cursor: str | None = None) -> Page[Job]:
        return await self._reading.find(filter, now, limit, cursor)

    async def count(self, now: datetime) -> list[Count]:
        return await self._reading.count(now)

    async def ledger(self) -> Ledger:
        return await self._reading.ledger()

    async def delete(self, before: Mapping[Status, datetime], limit: int = MAX_BATCH) -> int:
        return await self._reading.delete(before, limit)

    # -- what runs add to their jobs

    async def append(self, appends: Sequence[Append], now: datetime) -> list[Kept]:
        return await self._entries.append(appends)

    async def tail(
        self, job: UUID, kind: Kind, after: Cursor = BEGIN, limit: int = MAX_BATCH, *, newest: bool = False
    ) -> list[Entry]:
        return await self._entries.tail(job, kind, after, limit, newest)

    # -- in the user's own transaction

    def enlist(self, connection: Any) -> Enlisted:
        return enlist(connection)

    async def inserting(self, jobs: Sequence[Job], now: datetime) -> Steps[list[InsertAnswer]]:
        return await self._inserting.steps(jobs)

    async def applying(self, change: Change, now: datetime) -> Steps[Verdict]:
        return await self._applying.steps_within(change)

    def transaction(self) -> AbstractAsyncContextManager[Any]:
        return self._lent.lent()

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
