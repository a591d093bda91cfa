"""What follows from a change for other jobs: told at once by whoever made the change, and by the sweeper else."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta

from msgspec.structs import replace

from headrace.core.batch import Batch, calls_of
from headrace.core.change import Change
from headrace.core.job import Job
from headrace.core.lifecycle import submit
from headrace.engine import MAX_BATCH, Engine
from headrace.engine.bus import Hint, Topic
from headrace.errors import HeadraceError, NotOpen, Unavailable
from headrace.runtime.host import Host

__all__ = ["Teller"]

_log = logging.getLogger("headrace.teller")

_GAP, _LONGEST_GAP = 0.02, 0.2
"""Seconds between two rounds: what many finishes ask for is told together; the longer, the less there is to tell."""


class Teller:
    """Works off the notes of a store, and submits what follows the end of batches."""

    def __init__(
        self,
        engine: Engine,
        host: Host,
        *,
        changed: Callable[[Sequence[Change]], None],
        insert: Callable[[Job], Awaitable[object]],
    ) -> None:
        """``changed`` is told what was made of other jobs, ``insert`` stores a job."""
        self._engine, self._host = engine, host
        self._changed, self._insert = changed, insert
        self._task: asyncio.Task[None] | None = None
        self._telling: set[asyncio.Task[int]] = set()
        self._one_at_a_time = asyncio.Lock()
        self._asked = self._closed = False

    @property
    def quiet(self) -> bool:
        """Whether nothing is being told, or was asked for."""
        return self._task is None and not self._telling

    def ask(self) -> None:
        """Tell soon; what cannot be told now, because the store is away, the sweeper tells."""
        self._asked = True
        if self._task is None and not self._closed:
            self._task = asyncio.create_task(self._run(), name="headrace-teller")

    async def _run(self) -> None:
        gap = _GAP
        try:
            while self._asked and not self._closed:
                self._asked = False
                gap = _GAP if await self.try_now() else min(gap * 2, _LONGEST_GAP)
                await self._host.sleep(gap)
        finally:
            self._task = None

    async def at_once(self) -> None:
        """Tell everything there is to tell; also if the caller does not wait for it."""
        telling = asyncio.create_task(self.try_now(), name="headrace-telling")
        self._telling.add(telling)
        telling.add_done_callback(self._telling.discard)
        await asyncio.shield(telling)

    async def try_now(self) -> int:
        """Tell everything there is to tell; what cannot be told now is in the store, and the sweeper tells it."""
        try:
            return await self.tell()
        except NotOpen:
            pass  # the session is being closed
        except Unavailable as error:
            _log.info("what follows from changes is told later: %s", error)
        except HeadraceError:
            _log.exception("what follows from changes could not be told; the sweeper tries again")
        return 0

    async def tell(self) -> int:
        """Tell everything there is to tell; how many jobs were changed.

        :raises Unavailable: the store is away; nothing is forgotten
        """
        # One after the other: notes that another takes just now are passed over, and whoever waits wants them told.
        async with self._one_at_a_time:
            return await self._tell()

    async def _tell(self) -> int:
        total = 0
        while True:
            told = await self._engine.families.process_notes(self._host.clock.now(), MAX_BATCH)
            self._changed(told.changes)
            total += len(told.changes)
            for batch in told.over:
                try:
                    await self._settle(batch)
                except Unavailable:
                    raise
                except HeadraceError:
                    # It stays as it is, and is tried again; nothing else waits for it.
                    _log.exception("what follows the end of batch %s could not be submitted", batch.id)
            if not told.more:
                return total

    async def _settle(self, batch: Batch) -> None:
        """Submit what follows the end of a batch. Their ids came with it: done twice, it is done once."""
        now = self._host.clock.now()
        for call in calls_of(batch):
            spec, due = replace(call.spec, created_at=now), now + timedelta(seconds=call.delay)
            await self._insert(submit(call.id, spec, call.payload_text, now, available_at=due))
        await self._engine.families.settle(batch.id)
        self._engine.bus.send(Hint(Topic.ENDED, (str(batch.id),)))

    async def close(self) -> None:
        """Tell what was asked for, and no more."""
        if under_way := [*self._telling, *([] if self._task is None else [self._task])]:
            await asyncio.wait(under_way)
        self._closed = True
