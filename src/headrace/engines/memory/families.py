"""Families of a memory store: notes and batches."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from headrace.core.batch import Batch
from headrace.core.job import Job
from headrace.core.query import Page
from headrace.engine import MAX_BATCH, Processed, Refused
from headrace.engines.memory.state import Role
from headrace.engines.validation import refuse_jobs

__all__ = ["Families"]


class Families(Role):
    """The role ``families`` of one session."""

    async def process_notes(self, now: datetime, limit: int = MAX_BATCH) -> Processed:
        with self._state() as state:
            return state.relations.process_notes(now, limit, lambda change: state.apply(change, now))

    async def batches(self, ids: Sequence[UUID]) -> list[Batch | None]:
        with self._state() as state:
            return [state.relations.batches.get(id) for id in ids]

    async def find_batches(
        self, limit: int = 50, cursor: str | None = None, customer: str | None = None
    ) -> Page[Batch]:
        with self._state() as state:
            return state.relations.find(limit, cursor, customer)

    async def seal(self, batch: UUID, now: datetime) -> bool:
        with self._state() as state:
            return state.relations.seal(batch, now)

    async def cancel_batch(self, batch: UUID, now: datetime, by: str | None = None) -> Batch | None:
        with self._state() as state:
            return state.relations.cancel(batch, now, by)

    async def settle(self, batch: UUID, now: datetime, jobs: Sequence[Job] = ()) -> Refused | None:
        refuse_jobs(jobs, documents=True)
        with self._state() as state:
            found = state.relations.batches.get(batch)
            if found is None or found.settled:
                return None
            if (why := state.refusal(jobs)) is not None:
                return Refused(why)
            for job in jobs:
                state.insert(job)
            state.relations.settle(batch)
            return None
