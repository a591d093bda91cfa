"""Migrations: numbered files, applied and recorded in one commit, safe when several processes open at once."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import apsw

from headrace.engines.sql import schema
from headrace.engines.sql.encoding import micros
from headrace.engines.sql.schema import Migration
from headrace.engines.sqlite.store.connection import refuse_foreign

__all__ = ["APPLICATION_ID", "Migration", "applied", "apply", "available", "pending"]

APPLICATION_ID = 0x68656164
"""Marks the file as headrace's ("head")."""


def available() -> tuple[Migration, ...]:
    """Return the migrations that this version of headrace knows, in order."""
    return schema.available("headrace.engines.sqlite")


def applied(connection: apsw.Connection) -> list[str]:
    """Return the names of the migrations that were applied to the file, in order."""
    # Queried from the file: apsw's table_exists uses what the connection knew before another process wrote.
    if not connection.execute("SELECT count(*) FROM sqlite_schema WHERE name = 'migrations'").get:
        return []
    return [str(name) for (name,) in connection.execute("SELECT name FROM migrations ORDER BY name").fetchall()]


def pending(connection: apsw.Connection, path: Path) -> list[Migration]:
    """Return the migrations that the file still needs.

    :raises SchemaTooNew: it went through more than this version knows. :raises SchemaTooOld: a version before the first
    release made it.
    """
    return schema.missing(available(), applied(connection), path)


def is_empty(connection: apsw.Connection) -> bool:
    """Return whether there is nothing in the file."""
    return not connection.execute("SELECT count(*) FROM sqlite_schema").get


def check(connection: apsw.Connection, path: Path) -> None:
    """Refuse a file that belongs to another program or needs to be migrated first."""
    refuse_foreign(connection, path)
    if applied(connection):
        schema.refuse_old(pending(connection, path), path)


def apply(connection: apsw.Connection, path: Path, now: datetime) -> list[str]:
    """Bring the schema up to date; return what was done. All steps and their records are one commit."""
    if not pending(connection, path):
        return []
    connection.execute("BEGIN IMMEDIATE")
    steps = pending(connection, path)  # another process may have been faster
    connection.execute(
        "CREATE TABLE IF NOT EXISTS migrations (name TEXT PRIMARY KEY, checksum TEXT NOT NULL, at INTEGER NOT NULL)"
        " STRICT, WITHOUT ROWID"
    )
    for step in steps:
        connection.execute(step.script)
        connection.execute("INSERT INTO migrations VALUES (?, ?, ?)", (step.name, step.checksum, micros(now)))
    connection.pragma("application_id", APPLICATION_ID)
    connection.execute("COMMIT")
    return [step.name for step in steps]
