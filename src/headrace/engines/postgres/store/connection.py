"""The texts of statements, and what PostgreSQL's errors mean to the caller."""

from __future__ import annotations

import re
from functools import cache
from hashlib import sha256
from typing import TYPE_CHECKING, NoReturn

import asyncpg
from asyncpg import exceptions as pg

from headrace.engines.postgres.jobs.columns import WORDS
from headrace.engines.sql.templates import filled, text
from headrace.errors import ConfigError, EngineError, Unavailable, Unstorable

__all__ = ["Connection", "askable", "check_schema", "digest", "lock_number", "raise_meaning", "sql"]

if TYPE_CHECKING:
    Connection = asyncpg.Connection[asyncpg.Record]
else:
    Connection = asyncpg.Connection

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,47}")


def check_schema(name: str) -> str:
    """Return the name of a schema, quoted for statements.

    :raises ConfigError: it would have to be escaped, or is too long to name channels after.
    """
    if not _NAME.fullmatch(name) or name.startswith("pg_"):
        raise ConfigError(
            f"postgresql://: schema must be letters, digits and _, at most 48, and not begin with pg_: not {name!r}"
        )
    return f'"{name}"'


@cache
def sql(name: str, schema: str, **words: str) -> str:
    """Return the text of a statement's file, with the schema and other words filled in."""
    return filled(text("headrace.engines.postgres", name), WORDS | words | {"schema": schema})


def digest(*texts: str) -> str:
    """Return a digest of texts of any length."""
    return sha256("\0".join(texts).encode("utf-8", "surrogatepass")).hexdigest()


def lock_number(*texts: str) -> int:
    """Return the number of an advisory lock for what these texts name, in the range of a bigint."""
    return int.from_bytes(sha256("\0".join(texts).encode("utf-8", "surrogatepass")).digest()[:8], "big", signed=True)


def askable(*texts: str | None) -> bool:
    """Return whether the server accepts these texts as parameters: no text with a NUL or a lone surrogate."""
    try:
        return not any(b"\0" in text.encode() for text in texts if text is not None)
    except UnicodeEncodeError:
        return False


_AWAY: tuple[type[BaseException], ...] = (
    pg.PostgresConnectionError,
    pg.AdminShutdownError,
    pg.CrashShutdownError,
    pg.CannotConnectNowError,
    asyncpg.InterfaceError,
    pg.InternalClientError,  # the connection was cut while idle, and the driver has not noticed yet
    OSError,
    TimeoutError,
    EOFError,
)
"""Errors that mean that the server cannot be reached: whether a sent statement had an effect is not known."""

_BUSY: tuple[type[BaseException], ...] = (
    pg.TransactionRollbackError,  # deadlocks, too
    pg.LockNotAvailableError,
    pg.QueryCanceledError,
    pg.InsufficientResourcesError,  # disk, memory, connections
    pg.ReadOnlySQLTransactionError,
    pg.IdleInTransactionSessionTimeoutError,
)
"""Errors by which the server refused, with nothing written."""

_NOTIFY = "async.c"
"""The server's source file for errors of its notification queue; their code is also used for rows that are too long."""

_DATA: tuple[type[BaseException], ...] = (pg.DataError, pg.ProgramLimitExceededError, UnicodeError)


def raise_meaning(error: Exception, *, sent: bool = True) -> NoReturn:
    """Raise what an error of the driver means to the caller; ``sent``: a statement may have reached the server."""
    if isinstance(error, pg.UniqueViolationError):  # only the caller knows what this means
        raise error
    meant = _meaning(error, sent)
    if meant is error:
        raise error
    raise meant from error


def _meaning(error: Exception, sent: bool) -> Exception:
    if isinstance(error, EngineError):
        return error
    said = f"{type(error).__name__}: {error}".rstrip(": ")
    if isinstance(error, pg.ProgramLimitExceededError) and error.server_source_filename == _NOTIFY:
        return Unavailable(f"PostgreSQL has no room for hints: a session that listens does not keep up: {said}")
    if isinstance(error, _DATA):
        return Unstorable(f"PostgreSQL does not store this: {said}")
    if isinstance(error, _BUSY):
        return Unavailable(f"PostgreSQL refused for now: {said}")
    if isinstance(error, pg.ProtocolViolationError) and "startup parameter" in str(error):
        return ConfigError(f"postgresql://: {error}: if the URL leads through PgBouncer, add pgbouncer=1")
    if isinstance(error, _AWAY):
        return Unavailable(f"PostgreSQL is out of reach: {said}", outcome="unknown" if sent else "refused")
    if isinstance(error, pg.InvalidAuthorizationSpecificationError | pg.InvalidCatalogNameError):
        return ConfigError(f"postgresql://: {error}: check the user, the password and the database in the URL")
    if isinstance(error, pg.InsufficientPrivilegeError):
        return EngineError(f"PostgreSQL: {error}: grant this user the rights to the schema, or name another")
    if isinstance(error, pg.UndefinedTableError | pg.UndefinedColumnError | pg.InvalidSchemaNameError):
        return EngineError(f"PostgreSQL: {error}: the schema was changed or dropped while it was in use")
    if isinstance(error, pg.PostgresError):
        return EngineError(f"PostgreSQL refused what headrace asked of it: {said}")
    return error
