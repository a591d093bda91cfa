"""Entries of a memory store: append and tail."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from headrace.core.entry import BEGIN, Append, Cursor, Entry, Kept, Kind
from headrace.core.status import Status
from headrace.engine import MAX_BATCH
from headrace.engines.memory.state import Role, State
from headrace.engines.validation import refuse_entries

__all__ = ["Entries"]


class Entries(Role):
    """The role ``entries`` of one session."""

    async def append(self, appends: Sequence[Append], now: datetime) -> list[Kept]:
        refuse_entries(appends)
        with self._state() as state:
            return [_append(state, one) for one in appends]

    async def tail(
        self, job: UUID, kind: Kind, after: Cursor = BEGIN, limit: int = MAX_BATCH, *, newest: bool = False
    ) -> list[Entry]:
        with self._state() as state:
            return state.table.entries.tail(job, kind, after, limit, newest)


def _append(state: State, append: Append) -> Kept:
    job = state.table.records.get(append.job)
    if job is None or job.status is not Status.RUNNING or (job.worker, job.epoch) != (append.worker, append.epoch):
        return "stale"
    state.table.entries.add(append.job, append.entries)
    return "kept"
