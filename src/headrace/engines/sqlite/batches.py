"""Batches: made, counted, sealed, cancelled, and told of when they are over."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import apsw
import msgspec

from headrace.core.batch import Batch, Call, Tally, cancelled, cursor_at, newest_first
from headrace.core.change import Note
from headrace.core.query import Page
from headrace.engine.statements import Statement, Statements
from headrace.engines.record import encode, micros, moment
from headrace.engines.sqlite.connection import ask
from headrace.engines.sqlite.db_thread import DbThread

__all__ = ["adding", "batches", "by_id", "cancel", "find", "over", "seal", "settle"]

_calls = msgspec.json.Decoder(tuple[Call | None, Call | None]).decode


def adding(batch: Batch) -> Statements[None]:
    """Make a batch, unless it is here."""
    row = (
        batch.id,
        micros(batch.created_at),
        micros(batch.touched_at),
        batch.sealed,
        batch.abandoned,
        batch.tally.total,
        batch.tally.completed,
        batch.tally.failed,
        batch.tally.cancelled,
        None if batch.ended_at is None else micros(batch.ended_at),
        None if batch.cancelled_at is None else micros(batch.cancelled_at),
        batch.cancelled_by,
        batch.settled,
        encode((batch.on_complete, batch.on_failure)),
    )
    yield Statement(ask("add_batch"), encode(row))


async def batches(thread: DbThread, ids: Sequence[UUID]) -> list[Batch | None]:
    """The batches of these ids, in order."""
    found = await thread.run(lambda connection: by_id(connection, ids))
    return [found.get(id) for id in ids]


def by_id(connection: apsw.Connection, ids: Collection[UUID]) -> dict[UUID, Batch]:
    """The batches of these ids, as far as they are here."""
    rows: list[Any] = connection.execute(ask("batches"), (encode(list(ids)),)).fetchall() if ids else []
    return {batch.id: batch for batch in map(_batch_of, rows)}


async def find(thread: DbThread, limit: int, cursor: str | None) -> Page[Batch]:
    """Batches, newest first."""
    at, id = cursor_at(cursor)
    below = (at, id.bytes, limit + 1)
    rows: list[Any] = await thread.run(lambda connection: connection.execute(ask("find_batches"), below).fetchall())
    return newest_first([_batch_of(row) for row in rows], limit)


async def seal(thread: DbThread, batch: UUID, now: datetime) -> bool:
    """All of its jobs are there; whether it is here."""
    args = (batch.bytes, micros(now))
    return await thread.run(lambda connection: connection.execute(ask("seal"), args).get) is not None


async def cancel(thread: DbThread, id: UUID, now: datetime, by: str | None) -> Batch | None:
    """It takes no more jobs, and those that are there are to be told; how it stands then."""

    def write(connection: apsw.Connection) -> Batch | None:
        connection.execute("BEGIN IMMEDIATE")
        batch = by_id(connection, [id]).get(id)
        if batch is not None and (made := cancelled(batch, now, by)) is not None:
            batch = made
            connection.execute(ask("cancel_batch"), (id.bytes, micros(now), by))
            connection.execute(ask("note"), (encode([(Note.STOPPED, 0, f"b{id}")]),))
        connection.execute("COMMIT")
        return batch

    return await thread.run(write)


async def settle(thread: DbThread, batch: UUID) -> None:
    """What follows its end was submitted."""
    await thread.run(lambda connection: connection.execute(ask("settle"), (batch.bytes,)).get)


def over(connection: apsw.Connection, silent: int, now: int) -> list[Batch]:
    """Within a transaction: seal those that nobody added to since ``silent``; those that are over."""
    connection.execute(ask("abandon"), (silent,))
    return [_batch_of(row) for row in connection.execute(ask("over"), (now,)).fetchall()]


def _batch_of(row: Any) -> Batch:
    id, created_at, touched_at, sealed, abandoned, *tally, ended_at, cancelled_at, cancelled_by, settled, calls = row
    on_complete, on_failure = _calls(calls)
    return Batch(
        id=UUID(bytes=id),
        created_at=moment(created_at),
        touched_at=moment(touched_at),
        sealed=bool(sealed),
        abandoned=bool(abandoned),
        tally=Tally(*tally),
        ended_at=None if ended_at is None else moment(ended_at),
        cancelled_at=None if cancelled_at is None else moment(cancelled_at),
        cancelled_by=cancelled_by,
        settled=bool(settled),
        on_complete=on_complete,
        on_failure=on_failure,
    )
