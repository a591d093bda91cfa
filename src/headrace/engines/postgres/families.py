"""Families: notes and batches.

Counts of a batch are stored as rows of differences, so that no writer waits, and added up with the notes.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from uuid import UUID

from headrace.core.batch import Batch, cancelled
from headrace.core.change import Change
from headrace.core.defaults import Rules
from headrace.engine import MAX_BATCH, Processed
from headrace.engines.postgres.connection import sql
from headrace.engines.postgres.notes import Notes, batches_by_id
from headrace.engines.postgres.pool import Pool, fetching
from headrace.engines.sql.batches import batch_of
from headrace.engines.sql.families import SqlFamilies
from headrace.engines.sql.record import micros
from headrace.errors import Unavailable

__all__ = ["Families"]

_DELTAS = 10_000
"""How many deltas one statement adds up."""


class Families(SqlFamilies):
    """The role ``families`` of one session."""

    def __init__(self, hot: Pool, schema: str, rules: Rules, notes: Notes) -> None:
        super().__init__(fetching(hot, schema), fetching(hot, schema))
        self._hot, self._schema, self._rules, self._notes = hot, schema, rules, notes

    async def process_notes(self, now: datetime, limit: int = MAX_BATCH) -> Processed:
        [(notes, batches)] = await self._hot.fetch(sql("glance", self._schema), _silent_since(now, self._rules))
        changes: list[Change] = []
        ended: list[Batch] = []
        try:
            more = await self._notes.process(now, limit, changes) if notes else False
            if batches or any(change.job.spec.batch is not None for change in changes):
                ended = await _over(self._hot, self._schema, now, self._rules)
        except Unavailable:
            if not changes:
                raise
            more = True  # earlier rounds are committed, and the caller must know of them
        return Processed(tuple(changes), tuple(ended), more)

    async def cancel_batch(self, batch: UUID, now: datetime, by: str | None = None) -> Batch | None:
        async with self._hot.transaction() as connection:
            await connection.fetch(sql("hold_batch", self._schema), batch)
            found = (await batches_by_id(connection, self._schema, [batch])).get(batch)
            if found is not None and (made := cancelled(found, now, by)) is not None:
                found = made
                await connection.execute(sql("cancel_batch", self._schema), batch, micros(now), by)
            return found


def _silent_since(now: datetime, rules: Rules) -> int:
    """The moment since which a batch must have got no more jobs to count as silent now."""
    return micros(now - timedelta(seconds=rules.batch_silence))


async def _over(pool: Pool, schema: str, now: datetime, rules: Rules) -> list[Batch]:
    """Add up the deltas and seal silent batches; the batches that are over and not settled."""
    while True:
        rows = await pool.fetch(sql("fold", schema), micros(now), _silent_since(now, rules), _DELTAS)
        if rows[0][0] < _DELTAS:
            return [batch_of(row[1:]) for row in rows if row[1] is not None]
