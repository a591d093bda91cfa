"""Families: notes and batches."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from headrace.core.batch import Batch, cancelled, cursor_at, newest_first
from headrace.core.change import Change
from headrace.core.defaults import Rules
from headrace.core.query import Page
from headrace.engine import MAX_BATCH, Processed
from headrace.engines.postgres.batches import by_id, over, page_of_all, silent_since
from headrace.engines.postgres.connection import sql
from headrace.engines.postgres.notes import Notes
from headrace.engines.postgres.pool import Pool
from headrace.engines.sql.batches import batch_of
from headrace.engines.sql.record import micros
from headrace.errors import Unavailable

__all__ = ["Families"]


class Families:
    """The role ``families`` of one session."""

    def __init__(self, hot: Pool, schema: str, rules: Rules, notes: Notes) -> None:
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

    async def batches(self, ids: Sequence[UUID]) -> list[Batch | None]:
        found = await by_id(self._hot, self._schema, ids)
        return [found.get(id) for id in ids]

    async def find_batches(self, limit: int = 50, cursor: str | None = None) -> Page[Batch]:
        rows = await self._hot.fetch(page_of_all(self._schema), *cursor_at(cursor), limit + 1)
        return newest_first([batch_of(row) for row in rows], limit)

    async def seal(self, batch: UUID, now: datetime) -> bool:
        here: bool = (await self._hot.fetch(sql("seal", self._schema), batch, micros(now)))[0][0]
        return here

    async def cancel_batch(self, batch: UUID, now: datetime, by: str | None = None) -> Batch | None:
        async with self._hot.transaction() as connection:
            await connection.fetch(sql("hold_batch", self._schema), batch)
            found = (await by_id(connection, self._schema, [batch])).get(batch)
            if found is not None and (made := cancelled(found, now, by)) is not None:
                found = made
                await connection.execute(sql("cancel_batch", self._schema), batch, micros(now), by)
            return found

    async def settle(self, batch: UUID) -> None:
        await self._hot.fetch(sql("settle", self._schema), batch)
