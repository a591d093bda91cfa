"""Entries as rows, and the shared part of the role ``entries`` for all SQL engines."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

from headrace.core.entry import BEGIN, Cursor, Entry, Kind
from headrace.engine import MAX_BATCH
from headrace.engines.sql.columns import Column, arguments, function, names, parameters, row
from headrace.engines.sql.encoding import micros, moment
from headrace.engines.sql.templates import Fetch

__all__ = ["COLUMNS", "WORDS", "SqlEntries", "row_of_entry"]

COLUMNS = (
    Column("kind", "text", "entry.kind"),
    Column("attempt", "integer", "entry.attempt", read="attempt=attempt"),
    Column("number", "integer", "entry.number", read="number=number"),
    Column("at", "bigint", "micros(entry.at)", read="at=moment(at)"),
    Column("name", "text", "entry.name", read="name=name"),
    Column("data", "text", "entry.data", read="data=data"),
)
"""What is stored of an ``entry``, beside the order number of its job; its reader knows the kind."""

READ = [column for column in COLUMNS if column.read]

WORDS = {
    "entry": names(COLUMNS),
    "entry_parameters": ", ".join(parameters(COLUMNS, 2)),
    "entry_read": names(READ),
}
"""The words in statements that are replaced by lists of columns; parameters begin with $2."""

row_of_entry: Callable[[Entry], tuple[Any, ...]] = function(
    "row_of_entry", "entry", [row(column.new for column in COLUMNS)], micros=micros
)
_entry: Callable[..., Entry] = function(
    "entry", f"kind, {names(READ)}", [f"Entry(kind=kind, {arguments(READ)})"], Entry=Entry, moment=moment
)


class SqlEntries:
    """Part of the role ``entries``: tail."""

    def __init__(self, read: Fetch) -> None:
        self._read = read

    async def tail(
        self, job: UUID, kind: Kind, after: Cursor = BEGIN, limit: int = MAX_BATCH, *, newest: bool = False
    ) -> list[Entry]:
        rows = await self._read("tail_newest" if newest else "tail", job, str(kind), *after, limit)
        found = [_entry(kind, *row) for row in rows]
        return found[::-1] if newest else found
