"""Batches as rows of the store."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any
from uuid import UUID

import apsw
import msgspec

from headrace.core.batch import Batch, Call, Tally
from headrace.engine.statements import Statement, Statements
from headrace.engines.record import encode, micros, moment
from headrace.engines.sqlite.connection import ask

__all__ = ["adding", "batch_of", "by_id"]

_calls = msgspec.json.Decoder(tuple[Call | None, Call | None]).decode


def adding(batch: Batch) -> Statements[None]:
    """Store a batch, unless it is here."""
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


def by_id(connection: apsw.Connection, ids: Collection[UUID]) -> dict[UUID, Batch]:
    """The batches of these ids, as far as they are here."""
    rows: list[Any] = connection.execute(ask("batches"), (encode(list(ids)),)).fetchall() if ids else []
    return {batch.id: batch for batch in map(batch_of, rows)}


def batch_of(row: Any) -> Batch:
    """The batch that a row describes."""
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
