"""What the server holds for a worker: an advisory lock of a session of its own, released when that session ends.

The session leads directly to the server: a pooler would keep it open after its client's death. Each connection takes a
lock of its own, under a random number, so that after a broken connection the next one need not wait until the server
has noticed. A checker tries to share the lock, so that several checkers at once do not block each other.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple
from uuid import UUID

import asyncpg

from headrace.engine import Attended, Gone, WorkerRow
from headrace.engines.postgres.store.connection import Connection, sql
from headrace.errors import EngineError
from headrace.runtime.host import Host

__all__ = ["Presence"]

_log = logging.getLogger("headrace.postgres")

_FIRST_CONNECT_SECONDS = 3.0
_RECONNECT_SECONDS = 0.3
"""Seconds that a worker waits for its connection: at first, and when it was lost. Until it is back, the worker must
prove by beats that it lives."""
_STATEMENT_TIMEOUT_SECONDS = 5.0
"""Seconds for a statement."""

_FAILURES = (EngineError, asyncpg.PostgresError, asyncpg.InterfaceError, OSError, TimeoutError)

Connect = Callable[[], Awaitable[Connection]]


class _Held(NamedTuple):
    """A connection with the lock of a worker."""

    worker: UUID
    connection: Connection
    attended: Attended


class Presence:
    """The lock that one session holds, and checks of others' locks."""

    def __init__(self, connect: Connect | None, host: Host, lease: float) -> None:
        """``connect``: makes a connection that leads directly to the server; None: it cannot."""
        self._connect, self._host, self._lease = connect, host, lease
        self._held: _Held | None = None
        self._taking: tuple[UUID, asyncio.Task[None]] | None = None
        self._patience = _FIRST_CONNECT_SECONDS
        self._check_at = 0.0
        self._checking: asyncio.Task[None] | None = None
        self._prober: Connection | None = None
        self._server = ""
        self._by = 0
        self._looking = asyncio.Lock()

    async def attend(self, worker: UUID) -> Attended | None:
        """Hold the lock of this worker, and no other; None: not now, or not at all."""
        if self._connect is None:
            return None
        if (held := self._held) is not None and held.worker == worker and await self._holds(held):
            return held.attended
        patience, self._patience = self._patience, _RECONNECT_SECONDS
        if self._taking is None or self._taking[0] != worker or self._taking[1].done():
            self._stop_taking()
            self._taking = worker, asyncio.create_task(self._take(worker, self._connect))
        await asyncio.wait({self._taking[1]}, timeout=patience)
        held = self._held
        usable = held is not None and held.worker == worker and not held.connection.is_closed()
        return held.attended if held is not None and usable else None

    async def gone(self, rows: Sequence[WorkerRow]) -> Gone:
        """Return those of these workers with free locks, of the ones that have theirs in this run of this server."""
        async with self._looking:  # several workers may share this session
            try:
                connection = await self._probing()
                if connection is None:
                    return Gone(by=self._by)
                held = {row.info.id: number for row in rows if (number := self._number_of(row.proof)) is not None}
                if not held:
                    return Gone(by=self._by)
                found = await connection.fetch(
                    sql("gone", ""), list(held), list(held.values()), timeout=_STATEMENT_TIMEOUT_SECONDS
                )
            except _FAILURES as error:
                # Workers are judged by polls meanwhile; a session that is out of reach fails there.
                _log.debug("nobody's lock can be looked at: %s", error)
                self._stop_probing()
                return Gone(by=self._by)
            return Gone(frozenset(id for (id,) in found), self._by)

    def close(self) -> None:
        """Release the lock."""
        self._looking = asyncio.Lock()  # of the next loop
        self._stop_taking()
        self._stop_probing()
        held, self._held = self._held, None
        if held is not None:
            held.connection.terminate()

    async def _holds(self, held: _Held) -> bool:
        """Return whether the connection still exists; checks once a lease, since not every end is noticed.

        The server keeps the lock for two leases after it last heard from the connection. So a missing reply delays no
        worker that has a beat to send.
        """
        if held.connection.is_closed():
            return False
        if self._host.clock.monotonic() >= self._check_at:
            if self._checking is None or self._checking.done():
                self._checking = asyncio.create_task(self._check(held))
            await asyncio.wait({self._checking}, timeout=_RECONNECT_SECONDS)
        return not held.connection.is_closed()

    async def _check(self, held: _Held) -> None:
        try:
            await held.connection.execute("SELECT", timeout=_STATEMENT_TIMEOUT_SECONDS)
        except _FAILURES as error:
            _log.debug("the connection that shows that the worker lives is lost: %s", error)
            held.connection.terminate()
        else:
            self._check_at = self._host.clock.monotonic() + self._lease

    async def _take(self, worker: UUID, connect: Connect) -> None:
        try:
            connection = await connect()
        except _FAILURES as error:
            _log.debug("no connection to show that the worker lives: %s", error)
            return
        try:
            # Polls must notice a machine that is cut off before the server treats its connection as dead.
            least = math.ceil(2 * self._lease)
            pause = math.ceil(self._lease / 3)
            await connection.execute(
                "SELECT set_config(s.name, v.value, false) FROM pg_settings s JOIN (VALUES"
                f" ('tcp_keepalives_idle', '{least}'), ('tcp_keepalives_interval', '{pause}'),"
                f" ('tcp_keepalives_count', '3'), ('tcp_user_timeout', '{least}s'), ('idle_session_timeout', '0')"
                ") AS v (name, value) ON v.name = s.name",
                timeout=_STATEMENT_TIMEOUT_SECONDS,
            )
            number = self._host.dice.token()
            (row,) = await connection.fetch(sql("attend", ""), number, timeout=_STATEMENT_TIMEOUT_SECONDS)
        except BaseException as error:
            connection.terminate()
            if not isinstance(error, _FAILURES):
                raise
            _log.debug("the server holds nothing for the worker: %s", error)
            return
        before = self._held
        self._held = _Held(worker, connection, Attended(f"{row['server']} {row['pid']} {number}"))
        self._check_at = self._host.clock.monotonic() + self._lease
        if before is not None:  # only now: between two connections there is no moment without a lock
            before.connection.terminate()

    def _stop_taking(self) -> None:
        if self._taking is not None:
            self._taking[1].cancel()
            self._taking = None

    async def _probing(self) -> Connection | None:
        """Return the connection for checks, as long as it is unbroken; then another."""
        if self._prober is not None and not self._prober.is_closed():
            return self._prober
        self._stop_probing()
        if self._connect is not None:
            self._prober = await self._connect()
            self._server = await self._prober.fetchval(sql("server", ""), timeout=_STATEMENT_TIMEOUT_SECONDS) + " "
        return self._prober

    def _stop_probing(self) -> None:
        if self._prober is not None:
            self._prober.terminate()
            self._prober = None
        self._by += 1

    def _number_of(self, proof: str | None) -> int | None:
        """Return the number of the lock; None: it is not one of this run of this server."""
        if proof is None or not proof.startswith(self._server):
            return None
        last = proof.rpartition(" ")[2]
        return int(last) if last.isdecimal() else None
