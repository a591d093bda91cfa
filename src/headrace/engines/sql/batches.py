"""Batches as rows: the same in every SQL engine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import msgspec

from headrace.core.batch import Batch, Call, Tally
from headrace.engines.sql.record import Micros, encode, moment

__all__ = ["COLUMNS", "batch_of", "row_of_batch"]

COLUMNS = {
    "id": "uuid",
    "created_at": "bigint",
    "touched_at": "bigint",
    "sealed": "boolean",
    "abandoned": "boolean",
    "settled": "boolean",
    **dict.fromkeys(Tally.__struct_fields__, "bigint"),
    "ended_at": "bigint",
    "cancelled_at": "bigint",
    "cancelled_by": "text",
    "calls": "text",
}
"""What is kept of a batch, with PostgreSQL's types, in the order of rows."""

_calls = msgspec.json.Decoder(tuple[Call | None, Call | None]).decode


def row_of_batch(batch: Batch) -> tuple[Any, ...]:
    """The row of a batch."""
    at, calls = Micros(), (batch.on_complete, batch.on_failure)
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
    """The batch in a row."""
    id, created_at, touched_at, sealed, abandoned, settled, *counts, ended_at, cancelled_at, cancelled_by, calls = row
    on_complete, on_failure = (None, None) if calls is None else _calls(calls)
    return Batch(
        id=id if isinstance(id, UUID) else UUID(bytes=id),
        created_at=moment(created_at),
        touched_at=moment(touched_at),
        sealed=bool(sealed),
        abandoned=bool(abandoned),
        settled=bool(settled),
        tally=Tally(*counts),
        ended_at=None if ended_at is None else moment(ended_at),
        cancelled_at=None if cancelled_at is None else moment(cancelled_at),
        cancelled_by=cancelled_by,
        on_complete=on_complete,
        on_failure=on_failure,
    )
