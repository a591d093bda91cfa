"""Connections: how the file is opened, and what SQLite's errors mean to the rest."""

from __future__ import annotations

import os
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Literal

import apsw

from headrace.errors import ConfigError, EngineError, HeadraceError, Unavailable, Unstorable

__all__ = ["Synchronous", "ask", "connect", "setup", "sql", "translate"]

Synchronous = Literal["full", "normal"]

_SOUND = (3, 51, 3)
"""Before this, two connections that write and checkpoint at the same instant may corrupt the file."""

_HALVES = "-- ask\n"


@cache
def sql(name: str) -> str:
    """The text of one verb's file."""
    return resources.files(__package__).joinpath("sql", f"{name}.sql").read_text(encoding="utf-8")


@cache
def setup(name: str) -> str:
    """What a connection must hold before the verb can be asked."""
    return sql(name).partition(_HALVES)[0]


@cache
def ask(name: str) -> str:
    """The one statement that is the verb."""
    before, _, after = sql(name).partition(_HALVES)
    return after or before


def check_library(version: str | None = None) -> None:
    """Refuse a SQLite library that is known to corrupt files under concurrent writers."""
    version = version or apsw.sqlite_lib_version()
    if tuple(int(part) for part in version.split(".")[:3]) < _SOUND:
        wanted = ".".join(map(str, _SOUND))
        raise ConfigError(
            f"SQLite {version} may corrupt a file that several processes write to (fixed in {wanted}):"
            ' pip install --upgrade "apsw>=3.53"'
        )


def check_place(path: Path) -> None:
    """Say what is wrong with a path before SQLite says less about it."""
    if path.is_dir():
        raise ConfigError(f"{path} is a directory: name a file in it, such as {path / 'jobs.db'}")
    if not path.parent.is_dir():
        raise ConfigError(f"there is no directory {path.parent} to keep {path.name} in: create it first")
    if path.exists() and not os.access(path, os.R_OK | os.W_OK):
        raise ConfigError(f"{path} cannot be read and written by this process: check its owner and permissions")
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise ConfigError(f"{path.parent} cannot be written to, and SQLite keeps its log there: check its permissions")


def connect(path: Path, synchronous: Synchronous, *, reads: bool = False) -> apsw.Connection:
    """A connection as this engine needs it; ``reads``: one that cannot write."""
    connection = apsw.Connection(str(path), statementcachesize=200)
    try:
        connection.set_busy_timeout(1000)
        connection.pragma("journal_mode", "wal")
        connection.pragma("synchronous", synchronous)
        connection.pragma("temp_store", "memory")
        connection.pragma("cache_size", -8000 if reads else -16000)
        connection.pragma("journal_size_limit", 64 * 1024 * 1024)
        if reads:
            connection.pragma("query_only", True)
    except BaseException:
        connection.close()
        raise
    return connection


def translate(error: Exception, path: Path) -> Exception:
    """What an error of SQLite means to whoever asked."""
    match error:
        case HeadraceError():
            return error
        case UnicodeError():
            return Unstorable(f"text that is not valid Unicode cannot be stored: {error}")
        case apsw.TooBigError():
            return Unstorable(f"more than SQLite stores in one value: {error}")
        case apsw.BusyError() | apsw.LockedError():
            return Unavailable(f"{path} stayed locked by another process: {error}")
        case apsw.FullError():
            return Unavailable(f"the disk that holds {path} is full: make room and try again")
        case apsw.ReadOnlyError() | apsw.PermissionsError() | apsw.AuthError():
            return Unavailable(f"{path} cannot be written to: {error}")
        case apsw.NotADBError():
            return ConfigError(f"{path} is not a SQLite database")
        case apsw.CorruptError():
            return Unavailable(f"{path} is damaged ({error}): restore it from a backup, or try `sqlite3 {path} .recover`")
        case apsw.CantOpenError():
            return Unavailable(f"{path} cannot be opened: {error}")
        case apsw.IOError():
            # The bytes of a commit may or may not have reached the disk.
            return Unavailable(f"reading or writing {path} failed: {error}", outcome="unknown")
        case apsw.NoMemError():
            return Unavailable(f"SQLite ran out of memory: {error}")
        case apsw.Error():
            return EngineError(f"SQLite refused what headrace asked of {path}: {type(error).__name__}: {error}")
    return error
