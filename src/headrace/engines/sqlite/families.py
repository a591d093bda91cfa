"""Families of a SQLite store: notes and batches."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from uuid import UUID

import apsw

from headrace.core.batch import Batch, cancelled
from headrace.core.change import Note
from headrace.core.defaults import Rules
from headrace.core.job import Job
from headrace.engine import MAX_BATCH, Processed, Refused
from headrace.engines.sql.encoding import encode, micros
from headrace.engines.sql.families import SqlFamilies, batch_of
from headrace.engines.sqlite.jobs.insert import inserting
from headrace.engines.sqlite.notes import NoteProcessor, batches_by_id
from headrace.engines.sqlite.store.connection import ask, drive
from headrace.engines.sqlite.store.thread import DbThread

__all__ = ["Families"]


class Families(SqlFamilies):
    """The role ``families`` of one session."""

    def __init__(self, writer: DbThread, reader: DbThread, rules: Rules) -> None:
        super().__init__(reader.fetch, writer.fetch)
        self._writer, self._rules = writer, rules

    async def process_notes(self, now: datetime, limit: int = MAX_BATCH) -> Processed:
        silent = micros(now - timedelta(seconds=self._rules.batch_silence))

        def write(connection: apsw.Connection) -> Processed:
            if not connection.execute(ask("anything_noted"), (silent,)).get:
                return Processed()
            connection.execute("BEGIN IMMEDIATE")
            notes = NoteProcessor(connection, self._rules, now)
            notes.process(limit)
            connection.execute(ask("abandon"), (silent,))
            over = [batch_of(row) for row in connection.execute(ask("over"), (micros(now),)).fetchall()]
            more = bool(connection.execute("SELECT EXISTS (SELECT 1 FROM notes)").get)
            connection.execute("COMMIT")
            return Processed(tuple(notes.changes), tuple(over), more, tuple(notes.left_out))

        return await self._writer.run(write)

    async def settle(self, batch: UUID, now: datetime, jobs: Sequence[Job] = ()) -> Refused | None:
        def write(connection: apsw.Connection) -> Refused | None:
            connection.execute("BEGIN IMMEDIATE")
            refused = None
            if connection.execute(ask("settle"), (batch.bytes,)).get is not None and jobs:
                answers = drive(connection, inserting(jobs))
                refused = next((answer for answer in answers if isinstance(answer, Refused)), None)
            connection.execute("COMMIT" if refused is None else "ROLLBACK")
            return refused

        return await self._writer.run(write)

    async def cancel_batch(self, batch: UUID, now: datetime, by: str | None = None) -> Batch | None:
        def write(connection: apsw.Connection) -> Batch | None:
            found = batches_by_id(connection, [batch]).get(batch)
            if found is not None and (made := cancelled(found, now, by)) is not None:
                found = made
                connection.execute(ask("cancel_batch"), (batch.bytes, micros(now), by))
                connection.execute(ask("note"), (encode([(Note.STOPPED, 0, f"b{batch}")]),))
            return found

        return await self._writer.write(write)
