"""Workers of a SQLite store."""

from __future__ import annotations

from datetime import datetime, timedelta
from uuid import UUID

import apsw
import msgspec

from headrace.core.defaults import Rules
from headrace.engine import Alive, Beat, Dead
from headrace.engines.sql.record import encode, micros
from headrace.engines.sql.workers import SqlWorkers, row_of_beat
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
