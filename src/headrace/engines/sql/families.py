"""What the role ``families`` does alike in every SQL engine."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from headrace.core.batch import Batch, cursor_at, newest_first
from headrace.core.query import Page
from headrace.engines.sql.batches import batch_of
from headrace.engines.sql.files import Fetch
from headrace.engines.sql.record import micros

__all__ = ["SqlFamilies"]


class SqlFamilies:
    """Of the role ``families``: batches, find_batches and seal."""

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
