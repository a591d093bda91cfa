"""Workers of a SQLite store."""

from __future__ import annotations

from datetime import datetime, timedelta
from uuid import UUID

import apsw
import msgspec

from headrace.core.defaults import Rules
from headrace.engine import Alive, Beat, Dead
from headrace.engines.record import encode, micros
from headrace.engines.sql.roles import SqlWorkers
from headrace.engines.sqlite.connection import ask
from headrace.engines.sqlite.db_thread import DbThread
from headrace.engines.sqlite.rows import jobs_of

__all__ = ["Workers"]

_ids = msgspec.json.Decoder(tuple[UUID, ...]).decode


class Workers(SqlWorkers):
    """The role ``workers`` of one session."""

    def __init__(self, writer: DbThread, reader: DbThread, rules: Rules) -> None:
        super().__init__(reader.fetch, writer.fetch)
        self._writer, self._rules = writer, rules

    async def beat(self, worker: UUID, beat: Beat, now: datetime) -> Alive | Dead:
        old = micros(now - timedelta(seconds=2 * self._rules.beat))
        id, at, named, said = worker.bytes, micros(now), encode(beat.held), encode(beat)

        def write(connection: apsw.Connection) -> tuple[int, str, str, int, int] | None:
            connection.execute("BEGIN IMMEDIATE")
            beats: int | None = connection.execute(ask("beat"), (id, said, at)).get
            if beats is None:
                connection.execute("ROLLBACK")
                return None
            # Most beats name all jobs, and then this writes none.
            connection.execute(ask("unnamed"), (id, old, named))
            answer: tuple[str, str, int, int] = connection.execute(ask("beat_answer"), (id, old, named)).get
            connection.execute("COMMIT")
            return beats, *answer

        told = await self._writer.run(write)
        if told is None:
            return Dead()
        beats, cancels, unknown, profiles_rev, settings_rev = told
        return Alive(beats, _ids(cancels), tuple(jobs_of(unknown)), profiles_rev, settings_rev)

    async def bury(self, worker: UUID, beats: int) -> bool:
        found = await self._writer.run(lambda connection: connection.execute(ask("bury"), (worker.bytes, beats)).get)
        return found is not None

    async def retire(self, worker: UUID) -> None:
        def write(connection: apsw.Connection) -> None:
            connection.execute("UPDATE workers SET alive = 0 WHERE id = ?", (worker.bytes,))
            connection.execute(ask("forget"))

        await self._writer.run(write)
