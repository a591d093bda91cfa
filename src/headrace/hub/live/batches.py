"""The events of batches: their counts whenever they have changed, for streams and sockets."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from contextvars import Context
from datetime import datetime
from uuid import UUID

import msgspec

from headrace.app import App
from headrace.core.batch import Batch, is_over
from headrace.core.change import BatchTally
from headrace.errors import HeadraceError, StoreLost, Unavailable
from headrace.http.sse import BEAT_SECONDS, event

__all__ = ["BatchReader", "BatchTold", "batch_told", "tell_batch", "token_of"]

_STORE_RETRY_SECONDS = 1.0
"""Seconds between two tries while the store is away."""

_log = logging.getLogger("headrace.hub")


class BatchTold(msgspec.Struct, frozen=True, kw_only=True):
    """The counts of a batch."""

    batch_id: UUID
    tally: BatchTally
    sealed: bool
    """Whether all of its jobs are stored; until then it does not end."""
    abandoned: bool
    """Whether it was sealed because its submitter added nothing for an hour: some jobs may be missing."""
    ended: bool
    """No more events follow."""
    ended_at: datetime | None
    """May be null in the last event: the store notes it a moment after the last job has ended."""
    cancelled_at: datetime | None
    cancelled_by: str | None


def batch_told(batch: Batch) -> BatchTold:
    """Return the event about a batch."""
    same = ("tally", "sealed", "abandoned", "ended_at", "cancelled_at", "cancelled_by")
    return BatchTold(batch_id=batch.id, ended=is_over(batch), **{name: getattr(batch, name) for name in same})


def token_of(batch: Batch) -> str:
    """Return the id of the event about a batch: another one for every change that the event shows."""
    tally, flags = batch.tally, (batch.sealed, batch.abandoned, batch.cancelled_at is not None)
    counts = (tally.total, tally.completed, tally.failed, tally.cancelled)
    return ".".join(map(str, (*counts, *map(int, flags))))


class BatchReader:
    """Follows a batch for one client. Nothing is queued: the client takes the batch as it is by then."""

    def __init__(self, app: App, batch: Batch, wake: Callable[[], None] | None = None) -> None:
        """``wake`` is called whenever there may be a change, instead of waiting for it in ``next``."""
        self._app, self._batch, self._taken = app, batch, token_of(batch)
        self._error: Exception | None = None
        self._woken = asyncio.Event()
        self._wake = wake or self._woken.set
        # In a context of its own: it outlives the request.
        self._task = asyncio.create_task(self._run(), name="headrace-hub-batch", context=Context())

    @property
    def id(self) -> UUID:
        """The id of the batch."""
        return self._batch.id

    def take(self) -> Batch | None:
        """Return the batch if it has changed since it was last taken; :raises JobNotFound: it is not there any more"""
        if self._error is not None:
            raise self._error
        token = token_of(self._batch)
        if token == self._taken:
            return None
        self._taken = token
        return self._batch

    async def next(self, timeout: float) -> Batch | None:
        """Return the batch once it has changed; None if that takes longer than the timeout."""
        if (batch := self.take()) is None:
            self._woken.clear()
            await self._app.host.wait(self._woken, timeout)
            batch = self.take()
        return batch

    def close(self) -> None:
        """Follow it no longer."""
        self._task.cancel()

    async def _run(self) -> None:
        while not is_over(self._batch):
            try:
                async with aclosing(self._app.batches.watch(self.id)) as batches:
                    async for batch in batches:
                        self._batch = batch
                        self._wake()
            except HeadraceError as error:
                if not isinstance(error, Unavailable) or isinstance(error, StoreLost):
                    return self._fail(error)
                _log.debug("batch %s cannot be followed for now: %s", self.id, error)
                await self._app.host.sleep(_STORE_RETRY_SECONDS)
            except Exception as error:
                _log.exception("batch %s cannot be followed", self.id)
                return self._fail(error)
        return None

    def _fail(self, error: Exception) -> None:
        self._error = error
        self._wake()


async def tell_batch(reader: BatchReader, first: Batch) -> AsyncGenerator[bytes, None]:
    """Yield the events of a batch until it has ended; an empty part means that there was none for a while."""
    batch: Batch | None = first
    name = "snapshot"
    while True:
        yield b"" if batch is None else event(name, batch_told(batch), token_of(batch))
        if batch is not None and is_over(batch):
            return
        name, batch = "status", await reader.next(BEAT_SECONDS)
