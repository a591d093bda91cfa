"""Entries: what runs add to their jobs, kept and read again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

import apsw

from headrace.core.entry import Append, Cursor, Entry, Kept, Kind
from headrace.engines.record import micros, moment
from headrace.engines.refusing import refuse_entries
from headrace.engines.sqlite.connection import ask
from headrace.engines.sqlite.db_thread import DbThread

__all__ = ["append", "tail"]

_Row = tuple[str, int, int, int, str | None, str]


async def append(thread: DbThread, appends: Sequence[Append]) -> list[Kept]:
    """Keep the entries of those jobs that are still in the hands they speak for."""
    refuse_entries(appends)
    owners = [(one.job.bytes, one.worker.bytes, one.epoch) for one in appends]
    rows: list[list[_Row]] = [
        [(entry.kind, entry.attempt, entry.number, micros(entry.at), entry.name, entry.data) for entry in one.entries]
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

    return await thread.run(write)


async def tail(thread: DbThread, job: UUID, kind: Kind, after: Cursor, limit: int, newest: bool) -> list[Entry]:
    """The first, or the last, entries of one kind behind the cursor."""
    statement, args = ask("tail_newest" if newest else "tail"), (job.bytes, str(kind), *after, limit)
    rows: list[Any] = await thread.run(lambda connection: connection.execute(statement, args).fetchall())
    found = [Entry(kind, attempt, number, data, moment(at), name) for attempt, number, at, name, data in rows]
    return found[::-1] if newest else found
