"""Families: notes and batches.

Counts of a batch are stored as rows of differences, so that no writer waits, and added up with the notes.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from uuid import UUID

from asyncpg.exceptions import UniqueViolationError

from headrace.core.batch import Batch, cancelled
from headrace.core.change import Change, LeftOut
from headrace.core.defaults import Rules
from headrace.core.job import Job
from headrace.engine import MAX_BATCH, Processed, Refused
from headrace.engines.postgres.jobs.insert import Inserting
from headrace.engines.postgres.notes import Notes, batches_by_id
from headrace.engines.postgres.store.connection import sql
from headrace.engines.postgres.store.drivers import run_statements
from headrace.engines.postgres.store.pool import Pool, fetching
from headrace.engines.sql.encoding import micros
from headrace.engines.sql.families import SqlFamilies, batch_of
from headrace.errors import Unavailable

__all__ = ["Families"]

_MAX_DELTA_ROWS = 10_000
"""How many deltas one statement adds up."""


_LOCK_TIMEOUT_MILLISECONDS = 250
"""Milliseconds to wait for another transaction's lock; then the batch is settled later."""


class _Refusal(Exception):
    """A job that follows the end of a batch is refused, so that nothing is written."""

    def __init__(self, answer: Refused) -> None:
        self.answer = answer


class Families(SqlFamilies):
    """The role ``families`` of one session."""

    def __init__(self, hot: Pool, cold: Pool, schema: str, rules: Rules, notes: Notes, inserting: Inserting) -> None:
        super().__init__(fetching(hot, schema), fetching(hot, schema))
        self._hot, self._cold, self._schema, self._rules = hot, cold, schema, rules
        self._notes, self._inserting = notes, inserting.statements

    async def process_notes(self, now: datetime, limit: int = MAX_BATCH) -> Processed:
        [(notes, batches)] = await self._hot.fetch(sql("glance", self._schema), _silent_since(now, self._rules))
        changes: list[Change] = []
        left_out: list[LeftOut] = []
        ended: list[Batch] = []
        try:
            more = await self._notes.process(now, limit, changes, left_out) if notes else False
            if batches or any(change.job.spec.batch is not None for change in changes):
                ended = await _over(self._hot, self._schema, now, self._rules)
        except Unavailable:
            if not changes:
                raise
            more = True  # earlier rounds are committed, and the caller must know of them
        return Processed(tuple(changes), tuple(ended), more, tuple(left_out))

    async def settle(self, batch: UUID, now: datetime, jobs: Sequence[Job] = ()) -> Refused | None:
        inserts = await self._inserting(jobs, now=None)  # what follows a batch is not limited
        try:
            async with self._cold.transaction() as connection:
                await connection.execute(f"SET LOCAL lock_timeout = {_LOCK_TIMEOUT_MILLISECONDS}")
                if await connection.fetchval(sql("settle", self._schema), batch) is None:
                    return None
                answers = await run_statements(connection, inserts)
                if refused := [answer for answer in answers if isinstance(answer, Refused)]:
                    raise _Refusal(refused[0])
        except _Refusal as refusal:
            return refusal.answer
        except UniqueViolationError as error:
            raise Unavailable("another job of the same id or key came between: nothing was stored") from error
        return None

    async def cancel_batch(self, batch: UUID, now: datetime, by: str | None = None) -> Batch | None:
        async with self._hot.transaction() as connection:
            await connection.fetch(sql("hold_batch", self._schema), batch)
            found = (await batches_by_id(connection, self._schema, [batch])).get(batch)
            if found is not None and (made := cancelled(found, now, by)) is not None:
                found = made
                await connection.execute(sql("cancel_batch", self._schema), batch, micros(now), by)
            return found


def _silent_since(now: datetime, rules: Rules) -> int:
    """Return the moment since which a silent batch must have got no more jobs."""
    return micros(now - timedelta(seconds=rules.batch_silence))


async def _over(pool: Pool, schema: str, now: datetime, rules: Rules) -> list[Batch]:
    """Add up the deltas and seal silent batches; return the batches that are over and not settled."""
    while True:
        rows = await pool.fetch(sql("fold", schema), micros(now), _silent_since(now, rules), _MAX_DELTA_ROWS)
        if rows[0][0] < _MAX_DELTA_ROWS:
            return [batch_of(row[1:]) for row in rows if row[1] is not None]
