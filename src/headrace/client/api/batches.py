"""``app.batches``: batches by id, and all that are kept."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from uuid import UUID

from headrace.client.api.filters import checked_limit
from headrace.client.api.noun import Noun
from headrace.client.batch import BatchHandle
from headrace.core.batch import Batch
from headrace.core.job import as_id
from headrace.core.query import Page
from headrace.core.validation import checked_key

__all__ = ["BatchesApi"]


class BatchesApi(Noun):
    """The batches of the store; ``app.batch`` makes one."""

    def handle(self, id: UUID | str) -> BatchHandle:
        """A batch by its id; nothing is read yet."""
        return BatchHandle(self._app, as_id(id))

    async def list(self, *, limit: int = 50, cursor: str | None = None, customer: str | None = None) -> Page[Batch]:
        """Every batch that is kept, newest first, a page at a time; ``customer``: those with jobs of this one alone."""
        only = None if customer is None else checked_key(customer, "customer")
        return await self._engine.families.find_batches(checked_limit(limit), cursor, only)

    async def watch(self, id: UUID | str) -> AsyncGenerator[Batch, None]:
        """The batch as it is, then again after every change of its counts, until it has ended; of changes that follow
        one another within a moment the last; :raises JobNotFound: there is no such batch"""
        async with aclosing(self._session.batch_watcher.follow(as_id(id))) as batches:
            async for batch in batches:
                yield batch
