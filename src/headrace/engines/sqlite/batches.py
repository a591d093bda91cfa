"""Batches of a SQLite store."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any
from uuid import UUID

import apsw

from headrace.core.batch import Batch
from headrace.engine.statements import Statement, Statements
from headrace.engines.sql.batches import batch_of, row_of_batch
from headrace.engines.sql.record import Micros, encode
from headrace.engines.sqlite.connection import ask

__all__ = ["adding", "by_id"]


def adding(batch: Batch) -> Statements[None]:
    """Store a batch, unless it is stored already."""
    yield Statement(ask("add_batch"), encode(row_of_batch(batch, Micros())))


def by_id(connection: apsw.Connection, ids: Collection[UUID]) -> dict[UUID, Batch]:
    """The batches with these ids, as far as they are stored."""
    rows: list[Any] = connection.execute(ask("batches"), (encode(list(ids)),)).fetchall() if ids else []
    return {batch.id: batch for batch in map(batch_of, rows)}
