"""Workers of a SQLite store."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import apsw
import msgspec

from headrace.core.defaults import Rules
from headrace.engine import Alive, Attended, Beat, Dead, Gone, WorkerInfo, WorkerRow
from headrace.engines.sql.record import encode, micros
from headrace.engines.sql.workers import SqlWorkers, row_of_beat
from headrace.engines.sqlite.connection import ask
from headrace.engines.sqlite.db_thread import DbThread
from headrace.engines.sqlite.presence import Presence
from headrace.engines.sqlite.rows import jobs_of

__all__ = ["Workers"]

_ids = msgspec.json.Decoder(tuple[UUID, ...]).decode


class Workers(SqlWorkers):
    """The role ``workers`` of one session."""

    gone_after = 1.0

    def __init__(self, writer: DbThread, reader: DbThread, rules: Rules, presence: Presence) -> None:
        super().__init__(reader.fetch, writer.fetch)
        self._writer, self._reader, self._rules, self._presence = writer, reader, rules, presence

    async def register(self, info: WorkerInfo, now: datetime) -> None:
        await super().register(info, now)

        def tidy(connection: apsw.Connection) -> None:
            known: list[Any] = connection.execute("SELECT id FROM workers WHERE alive").fetchall()
            self._presence.tidy(frozenset(UUID(bytes=id) for (id,) in known))

        await self._reader.run(tidy)

    async def beat(self, worker: UUID, beat: Beat, now: datetime) -> Alive | Dead:
        old = micros(now - timedelta(seconds=2 * self._rules.beat))
        terms, said = (worker.bytes, old, encode(beat.held)), row_of_beat(beat, now)

        def write(connection: apsw.Connection) -> tuple[int, str, str, int, int] | None:
            connection.execute("BEGIN IMMEDIATE")
            beats: int | None = connection.execute(ask("beat"), (*terms, *said)).get
            if beats is None:
                connection.execute("ROLLBACK")
                return None
            # Most beats name all jobs, and then this writes none.
            connection.execute(ask("unnamed"), terms)
            answer: tuple[str, str, int, int] = connection.execute(ask("beat_answer"), terms).get
            connection.execute("COMMIT")
            return beats, *answer

        told = await self._writer.run(write)
        if told is None:
            return Dead()
        beats, cancels, unknown, profiles_rev, settings_rev = told
        return Alive(beats, _ids(cancels), tuple(jobs_of(unknown)), profiles_rev, settings_rev)

    async def attend(self, worker: UUID) -> Attended | None:
        return await self._reader.run(lambda connection: self._presence.attend(worker))

    async def gone(self, rows: Sequence[WorkerRow]) -> Gone:
        return Gone(await self._reader.run(lambda connection: self._presence.gone(rows)))

    async def bury(self, worker: UUID, beats: int, *, mass_death: bool = False) -> bool:
        def write(connection: apsw.Connection) -> bool:
            connection.execute("BEGIN IMMEDIATE")
            found = connection.execute(ask("bury"), (worker.bytes, beats, mass_death)).get is not None
            if found:
                connection.execute(ask("free_duties"), (worker.bytes,))
            connection.execute("COMMIT")
            return found

        buried = await self._writer.run(write)
        if buried:
            await self._reader.run(lambda connection: self._presence.remove(worker))
        return buried

    async def retire(self, worker: UUID) -> None:
        def write(connection: apsw.Connection) -> None:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute(ask("retire"), (worker.bytes,))
            connection.execute(ask("free_duties"), (worker.bytes,))
            connection.execute(ask("forget"))
            connection.execute("COMMIT")

        await self._writer.run(write)
        await self._reader.run(lambda connection: self._presence.remove(worker))
