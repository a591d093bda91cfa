"""Batches as rows: counted by deltas that nobody waits for, added up when notes are processed."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec

from headrace.core.batch import Batch, Call, Tally
from headrace.core.rules import Rules
from headrace.engines.postgres.arrays import literal
from headrace.engines.postgres.connection import Connection, sql
from headrace.engines.postgres.pool import Pool
from headrace.engines.record import Micros, encode, micros, moment

__all__ = ["batch_of", "by_id", "of_ids", "over", "page_of_all", "row_of_batch", "silent_since"]

_calls = msgspec.json.Decoder(tuple[Call | None, Call | None]).decode

_DELTAS = 10_000
"""How many are added up in one go."""


def row_of_batch(batch: Batch, at: Micros) -> tuple[Any, ...]:
    """A batch as ``relate.sql`` takes it."""
    calls = (batch.on_complete, batch.on_failure)
    return (
        batch.id,
        at[batch.created_at],
        at[batch.touched_at],
        batch.sealed,
        batch.abandoned,
        batch.settled,
        *msgspec.structs.astuple(batch.tally),
        at[batch.ended_at],
        at[batch.cancelled_at],
        batch.cancelled_by,
        None if calls == (None, None) else encode(calls),
    )


def batch_of(row: Sequence[Any]) -> Batch:
    """A batch as ``batches.sql`` and ``fold.sql`` answer it."""
    id, created_at, touched_at, sealed, abandoned, settled, *counts, ended_at, cancelled_at, cancelled_by, calls = row
    on_complete, on_failure = (None, None) if calls is None else _calls(calls)
    return Batch(
        id=id,
        created_at=moment(created_at),
        touched_at=moment(touched_at),
        sealed=sealed,
        abandoned=abandoned,
        settled=settled,
        tally=Tally(*counts),
        ended_at=None if ended_at is None else moment(ended_at),
        cancelled_at=None if cancelled_at is None else moment(cancelled_at),
        cancelled_by=cancelled_by,
        on_complete=on_complete,
        on_failure=on_failure,
    )


def of_ids(schema: str) -> str:
    """The statement that finds batches. $1 ids"""
    return sql("batches", schema, which="b.id = ANY ($1::text::uuid[])")


async def by_id(connection: Connection | Pool, schema: str, ids: Collection[UUID]) -> dict[UUID, Batch]:
    """The batches of these ids, as far as they are here."""
    if not ids:
        return {}
    rows: list[Any] = await connection.fetch(of_ids(schema), literal(list(dict.fromkeys(ids))))
    return {row[0]: batch_of(row) for row in rows}


def page_of_all(schema: str) -> str:
    """The statement that finds batches, newest first, below a moment and an id. $1, $2; $3 how many"""
    page = "(b.created_at, b.id) < ($1, $2) ORDER BY b.created_at DESC, b.id DESC LIMIT $3"
    return sql("batches", schema, which=page)


def silent_since(now: datetime, rules: Rules) -> int:
    """The moment at or before which a batch must have been added to for the last time to be silent now."""
    return micros(now - timedelta(seconds=rules.batch_silence))


async def over(pool: Pool, schema: str, now: datetime, rules: Rules) -> list[Batch]:
    """Add up the deltas and seal what is silent; the batches that have ended and are not settled."""
    while True:
        rows = await pool.fetch(sql("fold", schema), micros(now), silent_since(now, rules), _DELTAS)
        if rows[0][0] < _DELTAS:
            return [batch_of(row[1:]) for row in rows if row[1] is not None]
