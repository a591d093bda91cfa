"""Batches as rows: the same in every SQL engine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID

import msgspec

from headrace.core.batch import Batch, Call, Tally
from headrace.engines.sql.columns import Column, arguments, function, names, row
from headrace.engines.sql.record import Micros, Moments, encode

__all__ = ["COLUMNS", "batch_of", "row_of_batch"]

_COUNTS = Tally.__struct_fields__
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
"""What is kept of a ``batch``, with PostgreSQL's types, in the order of rows."""


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
    Tally=Tally,
    UUID=UUID,
    read_calls=msgspec.json.Decoder(tuple[Call | None, Call | None]).decode,
)


def batch_of(row: Sequence[Any]) -> Batch:
    """The batch in a row."""
    return _batch(Moments(), *row)
