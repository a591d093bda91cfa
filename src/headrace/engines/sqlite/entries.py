"""Entries of a SQLite store: append and tail."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import apsw

from headrace.core.entry import Append, Kept
from headrace.engines.sql.entries import SqlEntries, row_of_entry
from headrace.engines.sqlite.store.connection import ask
from headrace.engines.sqlite.store.thread import DbThread
from headrace.engines.validation import refuse_entries

__all__ = ["Entries"]


class Entries(SqlEntries):
    """The role ``entries`` of one session."""

    def __init__(self, writer: DbThread, reader: DbThread) -> None:
        super().__init__(reader.fetch)
        self._writer = writer

    async def append(self, appends: Sequence[Append], now: datetime) -> list[Kept]:
        refuse_entries(appends)
        owners = [(one.job.bytes, one.worker.bytes, one.epoch) for one in appends]
        rows = [list(map(row_of_entry, one.entries)) for one in appends]

        def write(connection: apsw.Connection) -> list[Kept]:
            kept: list[Kept] = []  # no change takes a job from its owner before the commit
            for owner, entries in zip(owners, rows, strict=True):
                seq = connection.execute(ask("owned"), owner).get
                if seq is not None:
                    connection.executemany(ask("append"), [(seq, *entry) for entry in entries])
                kept.append("stale" if seq is None else "kept")
            return kept

        return await self._writer.write(write)
