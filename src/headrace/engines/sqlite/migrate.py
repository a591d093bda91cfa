"""Migrations: numbered files, applied and recorded in one commit, safe when several processes open at once."""

from __future__ import annotations

from datetime import datetime
from functools import cache
from hashlib import sha256
from importlib import resources
from pathlib import Path

import apsw
import msgspec

from headrace.engines.sqlite.connection import refuse_foreign
from headrace.engines.sqlite.rows import micros
from headrace.errors import SchemaTooNew, SchemaTooOld

__all__ = ["APPLICATION_ID", "Migration", "applied", "apply", "available", "pending"]

APPLICATION_ID = 0x68656164
"""Marks the file as headrace's ("head")."""


class Migration(msgspec.Struct, frozen=True):
    """One step of the schema."""

    name: str
    script: str

    @property
    def checksum(self) -> str:
        """Tells one text from another."""
        return sha256(self.script.encode()).hexdigest()


@cache
def available() -> tuple[Migration, ...]:
    """What this version knows, in order."""
    folder = resources.files(__package__).joinpath("migrations")
    files = sorted((file for file in folder.iterdir() if file.name.endswith(".sql")), key=lambda file: file.name)
    return tuple(Migration(file.name.removesuffix(".sql"), file.read_text(encoding="utf-8")) for file in files)


def applied(connection: apsw.Connection) -> list[str]:
    """What the file went through, in order."""
    # Asked of the file: apsw's table_exists answers from what the connection knew before another process wrote.
    if not connection.execute("SELECT count(*) FROM sqlite_schema WHERE name = 'migrations'").get:
        return []
    return [str(name) for (name,) in connection.execute("SELECT name FROM migrations ORDER BY name").fetchall()]


def pending(connection: apsw.Connection, path: Path) -> list[Migration]:
    """What the file still has to go through.

    :raises SchemaTooNew: it went through more than this version knows.
    """
    done = applied(connection)
    known = [migration.name for migration in available()]
    strange = [name for name in done if name not in known]
    if strange:
        raise SchemaTooNew(
            f"{path} has schema {strange[-1]}, this version of headrace knows {known[-1]}: upgrade headrace"
        )
    return [migration for migration in available() if migration.name not in done]


def is_empty(connection: apsw.Connection) -> bool:
    """Whether nobody has put anything into the file."""
    return not connection.execute("SELECT count(*) FROM sqlite_schema").get


def check(connection: apsw.Connection, path: Path) -> None:
    """Refuse a file that is somebody else's or needs to be migrated first."""
    refuse_foreign(connection, path)
    if applied(connection) and (missing := pending(connection, path)):
        raise SchemaTooOld(f"{path} needs {', '.join(step.name for step in missing)}: run `headrace migrate`")


def apply(connection: apsw.Connection, path: Path, now: datetime) -> list[str]:
    """Bring the schema up to date; what was done. All steps and their records are one commit."""
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
