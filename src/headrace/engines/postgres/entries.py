"""The role ``entries``: store what runs add to their jobs, and read it again."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec

from headrace.core.entry import Append, Kept
from headrace.engines.postgres.jobs.columns import APPEND, texts
from headrace.engines.postgres.store.arrays import columns
from headrace.engines.postgres.store.connection import sql
from headrace.engines.postgres.store.pool import Pool, fetching
from headrace.engines.sql.encoding import encode
from headrace.engines.sql.entries import SqlEntries, row_of_entry
from headrace.engines.validation import refuse_entries

__all__ = ["Entries"]

_TEXTS = texts(APPEND)
_places = msgspec.json.Decoder(list[int]).decode


class Entries(SqlEntries):
    """The role ``entries`` of one session."""

    def __init__(self, pool: Pool, schema: str) -> None:
        super().__init__(fetching(pool, schema))
        self._pool = pool
        self._append, self._owned = sql("append", schema), sql("owned", schema)

    async def append(self, appends: Sequence[Append], now: datetime) -> list[Kept]:
        refuse_entries(appends)
        rows = [(place, one.job, one.worker, one.epoch, _document(one)) for place, one in enumerate(appends)]
        if not rows:
            return []
        took = set(_places((await self._pool.fetch(self._append, *columns(rows, _TEXTS)))[0][0]))
        missed = [row[:4] for row in rows if row[0] not in took]
        # These were not stored: another transaction had locked the job, or the worker does not own it any more.
        busy = (
            {place for (place,) in await self._pool.fetch(self._owned, *columns(missed, frozenset()))} if missed else ()
        )
        return ["kept" if place in took else "busy" if place in busy else "stale" for place in range(len(rows))]


def _document(one: Append) -> str:
    return encode([row_of_entry(entry) for entry in one.entries])
