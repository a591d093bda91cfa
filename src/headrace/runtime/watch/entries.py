"""Following what runs add to their jobs: by hints, and by polling when none come."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import contextmanager
from uuid import UUID

from headrace.core.entry import BEGIN, Cursor, Entry, Kind
from headrace.core.job import Job
from headrace.engine import MAX_BATCH, Engine
from headrace.engine.bus import Hint, Topic
from headrace.errors import JobNotFound, StoreLost, Unavailable
from headrace.runtime.host import Host
from headrace.runtime.retries import Pauses
from headrace.runtime.slot import SlotWait

__all__ = ["EntryReader"]

_POLL_FIRST_SECONDS, _POLL_MAX_SECONDS, _POLL_FACTOR = 0.02, 1.0, 1.6
_FIRST_PAGE_ENTRIES, _MAX_PAGE_BYTES = 100, 4 * 1024 * 1024
_TOPICS = frozenset({Topic.ENTRIES, Topic.ENDED})
_log = logging.getLogger("headrace.entry_reader")


class EntryReader:
    """Reads entries for one session; however many follow, they share one subscription."""

    def __init__(self, engine: Engine, host: Host) -> None:
        self.engine, self._host = engine, host
        self._listeners: dict[UUID, set[asyncio.Event]] = {}
        self._unlisten: Callable[[], None] | None = None

    async def follow(
        self, id: UUID, kind: Kind, after: Cursor = BEGIN, *, wait: bool = True
    ) -> AsyncGenerator[tuple[list[Entry], Job | None], None]:
        """The entries behind the cursor, in order, and those still to come until the job has ended (``wait`` false:
        those that are there); with the last of them the job; :raises JobNotFound: there is no such job (any more)"""
        pauses = Pauses(self._host, _POLL_FIRST_SECONDS, _POLL_MAX_SECONDS, factor=_POLL_FACTOR, spread=(0.75, 1.25))
        most = _FIRST_PAGE_ENTRIES
        with self._hearing(id) as changed:
            async with SlotWait() as waiting:
                while True:
                    changed.clear()
                    try:
                        # In this order: what was added before the end is there when the end is.
                        (job,) = await self.engine.jobs.get([id])
                        entries = await self.engine.entries.tail(id, kind, after, most)
                    except Unavailable as error:
                        if not wait or isinstance(error, StoreLost):
                            raise
                        _log.debug("job %s cannot be followed for now: %s", id, error)
                        await self._host.sleep(_POLL_MAX_SECONDS)
                        continue
                    if job is None:
                        raise JobNotFound(id)
                    whole = len(entries) < most
                    over = whole and (job.ended or not wait)
                    if entries:
                        after, most = entries[-1].cursor, _page(entries)
                        pauses.reset()
                    if entries or over:
                        await waiting.back()
                        yield entries, job if over else None
                    if over:
                        return
                    if whole:
                        if not pauses.is_first:  # the next item of a stream that flows is worth a moment
                            waiting.yield_slot()
                        await pauses.wait(changed)

    @contextmanager
    def _hearing(self, id: UUID) -> Iterator[asyncio.Event]:
        """An event that is set by hints about this job."""
        changed = asyncio.Event()
        self._listeners.setdefault(id, set()).add(changed)
        if self._unlisten is None:
            self._unlisten = self.engine.bus.listen(_TOPICS, self._hear)
        try:
            yield changed
        finally:
            self._listeners[id].discard(changed)
            if not self._listeners[id]:
                del self._listeners[id]
            if not self._listeners and self._unlisten is not None:
                unlisten, self._unlisten = self._unlisten, None
                unlisten()

    def _hear(self, hint: Hint) -> None:
        for name in hint.names:
            for changed in self._listeners.get(UUID(name), ()):
                changed.set()


def _page(entries: list[Entry]) -> int:
    """How many to request next, if they are as large as these."""
    return max(1, min(MAX_BATCH, _MAX_PAGE_BYTES * len(entries) // (1 + sum(len(entry.data) for entry in entries))))
