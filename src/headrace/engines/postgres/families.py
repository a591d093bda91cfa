"""Families: notes and batches."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from headrace.core.batch import Batch, cancelled
from headrace.core.change import Change
from headrace.core.defaults import Rules
from headrace.engine import MAX_BATCH, Processed
from headrace.engines.postgres.batches import by_id, over, silent_since
from headrace.engines.postgres.connection import sql
from headrace.engines.postgres.notes import Notes
from headrace.engines.postgres.pool import Pool, fetching
from headrace.engines.sql.families import SqlFamilies
from headrace.engines.sql.record import micros
from headrace.errors import Unavailable

__all__ = ["Families"]


class Families(SqlFamilies):
    """The role ``families`` of one session."""

    def __init__(self, hot: Pool, schema: str, rules: Rules, notes: Notes) -> None:
        super().__init__(fetching(hot, schema), fetching(hot, schema))
        self._hot, self._schema, self._rules, self._notes = hot, schema, rules, notes

    async def process_notes(self, now: datetime, limit: int = MAX_BATCH) -> Processed:
        [(notes, batches)] = await self._hot.fetch(sql("glance", self._schema), silent_since(now, self._rules))
        changes: list[Change] = []
        ended: list[Batch] = []
        try:
            more = await self._notes.process(now, limit, changes) if notes else False
            if batches or any(change.job.spec.batch is not None for change in changes):
                ended = await over(self._hot, self._schema, now, self._rules)
        except Unavailable:
            if not changes:
                raise
            more = True  # earlier rounds are committed, and the caller must know of them
        return Processed(tuple(changes), tuple(ended), more)

    async def cancel_batch(self, batch: UUID, now: datetime, by: str | None = None) -> Batch | None:
        async with self._hot.transaction() as connection:
            await connection.fetch(sql("hold_batch", self._schema), batch)
            found = (await by_id(connection, self._schema, [batch])).get(batch)
            if found is not None and (made := cancelled(found, now, by)) is not None:
                found = made
                await connection.execute(sql("cancel_batch", self._schema), batch, micros(now), by)
            return found
