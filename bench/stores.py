"""Where the jobs of a measurement lie: a fresh file, or a fresh database on one PostgreSQL server."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol

import asyncpg

from tests.support.servers.postgres import Server

__all__ = ["Databases", "Files", "Stores", "postgres"]

GIVEN = "HEADRACE_BENCH_POSTGRES"
"""The environment variable that names a running server to use instead of an own one."""

BINARIES = "HEADRACE_BENCH_PG_BIN"
"""The environment variable that names the folder with the programs of another version, to start a server of."""

_SHOWN = ("fsync", "synchronous_commit", "full_page_writes", "shared_buffers", "max_wal_size", "autovacuum")
_TABLES = """
SELECT c.oid::regclass::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind = 'r' AND n.nspname NOT LIKE 'pg\\_%' AND n.nspname <> 'information_schema' ORDER BY 1
"""


class Stores(Protocol):
    """Makes stores of one kind."""

    def fresh(self) -> AbstractContextManager[str]:
        """A context with a store that nobody has used, as a side is told of it; it is gone afterwards."""
        ...

    def copy(self, store: str) -> AbstractContextManager[str]:
        """A context with a copy of a store that nobody uses at the moment."""
        ...

    def settle(self, store: str) -> None:
        """Bring a store that was just filled into the state that a little time would bring."""

    def facts(self) -> dict[str, str]:
        """What matters about the place, by name."""
        ...


class Files:
    """Stores for SQLite."""

    def __init__(self, home: Path) -> None:
        self._home = home

    @contextmanager
    def fresh(self) -> Iterator[str]:
        """A path in a directory of its own."""
        with TemporaryDirectory(dir=self._home) as directory:
            yield str(Path(directory) / "jobs.db")

    @contextmanager
    def copy(self, store: str) -> Iterator[str]:
        """A store that was closed in good order is one file."""
        with self.fresh() as copy:
            shutil.copy(store, copy)
            yield copy

    def settle(self, store: str) -> None:
        """SQLite has nothing to catch up on."""

    def facts(self) -> dict[str, str]:
        """Nothing that the disk and the sides do not say."""
        return {}


class Databases:
    """Stores on a PostgreSQL server."""

    def __init__(self, server: Server, note: str) -> None:
        self._server, self._note = server, note
        self._counts = ""

    @contextmanager
    def fresh(self) -> Iterator[str]:
        """The URL of a new database, right after a checkpoint: nobody pays for what others wrote."""
        name = self._server.create_database()
        try:
            self._execute("CHECKPOINT")
            yield self._server.url(name)
        finally:
            self._execute(f'DROP DATABASE "{name}" WITH (FORCE)')

    @contextmanager
    def copy(self, store: str) -> Iterator[str]:
        """A database made after the model of another, statistics and dead rows included."""
        name = f"{_database(store)}_copy"
        strategy = "STRATEGY file_copy" if int(self._server.version.split(".")[0]) >= 15 else ""
        self._execute(f'CREATE DATABASE "{name}" TEMPLATE "{_database(store)}" {strategy}')
        try:
            yield self._server.url(name)
        finally:
            self._execute(f'DROP DATABASE "{name}" WITH (FORCE)')

    def settle(self, store: str) -> None:
        """Do what autovacuum would do in a while."""
        self.execute(store, "VACUUM ANALYZE")

    def execute(self, store: str, sql: str) -> list[tuple[Any, ...]]:
        """The rows of a statement in one store."""
        return self._execute(sql, store)

    def tables(self, store: str) -> list[str]:
        """The tables of a side, as SQL names them."""
        return [str(name) for (name,) in self.execute(store, _TABLES)]

    def analyze(self, store: str) -> None:
        """Have the planner know all tables as they are now."""
        self.execute(store, "ANALYZE")

    def leave_alone(self, store: str) -> None:
        """Keep autovacuum from analyzing the tables behind our back, whatever the server is set to."""
        for table in self.tables(store):
            self.execute(store, f"ALTER TABLE {table} SET (autovacuum_enabled = off)")

    def counted(self) -> str:
        """What ``counts`` counts: statements if the server can tell, else transactions."""
        try:
            self._execute("CREATE EXTENSION IF NOT EXISTS pg_stat_statements")
            self._execute("SELECT count(*) FROM pg_stat_statements")
        except asyncpg.PostgresError:
            self._counts = "SELECT datname, xact_commit + xact_rollback FROM pg_stat_database WHERE datname IS NOT NULL"
            return "transactions"
        self._counts = (
            "SELECT datname, coalesce(sum(calls), 0) FROM pg_database"
            " LEFT JOIN pg_stat_statements ON dbid = pg_database.oid GROUP BY datname"
        )
        return "statements"

    def counts(self) -> dict[str, int]:
        """How many there were so far, by store."""
        return {self._server.url(name): int(count) for name, count in self._execute(self._counts)}

    def facts(self) -> dict[str, str]:
        """The server and its settings, as it tells them."""
        said = [f"{name}={self._execute(f'SHOW {name}')[0][0]}" for name in _SHOWN]
        return {"server": f"PostgreSQL {self._server.version} ({self._note}), {', '.join(said)}"}

    def _execute(self, sql: str, store: str | None = None) -> list[tuple[Any, ...]]:
        """Run a statement, however long it takes."""

        async def run() -> list[tuple[Any, ...]]:
            connection = await asyncpg.connect(store or self._server.dsn, statement_cache_size=0)
            try:
                return [tuple(row) for row in await connection.fetch(sql)]
            finally:
                await connection.close()

        return asyncio.run(run())


def _database(store: str) -> str:
    return store.rpartition("/")[2].partition("?")[0]


@contextmanager
def postgres(home: Path, dsn: str | None, **settings: str) -> Iterator[Databases]:
    """A server of our own below ``home``, with PostgreSQL's defaults but for ``settings``, or the one that is named."""
    if given := dsn or os.environ.get(GIVEN):
        yield Databases(Server(given), "a given server")
        return
    binaries = os.environ.get(BINARIES)
    server = Server.start(home, Path(binaries) if binaries else None, fsync="on", synchronous_commit="on", **settings)
    try:
        yield Databases(server, "started for this run")
    finally:
        server.stop()
