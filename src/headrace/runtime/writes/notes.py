"""Processing notes: what follows from a change for other jobs is done at once by the writer of the change, else by the
sweeper."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

from headrace.core.batch import Batch, follow_ups
from headrace.core.change import Change
from headrace.core.job import Job
from headrace.engine import MAX_BATCH, Engine
from headrace.engine.bus import Hint, Topic
from headrace.errors import HeadraceError, NotOpen, Unavailable
from headrace.runtime.host import Host
from headrace.runtime.retries import Pauses
from headrace.runtime.writes.omissions import log_left_out

__all__ = ["NoteProcessor"]

_log = logging.getLogger("headrace.notes")

_FIRST_GAP_SECONDS, _MAX_GAP_SECONDS = 0.02, 0.2
"""Seconds between two rounds, so that the notes of many finishes are processed together; longer, the less there is."""


class NoteProcessor:
    """Processes the notes of a store, and submits what follows the end of batches."""

    def __init__(
        self,
        engine: Engine,
        host: Host,
        *,
        changed: Callable[[Sequence[Change]], None],
        with_deliveries: Callable[[Job], Awaitable[tuple[Job, Sequence[Job]]]],
    ) -> None:
        """``changed`` is called with the changes that were made to other jobs; ``with_deliveries`` returns a new job
        with its webhooks, and their deliveries."""
        self._engine, self._host, self._changed, self._with_deliveries = engine, host, changed, with_deliveries
        self._task: asyncio.Task[None] | None = None
        self._under_way: set[asyncio.Task[int]] = set()
        self._one_at_a_time = asyncio.Lock()
        self._asked = self._closed = False

    @property
    def quiet(self) -> bool:
        """Whether nothing is being processed, or was requested."""
        return self._task is None and not self._under_way

    def ask(self) -> None:
        """Process notes soon; what cannot be done now, because the store is away, is left to the sweeper."""
        self._asked = True
        if self._task is None and not self._closed:
            self._task = asyncio.create_task(self._run(), name="headrace-notes")

    async def _run(self) -> None:
        gaps = Pauses(self._host, _FIRST_GAP_SECONDS, _MAX_GAP_SECONDS)
        try:
            while self._asked and not self._closed:
                self._asked = False
                if await self.try_now():
                    gaps.reset()
                else:
                    gaps.grow()
                await self._host.sleep(gaps.seconds)
        finally:
            self._task = None

    async def at_once(self) -> None:
        """Process all notes there are; also if the caller does not wait for it."""
        work = asyncio.create_task(self.try_now(), name="headrace-notes-now")
        self._under_way.add(work)
        work.add_done_callback(self._under_way.discard)
        await asyncio.shield(work)

    async def try_now(self) -> int:
        """Process all notes there are; what cannot be done now stays in the store, and is left to the sweeper."""
        try:
            return await self.process()
        except NotOpen:
            pass  # the session is being closed
        except Unavailable as error:
            _log.info("what follows from changes for other jobs is done later: %s", error)
        except HeadraceError:
            _log.exception("what follows from changes for other jobs could not be done; the sweeper tries again")
        return 0

    async def process(self) -> int:
        """Process all notes there are; how many jobs were changed;
        :raises Unavailable: the store is away; nothing is forgotten"""
        # One after the other: notes that another takes just now are passed over, and callers want them done.
        async with self._one_at_a_time:
            return await self._process()

    async def _process(self) -> int:
        total = 0
        while True:
            processed = await self._engine.families.process_notes(self._host.clock.now(), MAX_BATCH)
            self._changed(processed.changes)
            log_left_out(processed.left_out)
            total += len(processed.changes)
            for batch in processed.over:
                try:
                    await self._settle(batch)
                except Unavailable:
                    raise
                except HeadraceError:
                    # It stays as it is, and is tried again; nothing else waits for it.
                    _log.exception("what follows the end of batch %s could not be submitted", batch.id)
            # What was inserted with a change may wait for others, too, and left a note that says so.
            if not processed.more and not any(one.waits for change in processed.changes for one in change.inserts):
                return total

    async def _settle(self, batch: Batch) -> None:
        """Store what follows the end of a batch."""
        now = self._host.clock.now()
        jobs = [
            one
            for job in follow_ups(batch, now)
            for new, others in [await self._with_deliveries(job)]
            for one in (new, *others)
        ]
        if (refused := await self._engine.families.settle(batch.id, now, jobs)) is not None:
            raise refused.error
        if jobs:
            self._engine.bus.send(Hint(Topic.READY, tuple({job.spec.queue for job in jobs})))
        self._engine.bus.send(Hint(Topic.ENDED, (str(batch.id),)))

    async def close(self) -> None:
        """Process what was requested, and no more."""
        if waited_for := [*self._under_way, *([] if self._task is None else [self._task])]:
            await asyncio.wait(waited_for)
        self._closed = True
