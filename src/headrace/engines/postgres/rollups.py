"""Rollups: rows that are only ever taken and written, so that no session waits for another."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from headrace.core.stats.rollup import Rollup
from headrace.engine.rollups import MAX_ROLL
from headrace.engines.postgres.store.arrays import columns, literal
from headrace.engines.postgres.store.connection import askable, sql
from headrace.engines.postgres.store.pool import Pool
from headrace.engines.sql.encoding import micros
from headrace.engines.sql.rollups import asked, due, places_of, together, written

__all__ = ["Rollups"]

_TEXTS = frozenset({2, 3, 4})


class Rollups:
    """The role ``rollups`` of one session."""

    def __init__(self, cold: Pool, search: Pool, schema: str) -> None:
        self._cold, self._search, self._schema = cold, search, schema

    async def read(
        self, since: datetime, until: datetime, task: str | None = None, queue: str | None = None
    ) -> list[Rollup]:
        if not askable(task, queue):
            return []
        terms = (micros(since), micros(until), task, queue)
        return asked(await self._search.fetch(sql("rollups", self._schema), *terms), since, until, task, queue)

    async def roll(self, now: datetime, limit: int = MAX_ROLL) -> int:
        if not (await self._cold.fetch(sql("anything_to_roll", self._schema), *due(now)))[0][0]:
            return 0
        async with self._cold.transaction() as connection:
            taken: list[Any] = await connection.fetch(sql("take_reports", self._schema), limit)
            taken += await connection.fetch(sql("take_rollups", self._schema), *due(now), limit)
            if taken and (moved := together(taken, now)):
                steps, moments = map(list, zip(*places_of(moved), strict=True))
                there = await connection.fetch(sql("take_places", self._schema), literal(steps), literal(moments))
                rows = written(moved, there)
                await connection.execute(sql("put_rollups", self._schema), *columns(rows, _TEXTS))
            return len(taken)
