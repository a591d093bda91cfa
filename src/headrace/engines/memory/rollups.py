"""Rollups of a memory store."""

from __future__ import annotations

from datetime import datetime

from headrace.core.stats.rollup import Rollup, concerns, regrouped
from headrace.engine.rollups import MAX_ROLL
from headrace.engines.memory.state import Role

__all__ = ["Rollups"]


class Rollups(Role):
    """The role ``rollups`` of one session."""

    async def read(
        self, since: datetime, until: datetime, task: str | None = None, queue: str | None = None
    ) -> list[Rollup]:
        with self._state() as state:
            return [row for row in state.rollups if concerns(row, since, until, task, queue)]

    async def roll(self, now: datetime, limit: int = MAX_ROLL) -> int:
        with self._state() as state:
            rows = regrouped(state.rollups, now)
            if rows == state.rollups:
                return 0
            before, state.rollups = len(state.rollups), rows
            return before
