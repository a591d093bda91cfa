"""Migrations: all steps and their records in one commit, one process at a time."""

from __future__ import annotations

from datetime import datetime

from headrace.engines.postgres.store.connection import Connection, lock_number
from headrace.engines.sql import schema as migrations
from headrace.engines.sql.encoding import micros
from headrace.engines.sql.schema import Migration
from headrace.errors import ConfigError

__all__ = ["applied", "apply", "available", "check", "pending"]


def available() -> tuple[Migration, ...]:
    """Return the migrations that this version of headrace knows, in order."""
    return migrations.available("headrace.engines.postgres")


async def applied(connection: Connection, schema: str) -> list[str]:
    """Return the names of the migrations that were applied to the schema, in order; none if there is no such schema.

    :raises ConfigError: it belongs to another program.
    """
    name = schema.strip('"')
    relations: list[str] = [
        row[0]
        for row in await connection.fetch(
            "SELECT c.relname::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1",
            name,
        )
    ]
    if "migrations" in relations:
        return [row[0] for row in await connection.fetch(f"SELECT name FROM {schema}.migrations ORDER BY name")]
    if relations:
        raise ConfigError(f"the schema {name} holds something else ({relations[0]}): name another by ?schema=")
    return []


async def pending(connection: Connection, schema: str) -> list[Migration]:
    """Return the migrations that the schema still needs.

    :raises SchemaTooNew: it went through more than this version knows. :raises SchemaTooOld: a version before the first
    release made it.
    """
    return migrations.missing(available(), await applied(connection, schema), _place(schema))


async def check(connection: Connection, schema: str) -> None:
    """Refuse a schema that needs to be migrated first."""
    migrations.refuse_old(await pending(connection, schema), _place(schema))


async def apply(connection: Connection, schema: str, now: datetime) -> list[str]:
    """Bring the schema up to date; return the names of the migrations that were applied."""
    if not await pending(connection, schema):
        return []
    async with connection.transaction():
        # Whatever the default is: after waiting for the lock, this transaction must see what others have done.
        await connection.execute("SET TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE")
        await connection.execute("SELECT pg_advisory_xact_lock($1)", lock_number(schema, "migrate"))
        steps = await pending(connection, schema)  # another process may have been faster
        if len(steps) == len(available()):
            await _create(connection, schema)
        for step in steps:
            await connection.execute(step.script.replace("{schema}", schema))
            await connection.execute(
                f"INSERT INTO {schema}.migrations VALUES ($1, $2, $3)", step.name, step.checksum, micros(now)
            )
    return [step.name for step in steps]


async def _create(connection: Connection, schema: str) -> None:
    # Check first: a role that may use an existing schema need not have the right to create one.
    if not await connection.fetchval("SELECT 1 FROM pg_namespace WHERE nspname = $1", schema.strip('"')):
        await connection.execute(f"CREATE SCHEMA {schema}")
    await connection.execute(
        f"CREATE TABLE {schema}.migrations (name text PRIMARY KEY, checksum text NOT NULL, at bigint NOT NULL)"
    )


def _place(schema: str) -> str:
    return f"the schema {schema}"
