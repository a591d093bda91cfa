"""Batches: counted by deltas that nobody waits for, added up by tell."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec

from headrace.core.batch import Batch, Call, Tally, cancelled, cursor_at, newest_first
from headrace.core.query import Page
from headrace.core.rules import Rules
from headrace.engines.postgres.arrays import literal
from headrace.engines.postgres.connection import Connection, sql
from headrace.engines.postgres.pool import Pool
from headrace.engines.record import Micros, encode, micros, moment

__all__ = ["Batches", "by_id", "of_ids", "page_of_all", "row_of_batch"]

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


def _batch(row: Sequence[Any]) -> Batch:
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
    return {row[0]: _batch(row) for row in rows}


def page_of_all(schema: str) -> str:
    """The statement that finds batches, newest first, below a moment and an id. $1, $2; $3 how many"""
    page = "(b.created_at, b.id) < ($1, $2) ORDER BY b.created_at DESC, b.id DESC LIMIT $3"
    return sql("batches", schema, which=page)


class Batches:
    """The verbs about batches, for one session."""

    def __init__(self, hot: Pool, schema: str, rules: Rules) -> None:
        self._hot, self._schema, self._rules = hot, schema, rules

    def silent_since(self, now: datetime) -> int:
        """Who added nothing since then is silent."""
        return micros(now - timedelta(seconds=self._rules.batch_silence))

    async def over(self, now: datetime) -> list[Batch]:
        """Add up, seal what is silent; the batches that have ended and are not settled."""
        while True:
            terms = (micros(now), self.silent_since(now), _DELTAS)
            rows = await self._hot.fetch(sql("fold", self._schema), *terms)
            if rows[0][0] < _DELTAS:
                return [_batch(row[1:]) for row in rows if row[1] is not None]

    async def batches(self, ids: Sequence[UUID]) -> list[Batch | None]:
        """The batches of these ids, in order."""
        found = await by_id(self._hot, self._schema, ids)
        return [found.get(id) for id in ids]

    async def find(self, limit: int, cursor: str | None) -> Page[Batch]:
        """Batches, newest first."""
        rows = await self._hot.fetch(page_of_all(self._schema), *cursor_at(cursor), limit + 1)
        return newest_first([_batch(row) for row in rows], limit)

    async def seal(self, id: UUID, now: datetime) -> bool:
        """All of its jobs are there."""
        here: bool = (await self._hot.fetch(sql("seal", self._schema), id, micros(now)))[0][0]
        return here

    async def cancel(self, id: UUID, now: datetime, by: str | None) -> Batch | None:
        """It takes no more jobs, and those that are there are to be told; how it stands then."""
        async with self._hot.transaction() as connection:
            await connection.fetch(sql("hold_batch", self._schema), id)
            batch = (await by_id(connection, self._schema, [id])).get(id)
            if batch is not None and (made := cancelled(batch, now, by)) is not None:
                batch = made
                await connection.execute(sql("cancel_batch", self._schema), id, micros(now), by)
            return batch

    async def settle(self, id: UUID) -> None:
        """What follows its end was submitted."""
        await self._hot.fetch(sql("settle", self._schema), id)
