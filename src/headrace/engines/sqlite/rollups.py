"""Rollups of a SQLite store."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import apsw

from headrace.core.stats.rollup import Rollup
from headrace.engine.rollups import MAX_ROLL
from headrace.engines.sql.encoding import encode, micros
from headrace.engines.sql.rollups import asked, due, places_of, together, written
from headrace.engines.sqlite.store.connection import ask
from headrace.engines.sqlite.store.thread import DbThread
from headrace.engines.validation import has_halves

__all__ = ["Rollups"]


class Rollups:
    """The role ``rollups`` of one session."""

    def __init__(self, writer: DbThread, searcher: DbThread) -> None:
        self._writer, self._searcher = writer, searcher

    async def read(
        self, since: datetime, until: datetime, task: str | None = None, queue: str | None = None
    ) -> list[Rollup]:
        if has_halves(task, queue):
            return []
        rows = await self._searcher.fetch("rollups", micros(since), micros(until), task, queue)
        return asked(rows, since, until, task, queue)

    async def roll(self, now: datetime, limit: int = MAX_ROLL) -> int:
        def write(connection: apsw.Connection) -> int:
            taken: list[Any] = connection.execute(ask("take_reports"), (limit,)).fetchall()
            taken += connection.execute(ask("take_rollups"), (*due(now), limit)).fetchall()
            if taken:
                moved = together(taken, now)
                there = connection.execute(ask("take_places"), (encode(places_of(moved)),)).fetchall()
                connection.executemany("INSERT INTO rollups VALUES (?, ?, ?, ?, ?)", written(moved, there))
            return len(taken)

        return await self._writer.write(write)
