"""Records of a memory store: find, count, history, ledger, usage, position."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from headrace.core.explain.position import MOST, WINDOW, Position
from headrace.core.job import History, Job
from headrace.core.limits.limit import Usage
from headrace.core.limits.rule import Bound
from headrace.core.query import Count, Filter, Ledger, Page
from headrace.engines.memory.position import position
from headrace.engines.memory.state import Session

__all__ = ["Records"]


class Records:
    """The role ``records`` of one session."""

    def __init__(self, session: Session) -> None:
        self._state = session.state

    async def find(self, filter: Filter, now: datetime, limit: int = 50, cursor: str | None = None) -> Page[Job]:
        with self._state() as state:
            return state.table.find(filter, now, limit, cursor)

    async def count(self, now: datetime) -> list[Count]:
        with self._state() as state:
            return state.table.count(now)

    async def history(self, id: UUID) -> History:
        with self._state() as state:
            return state.table.history(id)

    async def ledger(self) -> Ledger:
        with self._state() as state:
            return state.table.ledger()

    async def usage(self, rates: Sequence[Bound] = ()) -> Usage:
        with self._state() as state:
            return state.usage

    async def position(self, job: Job, now: datetime, window: float = WINDOW, most: int = MOST) -> Position:
        with self._state() as state:
            return position(state.table, job, now, window, most)
