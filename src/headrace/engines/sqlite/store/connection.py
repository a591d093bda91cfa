"""Connections: how the file is opened, and what SQLite's errors mean to the caller."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Literal, TypeVar

import apsw

from headrace.engine.transactions import Statement, Statements, walk
from headrace.engines.sql.templates import filled, text
from headrace.engines.sqlite.jobs.columns import AS_STATEMENT, AS_TRIGGER, WORDS
from headrace.engines.sqlite.store.files import find, refuse_empty
from headrace.errors import ConfigError, EngineError, StoreLost, Unavailable, Unstorable

__all__ = [
    "OWN_FILE_MODE",
    "Synchronous",
    "ask",
    "connect",
    "damaged",
    "drive",
    "prepare",
    "reading",
    "refuse_foreign",
    "sql",
    "translate",
    "trim_log",
    "unfolded",
]

Synchronous = Literal["full", "normal"]

T = TypeVar("T")

_SOUND = (3, 51, 3)
"""Before this, two connections that write and checkpoint at the same instant may corrupt the file."""

_LOG_PAGES = 4000
"""Pages in the log before they are copied into the file (16 MiB): hot pages are copied once for many writes."""

OWN_FILE_MODE = 0o600
"""The mode of a file that is its user's alone."""

MAX_LOG_BYTES = 64 * 1024 * 1024
"""Bytes; a log that is larger is cut."""

_CHECK_SECONDS = 1.0
"""Seconds."""

_HALVES = "-- ask\n"


@cache
def sql(name: str) -> str:
    """Return the text of a statement's file, with its words filled in."""
    parts = {
        part: filled(text("headrace.engines.sqlite", part), words).strip("\n") for part, words in AS_TRIGGER.items()
    }
    found = filled(text("headrace.engines.sqlite", name), parts | WORDS)
    if "{schema}" in found:  # one that is shared with PostgreSQL
        found = found.replace("{schema}.", "").replace("$", "?")
    return found


@cache
def setup(name: str) -> str:
    """Return the statements that create what a verb needs on a connection."""
    return sql(name).partition(_HALVES)[0]


@cache
def ask(name: str) -> str:
    """Return the one statement that is the verb."""
    before, _, after = sql(name).partition(_HALVES)
    return after or before


@cache
def unfolded(part: str) -> str:
    """Return what a trigger does, as statements of their own. $1: a JSON array of the values

    Nothing is created on a user's connection, where it would hide what the user has under the same name.
    """
    return filled(text("headrace.engines.sqlite", part), AS_STATEMENT[part] | WORDS)


@cache
def reading(name: str) -> str:
    """Return a statement that uses the view ``record``, with the view written into it, for a user's connection."""
    return f"WITH record AS (\n{sql('record')})\n{ask(name)}"


def check_library(version: str | None = None) -> None:
    """Refuse a SQLite library that is known to corrupt files under concurrent writers."""
    version = version or apsw.sqlite_lib_version()
    if tuple(int(part) for part in version.split(".")[:3]) < _SOUND:
        wanted = ".".join(map(str, _SOUND))
        raise ConfigError(
            f"SQLite {version} may corrupt a file that several processes write to (fixed in {wanted}):"
            ' pip install --upgrade "apsw>=3.53"'
        )


def make_file(path: Path, mode: int) -> None:
    """Make the file, if there is none, with exactly this mode, whatever the umask is.

    It has what others may not read, from its first moment on. What SQLite makes beside it has the mode of the file.
    """
    with suppress(FileExistsError):
        # The target of links, as for SQLite: a link without a target is no existing file.
        descriptor = os.open(os.path.realpath(path), os.O_RDWR | os.O_CREAT | os.O_EXCL, mode)
        try:
            if hasattr(os, "fchmod"):  # not on every Windows
                os.fchmod(descriptor, mode)
        finally:
            os.close(descriptor)


def check_place(path: Path) -> None:
    """Raise what is wrong with a path before SQLite raises a less helpful error."""
    if path.is_dir():
        raise ConfigError(f"{path} is a directory: name a file in it, such as {path / 'jobs.db'}")
    if not path.parent.is_dir():
        raise ConfigError(f"there is no directory {path.parent} to keep {path.name} in: create it first")
    if path.exists() and not os.access(path, os.R_OK | os.W_OK):
        raise ConfigError(
            f"{path} cannot be read and written by this process: check its owner and permissions; a new file is its"
            " user's alone, unless ?mode=0660 in the URL shares it with a group"
        )
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise ConfigError(f"{path.parent} cannot be written to, and SQLite keeps its log there: check its permissions")


def refuse_foreign(connection: apsw.Connection, path: Path) -> None:
    """Refuse a database that is not headrace's; :raises ConfigError:"""
    tables, ours = connection.execute("SELECT count(*), total(name = 'migrations') FROM sqlite_schema").get
    if tables and not ours:
        raise ConfigError(f"{path} is a database of something else: name another file")


def connect(
    path: Path, synchronous: Synchronous, verbs: Iterable[str] = (), *, make: int | None = OWN_FILE_MODE
) -> apsw.Connection:
    """Return a connection as this engine needs it, ready for these verbs if the schema exists.

    ``make``: make the file if there is none, with this mode, as the first to open it may; None for all others, which
    would make an empty store where one was lost.

    :raises StoreLost: the file that existed is gone
    """
    try:
        if make is not None:
            make_file(path, make)
        connection = apsw.Connection(str(path), apsw.SQLITE_OPEN_READWRITE, statementcachesize=200)
    except OSError as error:
        raise Unavailable(f"{path} cannot be made: {error.strerror or error}") from error
    except apsw.CantOpenError:
        if make is None:
            find(path)
        raise
    try:
        connection.set_busy_timeout(1000)
        # Before anything in the file is changed, even the journal mode.
        refuse_foreign(connection, path)
        if make is None:
            refuse_empty(connection, path)
        connection.pragma("journal_mode", "wal")
        connection.pragma("synchronous", synchronous)
        # On macOS alone a plain fsync leaves the last writes in the drive's own cache.
        connection.pragma("fullfsync", synchronous == "full")
        connection.pragma("temp_store", "memory")
        connection.pragma("cache_size", -4000)
        connection.wal_autocheckpoint(_LOG_PAGES)
        connection.pragma("journal_size_limit", MAX_LOG_BYTES)
        for verb in verbs:
            prepare(connection, verb)
    except BaseException:
        connection.close()
        raise
    return connection


def prepare(connection: apsw.Connection, verb: str) -> None:
    """Create what a verb needs on the connection, beside the schema."""
    connection.execute(f"CREATE TEMP VIEW record AS\n{sql('record')}" if verb == "record" else setup(verb))


def drive(connection: apsw.Connection, statements: Statements[T]) -> T:
    """Run the statements of a write on this connection, in the transaction that is open."""

    def execute(statement: Statement) -> str:
        # By its name: each of several statements has it, or none.
        answer = connection.execute(statement.sql, {"1": statement.document}).get
        return "" if answer is None else str(answer)

    return walk(statements, execute)


def trim_log(connection: apsw.Connection, path: Path) -> float:
    """Cut the log if it is too large; return after how many seconds to check again.

    Readers that overlap without a gap keep SQLite from restarting the log, and it grows as long as they do.
    """
    try:
        if os.stat(f"{path}-wal").st_size <= MAX_LOG_BYTES:
            return _CHECK_SECONDS
        connection.set_busy_timeout(500)
        busy, _, _ = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").get
    except (OSError, apsw.Error):
        busy = True
    # Readers blocked it. Writers must not wait for them again too soon.
    return _CHECK_SECONDS * 10 if busy else _CHECK_SECONDS


def damaged(path: Path, error: apsw.Error) -> StoreLost:
    """Return the error for a file with content that SQLite did not write; an earlier commit may or may not be in it."""
    return StoreLost(
        f"{path} is damaged ({error}): stop every program that uses it, look with `headrace doctor`, and restore a"
        f" backup or try `sqlite3 {path} .recover`",
        outcome="unknown",
    )


def translate(error: Exception, path: Path) -> Exception:
    """Return the error to raise to the caller for an error of SQLite."""
    if isinstance(error, UnicodeError):
        return Unstorable(f"text that is not valid Unicode cannot be stored: {error}")
    if not isinstance(error, apsw.Error):
        return error
    for kind, mean in _MEANINGS:
        if isinstance(error, kind):
            return mean(path, error)
    return EngineError(f"SQLite refused what headrace asked of {path}: {type(error).__name__}: {error}")


_MEANINGS: tuple[
    tuple[type[apsw.Error] | tuple[type[apsw.Error], ...], Callable[[Path, apsw.Error], Exception]], ...
] = (
    (apsw.TooBigError, lambda path, error: Unstorable(f"more than SQLite stores in one value: {error}")),
    (
        (apsw.BusyError, apsw.LockedError),
        lambda path, error: Unavailable(f"{path} stayed locked by another process: {error}"),
    ),
    (apsw.FullError, lambda path, error: Unavailable(f"the disk that holds {path} is full: make room and try again")),
    (
        (apsw.ReadOnlyError, apsw.PermissionsError, apsw.AuthError),
        lambda path, error: Unavailable(f"{path} cannot be written to: {error}"),
    ),
    (apsw.NotADBError, lambda path, error: ConfigError(f"{path} is not a SQLite database")),
    (apsw.CorruptError, damaged),
    (apsw.CantOpenError, lambda path, error: Unavailable(f"{path} cannot be opened: {error}")),
    (
        apsw.IOError,  # the bytes of a commit may or may not have reached the disk
        lambda path, error: Unavailable(f"reading or writing {path} failed: {error}", outcome="unknown"),
    ),
    (apsw.NoMemError, lambda path, error: Unavailable(f"SQLite ran out of memory: {error}")),
)
