"""Checks: the health of the database, for people to read."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import datetime

from headrace.core.times import MAX_CLOCK_ERROR_SECONDS, told_apart
from headrace.engine import Check
from headrace.engines.postgres.store import schema as migrate
from headrace.engines.postgres.store.connection import Connection, sql
from headrace.engines.sql.encoding import micros
from headrace.engines.sql.records import ledger_check, ledger_of

__all__ = ["MIN_SERVER_VERSION", "check"]

MIN_SERVER_VERSION = 130000
"""PostgreSQL 13."""

_OLD_TRANSACTION_SECONDS = 3600.0


async def check(connection: Connection, schema: str, now: datetime) -> AsyncIterator[Check]:
    """Yield all findings, good and bad."""
    version = await connection.fetchval("SHOW server_version")
    if connection.get_server_version().major * 10000 < MIN_SERVER_VERSION:
        yield Check("server", "fail", f"PostgreSQL {version}", "headrace needs PostgreSQL 13 or newer")
    else:
        yield Check("server", "ok", f"PostgreSQL {version}")
    if await connection.fetchval("SELECT pg_is_in_recovery()"):
        yield Check("role", "fail", "this server is a standby: it takes no writes", "name the primary in the URL")
        return
    done, pending = await migrate.applied(connection, schema), await migrate.pending(connection, schema)
    if not done:
        yield Check("schema", "warn", f"{schema} is not there yet", "it is made when the engine is first opened")
        return
    if pending:
        yield Check("schema", "fail", f"{done[-1]} is not the newest", "run `headrace migrate`")
        return
    yield Check("schema", "ok", f"{schema}: {done[-1]}")
    for one in [
        await _durable(connection),
        await _clock(connection, now),
        await _horizon(connection),
        await _vacuum(connection, schema),
        await _connections(connection),
        ledger_check(ledger_of(tuple((await connection.fetch(sql("ledger", schema)))[0]))),
    ]:
        yield one


async def _durable(connection: Connection) -> Check:
    fsync, commit = await connection.fetchval("SHOW fsync"), await connection.fetchval("SHOW synchronous_commit")
    if fsync == "off" or commit == "off":
        return Check(
            "durability",
            "warn",
            f"fsync is {fsync}, synchronous_commit is {commit}: a crash of the server may take acknowledged writes",
            "turn both on",
        )
    return Check("durability", "ok", f"every acknowledged write is on disk (synchronous_commit {commit})")


async def _clock(connection: Connection, now: datetime) -> Check:
    there = await connection.fetchval("SELECT (extract(epoch FROM clock_timestamp()) * 1e6)::bigint")
    apart = (micros(now) - there) / 1e6
    if abs(apart) > MAX_CLOCK_ERROR_SECONDS:
        message = f"the clock of this machine is {told_apart(apart)} ({apart:+.1f} s); jobs go by the server's"
        return Check("clock", "warn", message, "let both follow NTP")
    return Check("clock", "ok", f"this machine's is {apart:+.2f} s from the server's")


async def _horizon(connection: Connection) -> Check:
    """Find old transactions: they keep dead rows from being removed, and every claim reads over those."""
    found = await connection.fetchrow(
        "SELECT pid, extract(epoch FROM clock_timestamp() - xact_start)::float8 AS age FROM pg_stat_activity"
        " WHERE backend_xmin IS NOT NULL AND xact_start IS NOT NULL AND datname = current_database()"
        " ORDER BY xact_start LIMIT 1"
    )
    if found is not None and found["age"] is not None and found["age"] > _OLD_TRANSACTION_SECONDS:
        return Check(
            "transactions",
            "warn",
            f"process {found['pid']} has had a transaction open for {found['age'] / 60:.0f} min: dead rows pile up",
            f"end it: SELECT pg_terminate_backend({found['pid']})",
        )
    return Check("transactions", "ok", "none is open for long")


async def _vacuum(connection: Connection, schema: str) -> Check:
    live, dead = await connection.fetchrow(
        "SELECT coalesce(sum(n_live_tup), 0)::bigint, coalesce(sum(n_dead_tup), 0)::bigint FROM pg_stat_user_tables"
        " WHERE schemaname = $1 AND relname = 'jobs'",
        schema.strip('"'),
    ) or (0, 0)
    if dead > 200_000 and dead > live:
        return Check("vacuum", "warn", f"{dead} dead rows beside {live} live ones", "see that autovacuum is on")
    return Check("vacuum", "ok", f"{dead} dead rows beside {live} live ones")


async def _connections(connection: Connection) -> Check:
    used = await connection.fetchval("SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'")
    most = int(await connection.fetchval("SHOW max_connections"))
    if used > most * 0.9:
        return Check("connections", "warn", f"{used} of {most} are in use", "raise max_connections, or use PgBouncer")
    return Check("connections", "ok", f"{used} of {most} are in use")
