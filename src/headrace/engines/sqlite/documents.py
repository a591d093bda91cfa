"""Documents of a SQLite store: settings, profiles, leases."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import apsw
import msgspec

from headrace.core.match import Profile
from headrace.engine import Profiles, Setting
from headrace.engines.record import micros
from headrace.engines.refusing import has_halves, refuse_text
from headrace.engines.rulebook import readable_queue
from headrace.engines.sqlite.connection import ask
from headrace.engines.sqlite.db_thread import DbThread

__all__ = ["Documents"]

_QUEUE = "queue:"


class Documents:
    """The role ``documents`` of one session."""

    def __init__(self, writer: DbThread, reader: DbThread) -> None:
        self._writer, self._reader = writer, reader

    async def profiles(self) -> Profiles:
        def read(connection: apsw.Connection) -> Profiles:
            connection.execute("BEGIN")  # the rev and the list must be of one moment
            rev: int = connection.execute("SELECT profiles_rev FROM books").get
            rows: list[Any] = connection.execute(
                "SELECT id, task, requires FROM profiles WHERE live ORDER BY id"
            ).fetchall()
            connection.execute("COMMIT")
            return Profiles(rev, tuple(Profile(id, task, msgspec.json.decode(needs)) for id, task, needs in rows))

        return await self._reader.run(read)

    async def settings(self, prefix: str = "") -> list[Setting]:
        if has_halves(prefix):
            return []
        select = "SELECT key, value, rev FROM settings WHERE substr(key, 1, length(?1)) = ?1 ORDER BY key"
        rows: list[Any] = await self._reader.run(lambda connection: connection.execute(select, (prefix,)).fetchall())
        return [Setting(*row) for row in rows]

    async def put_setting(self, key: str, value: str | None, expect: int) -> Setting | None:
        refuse_text(key, value)
        rule = readable_queue(value) if key.startswith(_QUEUE) else None

        def write(connection: apsw.Connection) -> Setting | None:
            connection.execute("BEGIN IMMEDIATE")
            here = connection.execute("SELECT value, rev FROM settings WHERE key = ?", (key,)).get
            was = Setting(key, "null", 0) if here is None else Setting(key, *here)
            if was.rev != expect:
                connection.execute("ROLLBACK")
                return None
            # One counter for all: no rev is given to a key twice, also after it was deleted.
            rev: int = connection.execute("UPDATE books SET settings_rev = settings_rev + 1 RETURNING settings_rev").get
            if value is None:
                connection.execute("DELETE FROM settings WHERE key = ?", (key,))
            else:
                connection.execute("INSERT OR REPLACE INTO settings VALUES (?, ?, ?)", (key, value, rev))
            if rule is not None:
                queue = (key.removeprefix(_QUEUE), rule.priority, rule.paused)
                connection.execute("INSERT OR REPLACE INTO queues VALUES (?, ?, ?)", queue)
            connection.execute("COMMIT")
            return was if value is None else Setting(key, value, rev)

        return await self._writer.run(write)

    async def lease(self, name: str, holder: UUID, seconds: float, now: datetime) -> int | None:
        args = (name, holder.bytes, micros(now), micros(now + timedelta(seconds=seconds)))
        token: int | None = await self._writer.run(lambda connection: connection.execute(ask("lease"), args).get)
        return token

    async def unlease(self, name: str, holder: UUID) -> None:
        statement = "UPDATE leases SET holder = NULL, until = 0 WHERE name = ? AND holder = ? RETURNING 1"
        await self._writer.run(lambda connection: connection.execute(statement, (name, holder.bytes)).get)
