"""Workers of a SQLite store."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import apsw
import msgspec

from headrace.core.rules import Rules
from headrace.engine import Alive, Beat, Dead, WorkerInfo, WorkerRow
from headrace.engines.record import encode, micros, moment
from headrace.engines.sqlite.connection import ask
from headrace.engines.sqlite.db_thread import DbThread
from headrace.engines.sqlite.rows import jobs_of

__all__ = ["Workers"]

_ids = msgspec.json.Decoder(tuple[UUID, ...]).decode
_info = msgspec.json.Decoder(WorkerInfo).decode
_beat = msgspec.json.Decoder(Beat).decode


class Workers:
    """The role ``workers`` of one session."""

    def __init__(self, writer: DbThread, reader: DbThread, rules: Rules) -> None:
        self._writer, self._reader, self._rules = writer, reader, rules

    async def register(self, info: WorkerInfo, now: datetime) -> None:
        args = (info.id.bytes, encode(info), encode(Beat()), micros(now))
        await self._writer.run(
            lambda connection: connection.execute("INSERT OR IGNORE INTO workers VALUES (?, ?, ?, 0, ?, 1)", args).get
        )

    async def beat(self, worker: UUID, beat: Beat, now: datetime) -> Alive | Dead:
        old = micros(now - timedelta(seconds=2 * self._rules.beat))
        id, at, named, said = worker.bytes, micros(now), encode(beat.held), encode(beat)

        def write(connection: apsw.Connection) -> tuple[int, str, str, int, int] | None:
            connection.execute("BEGIN IMMEDIATE")
            beats: int | None = connection.execute(ask("beat"), (id, said, at)).get
            if beats is None:
                connection.execute("ROLLBACK")
                return None
            # Most beats name everything: then this writes no job at all.
            connection.execute(ask("unnamed"), (id, old, named))
            answer: tuple[str, str, int, int] = connection.execute(ask("told"), (id, old, named)).get
            connection.execute("COMMIT")
            return beats, *answer

        told = await self._writer.run(write)
        if told is None:
            return Dead()
        beats, cancels, unknown, profiles_rev, settings_rev = told
        return Alive(beats, _ids(cancels), tuple(jobs_of(unknown)), profiles_rev, settings_rev)

    async def bury(self, worker: UUID, beats: int) -> bool:
        statement = "UPDATE workers SET alive = 0 WHERE id = ? AND beats = ? RETURNING 1"
        found = await self._writer.run(lambda connection: connection.execute(statement, (worker.bytes, beats)).get)
        return found is not None

    async def retire(self, worker: UUID) -> None:
        def write(connection: apsw.Connection) -> None:
            connection.execute("UPDATE workers SET alive = 0 WHERE id = ?", (worker.bytes,))
            connection.execute(ask("forget"))

        await self._writer.run(write)

    async def list(self) -> list[WorkerRow]:
        # Nothing is written unless there are dead ones to forget.
        dead = "SELECT EXISTS (SELECT 1 FROM workers WHERE NOT alive)"
        if await self._reader.run(lambda connection: connection.execute(dead).get):
            await self._writer.run(lambda connection: connection.execute(ask("forget")).get)
        rows: list[Any] = await self._reader.run(lambda connection: connection.execute(ask("workers")).fetchall())
        known = [WorkerRow(_info(row[0]), _beat(row[1]), row[2], moment(row[3]), bool(row[4]), row[5]) for row in rows]
        return sorted(known, key=lambda row: row.info.started_at)
