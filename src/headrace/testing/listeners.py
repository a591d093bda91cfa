"""Connections of the user as the harness hears of their commits: by events of SQLAlchemy, ``on_commit`` of Django,
and the statements that apsw and asyncpg tell of. psycopg tells of nothing.

A connection is recognized by the name of its class, so that no driver is imported that is not in use.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Any, NamedTuple

from headrace.core.job import Job
from headrace.errors import ConfigError, NotSupported

__all__ = ["Listened", "Write", "listen", "own"]


class Write(NamedTuple):
    """What is to be stored, once it is committed."""

    jobs: tuple[Job, ...]
    store: Callable[[], Coroutine[Any, Any, None]]


Store = Callable[[Sequence[Write]], None]


class Listened:
    """A connection, and what waits for its commit. This class stands for one that tells of nothing."""

    blocking = True
    over = False
    """Whether it belongs to a transaction that has ended, so that the next one is listened to anew."""

    def __init__(self, connection: Any, store: Store) -> None:
        self._connection, self._store = connection, store
        self._within: list[tuple[Write, frozenset[Any]]] = []
        """Writes, each with the savepoints that it lies in."""
        self._savepoints: list[Any] = []
        self.start()

    @property
    def kind(self) -> str:
        """The class of the connection, by its whole name."""
        return f"{type(self._connection).__module__}.{type(self._connection).__qualname__}"

    @property
    def writes(self) -> list[Write]:
        """What waits for the commit."""
        return [write for write, _ in self._within]

    @property
    def open(self) -> bool:
        """Whether a transaction is open on it."""
        return True

    def start(self) -> None:
        """Begin to listen."""

    def close(self) -> None:
        """Listen no longer."""

    def check(self) -> None:
        """Check that a transaction is open; :raises ConfigError: none is"""

    def settle(self) -> None:
        """Find out whether the transaction has ended, where its end is not told at once."""

    def add(self, write: Write) -> bool:
        """Let it wait for the commit; return whether that will be told."""
        return False

    # -- what is told

    def _keep(self, write: Write) -> bool:
        self._within.append((write, frozenset(self._savepoints)))
        return True

    def committed(self) -> None:
        """Store what waits."""
        writes = self.writes
        self.rolled_back()
        if writes:
            self._store(writes)

    def rolled_back(self) -> None:
        """Drop what waits."""
        self._within.clear()
        self._savepoints.clear()

    def begun(self, savepoint: Any) -> None:
        """Note a savepoint."""
        self._savepoints.append(savepoint)

    def released(self, savepoint: Any) -> None:
        """Forget a savepoint; what was in it is in the transaction now."""
        self._savepoints = [one for one in self._savepoints if one != savepoint]
        self._within = [(write, within - {savepoint}) for write, within in self._within]

    def rolled_back_to(self, savepoint: Any) -> None:
        """Drop what was written since; a savepoint that is not known was there before all of it."""
        known = savepoint in self._savepoints
        self._within = [(write, within) for write, within in self._within if known and savepoint not in within]
        self._savepoints = self._savepoints[: self._savepoints.index(savepoint)] if known else []


def _not_begun(how: str) -> ConfigError:
    return ConfigError(f"connection: no transaction is open on it: begin one first, as in {how}")


class _Events(Listened):
    """A connection that has events of SQLAlchemy."""

    def _listen(self, of: Any, **events: Callable[..., None]) -> None:
        from sqlalchemy import event

        self._listeners = [(of, name, react) for name, react in events.items()]
        for one in self._listeners:
            event.listen(*one)

    def close(self) -> None:
        from sqlalchemy import event

        for one in self._listeners:
            event.remove(*one)

    @property
    def open(self) -> bool:
        return bool(self._connection.in_transaction())

    def add(self, write: Write) -> bool:
        return self._keep(write)


class _Session(_Events):
    """A ``Session``: by its own events, since a test may let it run in a transaction that is never committed."""

    def start(self) -> None:
        self._session = getattr(self._connection, "sync_session", self._connection)
        self._listen(
            self._session,
            after_commit=self._after_commit,
            after_soft_rollback=self._after_rollback,
            after_transaction_end=self._after_end,
        )

    def add(self, write: Write) -> bool:
        self._savepoints, nested = [], self._session.get_nested_transaction()
        while nested is not None:
            self._savepoints.append(nested)
            nested = nested.parent
        return self._keep(write)

    def _after_commit(self, session: Any) -> None:
        if not session.in_nested_transaction():
            self.committed()

    def _after_rollback(self, session: Any, previous_transaction: Any) -> None:
        if previous_transaction.nested:
            self._within = [one for one in self._within if previous_transaction not in one[1]]
        else:
            self.rolled_back()

    def _after_end(self, session: Any, transaction: Any) -> None:
        if transaction.parent is None:  # also of a session that is closed without a commit
            self.rolled_back()


class _AsyncSession(_Session):
    """An ``AsyncSession``."""

    blocking = False


class _Connection(_Events):
    """A ``Connection``."""

    def start(self) -> None:
        self._listen(
            getattr(self._connection, "sync_connection", self._connection),
            commit=lambda connection: self.committed(),
            rollback=lambda connection: self.rolled_back(),
            savepoint=lambda connection, name: self.begun(object()),  # it has no name yet
            release_savepoint=lambda connection, name, context: self.released(self._last()),
            rollback_savepoint=lambda connection, name, context: self.rolled_back_to(self._last()),
        )

    def _last(self) -> Any:
        return self._savepoints[-1] if self._savepoints else None


class _AsyncConnection(_Connection):
    """An ``AsyncConnection``."""

    blocking = False


class _Django(Listened):
    """A connection of Django, which knows its savepoints itself."""

    @property
    def open(self) -> bool:
        return bool(self._connection.in_atomic_block)

    def check(self) -> None:
        if not self._connection.in_atomic_block and self._connection.get_autocommit():
            raise _not_begun("with transaction.atomic():")

    def add(self, write: Write) -> bool:
        if not self._connection.in_atomic_block:  # where on_commit is refused
            return False
        self._connection.on_commit(lambda: self._store([write]))
        return True


class _Statements(Listened):
    """A connection that tells of its statements."""

    def add(self, write: Write) -> bool:
        return self._keep(write)

    def ran(self, sql: str, *, ended: bool) -> None:
        """Take note of a statement; ``ended``: no transaction is open after it."""
        words = sql.strip().rstrip(";").upper().split() or [""]
        if ended:
            self.committed() if words[0] in ("COMMIT", "END", "RELEASE") else self.rolled_back()
        elif words[0] == "SAVEPOINT":
            self.begun(words[-1])
        elif words[0] == "RELEASE":
            self.released(words[-1])
        elif words[0] == "ROLLBACK" and len(words) > 1:
            self.rolled_back_to(words[-1])


class _Apsw(_Statements):
    """A connection of apsw."""

    def start(self) -> None:
        import apsw

        self._connection.trace_v2(apsw.SQLITE_TRACE_PROFILE, self._traced, id=self)

    def _traced(self, event: dict[str, Any]) -> None:
        self.ran(event["sql"], ended=not self._connection.in_transaction)

    def close(self) -> None:
        import apsw

        try:
            self._connection.trace_v2(0, None, id=self)
        except (apsw.ConnectionClosedError, apsw.ThreadingViolationError):
            pass

    @property
    def open(self) -> bool:
        return bool(self._connection.in_transaction)

    def check(self) -> None:
        if not self.open:
            raise _not_begun('execute("BEGIN IMMEDIATE")')


class _Asyncpg(_Statements):
    """A connection of asyncpg, or of its pool, in one transaction. Its log of queries comes a turn of the loop late."""

    blocking = False

    def start(self) -> None:
        self.check()
        self._top = getattr(self._connection, "_top_xact", None)
        self._connection.add_query_logger(self._logged)

    def _logged(self, record: Any) -> None:
        verb, _, rest = record.query.strip().rstrip(";").upper().partition(" ")
        if self.over or record.exception is not None:
            return
        if verb in ("COMMIT", "END") or (verb in ("ROLLBACK", "ABORT") and not rest.startswith("TO ")):
            self._end(committed=verb in ("COMMIT", "END"))
        else:
            self.ran(record.query, ended=False)

    def _end(self, *, committed: bool) -> None:
        self.over = True
        self.close()
        if committed:
            self.committed()
        else:
            self.rolled_back()

    def close(self) -> None:
        import asyncpg

        try:
            self._connection.remove_query_logger(self._logged)
        except asyncpg.InterfaceError:  # given back to its pool
            pass

    @property
    def open(self) -> bool:
        import asyncpg

        try:
            return bool(self._connection.is_in_transaction())
        except asyncpg.InterfaceError:
            return False

    def check(self) -> None:
        if not self.open:
            raise _not_begun("async with connection.transaction():")

    def settle(self) -> None:
        # Between the end and its line in the log; the state has no public name.
        state = getattr(getattr(self._top, "_state", None), "name", None)
        if not self.over and state in ("COMMITTED", "ROLLEDBACK", "FAILED"):
            self._end(committed=state == "COMMITTED")


class _Psycopg(Listened):
    """A connection of psycopg, which tells of nothing."""

    @property
    def open(self) -> bool:
        return self._connection.info.transaction_status in (1, 2, 3)

    def check(self) -> None:
        if self._connection.autocommit and not self.open:
            raise _not_begun("with connection.transaction():")


class _AsyncPsycopg(_Psycopg):
    """A ``psycopg.AsyncConnection``."""

    blocking = False


_KINDS: dict[str, Callable[[Any, Store], Listened]] = {
    "apsw.Connection": _Apsw,
    "asyncpg.connection.Connection": _Asyncpg,
    "asyncpg.pool.PoolConnectionProxy": _Asyncpg,
    "psycopg.Connection": _Psycopg,
    "psycopg.AsyncConnection": _AsyncPsycopg,
    "sqlalchemy.orm.session.Session": _Session,
    "sqlalchemy.engine.base.Connection": _Connection,
    "sqlalchemy.ext.asyncio.session.AsyncSession": _AsyncSession,
    "sqlalchemy.ext.asyncio.engine.AsyncConnection": _AsyncConnection,
    "django.db.backends.base.base.BaseDatabaseWrapper": _Django,
}
_PROXIES: dict[str, Callable[[Any], Any]] = {
    "sqlalchemy.orm.scoping.scoped_session": lambda scoped: scoped(),
    "sqlalchemy.ext.asyncio.scoping.async_scoped_session": lambda scoped: scoped(),
    "django.utils.connection.ConnectionProxy": lambda proxy: proxy.cursor.__self__,
}
"""What stands for another connection on each thread, or in each task."""


def own(connection: Any) -> Any:
    """Return the connection that this one stands for here."""
    for one in type(connection).__mro__:
        if (of := _PROXIES.get(f"{one.__module__}.{one.__qualname__}")) is not None:
            return of(connection)
    return connection


def listen(connection: Any, store: Store) -> Listened:
    """Listen to a connection; :raises NotSupported: no engine takes this kind of connection"""
    for one in type(connection).__mro__:
        if (kind := _KINDS.get(f"{one.__module__}.{one.__qualname__}")) is not None:
            return kind(connection, store)
    kind_name = f"{type(connection).__module__}.{type(connection).__qualname__}"
    raise NotSupported(f"connection: neither PostgreSQL's engine nor SQLite's takes a {kind_name}")
