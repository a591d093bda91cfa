"""Entries of a SQLite store: append and tail."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import apsw

from headrace.core.entry import BEGIN, Append, Cursor, Entry, Kept, Kind
from headrace.engine import MAX_BATCH
from headrace.engines.record import micros, moment
from headrace.engines.refusing import refuse_entries
from headrace.engines.sqlite.connection import ask
from headrace.engines.sqlite.db_thread import DbThread

__all__ = ["Entries"]

_Row = tuple[str, int, int, int, str | None, str]


class Entries:
    """The role ``entries`` of one session."""

    def __init__(self, writer: DbThread, reader: DbThread) -> None:
        self._writer, self._reader = writer, reader

    async def append(self, appends: Sequence[Append], now: datetime) -> list[Kept]:
        refuse_entries(appends)
        owners = [(one.job.bytes, one.worker.bytes, one.epoch) for one in appends]
        rows: list[list[_Row]] = [
            [
                (entry.kind, entry.attempt, entry.number, micros(entry.at), entry.name, entry.data)
                for entry in one.entries
            ]
            for one in appends
        ]

        def write(connection: apsw.Connection) -> list[Kept]:
            connection.execute("BEGIN IMMEDIATE")  # nobody takes a job from its owner before the commit
            kept: list[Kept] = []
            for owner, entries in zip(owners, rows, strict=True):
                seq = connection.execute(ask("owned"), owner).get
                if seq is not None:
                    connection.executemany(ask("append"), [(seq, *entry) for entry in entries])
                kept.append("stale" if seq is None else "kept")
            connection.execute("COMMIT")
            return kept

        return await self._writer.run(write)

    async def tail(
        self, job: UUID, kind: Kind, after: Cursor = BEGIN, limit: int = MAX_BATCH, *, newest: bool = False
    ) -> list[Entry]:
        statement, args = ask("tail_newest" if newest else "tail"), (job.bytes, str(kind), *after, limit)
        rows: list[Any] = await self._reader.run(lambda connection: connection.execute(statement, args).fetchall())
        found = [Entry(kind, attempt, number, data, moment(at), name) for attempt, number, at, name, data in rows]
        return found[::-1] if newest else found
