"""Batches as rows. Counts are stored as rows of differences, so that no writer waits, and added up with the notes."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from headrace.core.batch import Batch
from headrace.core.defaults import Rules
from headrace.engines.postgres.connection import Connection, sql
from headrace.engines.postgres.pool import Pool
from headrace.engines.sql.batches import batch_of
from headrace.engines.sql.record import micros

__all__ = ["by_id", "over", "silent_since"]

_DELTAS = 10_000
"""How many deltas one statement adds up."""


async def by_id(connection: Connection, schema: str, ids: Collection[UUID]) -> dict[UUID, Batch]:
    """The batches with these ids, as far as they are stored."""
    if not ids:
        return {}
    rows: list[Any] = await connection.fetch(sql("batches", schema), list(ids))
    return {row[0]: batch_of(row) for row in rows}


def silent_since(now: datetime, rules: Rules) -> int:
    """The moment since which a batch must have got no more jobs to count as silent now."""
    return micros(now - timedelta(seconds=rules.batch_silence))


async def over(pool: Pool, schema: str, now: datetime, rules: Rules) -> list[Batch]:
    """Add up the deltas and seal silent batches; the batches that are over and not settled."""
    while True:
        rows = await pool.fetch(sql("fold", schema), micros(now), silent_since(now, rules), _DELTAS)
        if rows[0][0] < _DELTAS:
            return [batch_of(row[1:]) for row in rows if row[1] is not None]
