"""A session on a PostgreSQL database: its connections, its schema, and its roles."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime

from headrace.core.defaults import Rules
from headrace.engine import Bus, Check, Direct, Engine
from headrace.engines.postgres.bus.role import NotifyBus
from headrace.engines.postgres.documents import Documents
from headrace.engines.postgres.entries import Entries
from headrace.engines.postgres.families import Families
from headrace.engines.postgres.jobs.apply import Applying
from headrace.engines.postgres.jobs.claim import Claiming
from headrace.engines.postgres.jobs.insert import Inserting
from headrace.engines.postgres.jobs.role import Jobs
from headrace.engines.postgres.jobs.subqueues import Moving
from headrace.engines.postgres.notes import Notes
from headrace.engines.postgres.records import Records
from headrace.engines.postgres.rollups import Rollups
from headrace.engines.postgres.store import checks
from headrace.engines.postgres.store import schema as migrate
from headrace.engines.postgres.store.connection import Connection, check_schema, raise_meaning
from headrace.engines.postgres.store.pool import COLD, HOT, SEARCH, WARM, Pool, connect_once
from headrace.engines.postgres.store.presence import Presence
from headrace.engines.postgres.transactions import Transactions
from headrace.engines.postgres.workers import Workers
from headrace.engines.sql.encoding import moment
from headrace.errors import ConfigError
from headrace.runtime.host import Host

__all__ = ["PostgresEngine"]

_WARM_CONNECTIONS, _COLD_CONNECTIONS, _SEARCH_CONNECTIONS = 2, 2, 1
_REST = _WARM_CONNECTIONS + _COLD_CONNECTIONS + _SEARCH_CONNECTIONS
_MIN_CONNECTIONS = _REST + 1
_TIME = "SELECT (extract(epoch FROM clock_timestamp()) * 1e6)::bigint"


class PostgresEngine:
    """Jobs in one schema of a PostgreSQL database.

    ``pool`` is the maximum of connections that a session opens for its own statements, and again for transactions of
    handlers; it opens as many as it needs at once. ``listen_url`` names the server directly when ``url`` leads through
    a pooler, and ``pgbouncer`` says that it does; without it such a session gets no hints and polls, and its death is
    not known at once. ``migrate`` lets it bring an older schema up to date by itself.
    """

    name = "postgresql"

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
        if pool < _MIN_CONNECTIONS:
            raise ConfigError(f"postgresql://: pool must be at least {_MIN_CONNECTIONS}, not {pool}")
        self.rules, self._host, self._url = rules, host, url
        self._schema, self._name = check_schema(schema), schema
        self._size, self._pgbouncer, self._migrate = pool, pgbouncer, migrate
        self._listen_url = listen_url or (None if pgbouncer else url)
        hot = Pool(url, size=pool - _REST, settings=HOT, pgbouncer=pgbouncer)
        warm = Pool(url, size=_WARM_CONNECTIONS, settings=WARM, pgbouncer=pgbouncer, replan=host)
        cold = Pool(url, size=_COLD_CONNECTIONS, settings=COLD, pgbouncer=pgbouncer)
        # A pool of its own, because a search or a count may have to read every job.
        search = Pool(url, size=_SEARCH_CONNECTIONS, settings=SEARCH, pgbouncer=pgbouncer, long=True)
        # A pool of its own, because a handler's transaction may take long. No settings, so that its isolation level is
        # that of the user's role or database.
        lent = Pool(url, size=pool, settings={}, pgbouncer=pgbouncer, long=True)
        self._hot, self._pools = hot, (hot, warm, cold, search, lent)
        connect = None if self._listen_url is None else self._connect_directly
        self._bus = NotifyBus(schema, host, notify=self._notify, connect=connect, beat=rules.beat)
        self.bus: Bus = self._bus
        name = self._schema
        inserting = Inserting(hot, cold, name, self._bus, host)
        claiming = Claiming(hot, name, rules)
        applying = Applying(warm, cold, name, inserting.of_changes, Moving(name, lambda: inserting.subqueues))
        notes = Notes(cold, name, rules, host, inserting.of_changes)
        self._remembering = (inserting, claiming, applying, notes)
        self.jobs = Jobs(hot, cold, name, inserting, claiming, applying)
        self.records = Records(hot, search, name)
        self.entries = Entries(hot, name)
        self.families = Families(hot, cold, name, rules, notes, inserting)
        self._presence = Presence(connect, host, rules.lease)
        self.workers = Workers(hot, cold, name, rules, self._presence)
        self.documents = Documents(hot, cold, name)
        self.rollups = Rollups(cold, search, name)
        self.direct: Direct | None = None
        self.transactions = Transactions(lent, name, inserting, applying)
        self._open = False

    async def open(self) -> None:
        if self._open:
            return
        async with self._aside() as connection:
            if connection.get_server_version().major < checks.MIN_SERVER_VERSION // 10000:
                raise ConfigError("headrace needs PostgreSQL 13 or newer")
            if self._migrate or not await migrate.applied(connection, self._schema):
                await migrate.apply(connection, self._schema, self._host.clock.now())
            await migrate.check(connection, self._schema)
        for one in self._remembering:  # the store may have changed since it was last open
            one.forget()
        for pool in self._pools:
            await pool.open()
        self._bus.open()
        self._open = True

    async def close(self) -> None:
        self._open = False
        self._presence.close()
        await self._bus.close()
        for pool in self._pools:
            await pool.close()

    async def exists(self) -> bool:
        async with self._aside() as connection:
            return bool(await migrate.applied(connection, self._schema))

    def another_session(self) -> Engine:
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
        """Return the names of the applied migrations, and of the pending ones."""
        async with self._aside() as connection:
            done = await migrate.applied(connection, self._schema)
            return done, [step.name for step in await migrate.pending(connection, self._schema)]

    async def time(self) -> datetime | None:
        return moment((await self._hot.fetch(_TIME))[0][0])

    async def check(self, now: datetime) -> list[Check]:
        async with self._aside() as connection:
            return [one async for one in checks.check(connection, self._schema, now)]

    @asynccontextmanager
    async def _aside(self) -> AsyncIterator[Connection]:
        """Open a connection outside of the pools, whether the session is open or not."""
        connection = await connect_once(self._url, pgbouncer=self._pgbouncer)
        try:
            yield connection
        except Exception as error:
            raise_meaning(error)
        finally:
            connection.terminate()

    async def _connect_directly(self) -> Connection:
        assert self._listen_url is not None
        return await connect_once(self._listen_url)

    async def _notify(self, notices: Sequence[tuple[str, str]]) -> None:
        text = "SELECT count(pg_notify(channel, payload)) FROM unnest($1::text[], $2::text[]) AS t (channel, payload)"
        await self._hot.fetch(text, [channel for channel, _ in notices], [payload for _, payload in notices])
