"""The shared part of the role ``families`` for all SQL engines, with batches as rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from headrace.core.batch import Batch, BatchCallback, cursor_at, newest_first
from headrace.core.change import BatchTally
from headrace.core.query import Page
from headrace.engines.sql.columns import Column, arguments, function, names, row
from headrace.engines.sql.encoding import Micros, Moments, encode, micros
from headrace.engines.sql.templates import Fetch

__all__ = ["COLUMNS", "SqlFamilies", "batch_of", "row_of_batch"]


_COUNTS = BatchTally.__struct_fields__
_TALLY = f"tally=Tally({', '.join(_COUNTS)})"


def _moment(name: str) -> Column:
    return Column(name, "bigint", f"at[batch.{name}]", read=f"{name}=at[{name}]")


def _flag(name: str) -> Column:
    return Column(name, "boolean", f"batch.{name}", read=f"{name}=bool({name})")


COLUMNS = (
    Column("id", "uuid", "batch.id", read="id=id if isinstance(id, UUID) else UUID(bytes=id)"),
    _moment("created_at"),
    _moment("touched_at"),
    _flag("sealed"),
    _flag("abandoned"),
    _flag("settled"),
    *(Column(name, "bigint", f"batch.tally.{name}") for name in _COUNTS),
    _moment("ended_at"),
    _moment("cancelled_at"),
    Column("cancelled_by", "text", "batch.cancelled_by", read="cancelled_by=cancelled_by"),
    Column("calls", "text", "calls_of(batch)", read=f"on_complete=calls[0], on_failure=calls[1], {_TALLY}"),
    Column("customer", "text", "batch.customer", read="customer=customer"),
)
"""What is stored of a ``batch``, with PostgreSQL's types, in the order of rows."""


def _calls_of(batch: Batch) -> str | None:
    calls = (batch.on_complete, batch.on_failure)
    return None if calls == (None, None) else encode(calls)


row_of_batch: Callable[[Batch, Micros], tuple[Any, ...]] = function(
    "row_of_batch", "batch, at", [row(column.new for column in COLUMNS)], calls_of=_calls_of
)
"""The row of a batch."""

_batch: Callable[..., Batch] = function(
    "batch",
    f"at, {names(COLUMNS)}",
    [
        "calls = (None, None) if calls is None else read_calls(calls)",
        f"Batch({arguments(column for column in COLUMNS if column.read)})",
    ],
    Batch=Batch,
    Tally=BatchTally,
    UUID=UUID,
    read_calls=msgspec.json.Decoder(tuple[BatchCallback | None, BatchCallback | None]).decode,
)


def batch_of(row: Sequence[Any]) -> Batch:
    """Return the batch in a row."""
    return _batch(Moments(), *row)


class SqlFamilies:
    """Part of the role ``families``: batches, find_batches and seal."""

    def __init__(self, read: Fetch, write: Fetch) -> None:
        self._read, self._write = read, write

    async def batches(self, ids: Sequence[UUID]) -> list[Batch | None]:
        rows = await self._read("batches", list(dict.fromkeys(ids))) if ids else []
        found = {batch.id: batch for batch in map(batch_of, rows)}
        return [found.get(id) for id in ids]

    async def find_batches(
        self, limit: int = 50, cursor: str | None = None, customer: str | None = None
    ) -> Page[Batch]:
        below = (*cursor_at(cursor), limit + 1)
        if customer is None:
            rows = await self._read("find_batches", *below)
        else:
            rows = await self._read("find_batches_of", *below, customer)
        return newest_first([batch_of(row) for row in rows], limit)

    async def seal(self, batch: UUID, now: datetime) -> bool:
        return bool(await self._write("seal", batch, micros(now)))
