"""Families of a SQLite store: notes and batches."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import apsw

from headrace.core.batch import Batch, cancelled, cursor_at, newest_first
from headrace.core.change import Note
from headrace.core.defaults import Rules
from headrace.core.query import Page
from headrace.engine import MAX_BATCH, Processed
from headrace.engines.sql.batches import batch_of
from headrace.engines.sql.record import encode, micros
from headrace.engines.sqlite.batches import by_id
from headrace.engines.sqlite.connection import ask
from headrace.engines.sqlite.db_thread import DbThread
from headrace.engines.sqlite.notes import NoteProcessor

__all__ = ["Families"]

_NOTES = "SELECT EXISTS (SELECT 1 FROM notes)"


class Families:
    """The role ``families`` of one session."""

    def __init__(self, writer: DbThread, reader: DbThread, rules: Rules) -> None:
        self._writer, self._reader, self._rules = writer, reader, rules

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
            more = bool(connection.execute(_NOTES).get)
            connection.execute("COMMIT")
            return Processed(tuple(notes.changes), tuple(over), more)

        return await self._writer.run(write)

    async def batches(self, ids: Sequence[UUID]) -> list[Batch | None]:
        found = await self._reader.run(lambda connection: by_id(connection, ids))
        return [found.get(id) for id in ids]

    async def find_batches(self, limit: int = 50, cursor: str | None = None) -> Page[Batch]:
        at, id = cursor_at(cursor)
        below = (at, id.bytes, limit + 1)
        rows: list[Any] = await self._reader.run(
            lambda connection: connection.execute(ask("find_batches"), below).fetchall()
        )
        return newest_first([batch_of(row) for row in rows], limit)

    async def seal(self, batch: UUID, now: datetime) -> bool:
        args = (batch.bytes, micros(now))
        return await self._writer.run(lambda connection: connection.execute(ask("seal"), args).get) is not None

    async def cancel_batch(self, batch: UUID, now: datetime, by: str | None = None) -> Batch | None:
        def write(connection: apsw.Connection) -> Batch | None:
            connection.execute("BEGIN IMMEDIATE")
            found = by_id(connection, [batch]).get(batch)
            if found is not None and (made := cancelled(found, now, by)) is not None:
                found = made
                connection.execute(ask("cancel_batch"), (batch.bytes, micros(now), by))
                connection.execute(ask("note"), (encode([(Note.STOPPED, 0, f"b{batch}")]),))
            connection.execute("COMMIT")
            return found

        return await self._writer.run(write)

    async def settle(self, batch: UUID) -> None:
        await self._writer.run(lambda connection: connection.execute(ask("settle"), (batch.bytes,)).get)
