"""How a run speaks to its worker: what it reports and adds, what it uses, and that it waits for others."""

from __future__ import annotations

import asyncio
import threading
from typing import TypeVar

from headrace.core.job import Job, Progress
from headrace.core.outcome import Ending
from headrace.core.status import Status
from headrace.worker.context import Caller, Context, Stopping
from headrace.worker.entry_writer import EntryWriter
from headrace.worker.loops import on_loop
from headrace.worker.owned_job import OwnedJob
from headrace.worker.place import Place
from headrace.worker.progress import ProgressWriter
from headrace.worker.resources import Resource
from headrace.worker.slot_yielding import YieldingSlot

__all__ = ["Speaking"]

T = TypeVar("T")

_making = threading.Lock()


class Speaking(Caller):
    """The half of a run that its handler sees, from whatever thread; most use none of it, and nothing is made for
    them."""

    __slots__ = (
        "_calling",
        "_ctx",
        "_entry_writer",
        "_place",
        "_progress",
        "_why",
        "ending",
        "owned",
        "task",
        "yielding",
    )

    owned: OwnedJob
    task: asyncio.Task[None]
    ending: Ending | None
    """What the attempt came to; set once, by whoever is first."""
    yielding: YieldingSlot | None
    """What lends the slot; None as long as the handler has not waited for another job."""
    _place: Place
    _ctx: Context | None
    _calling: bool
    _why: Stopping | None
    _progress: ProgressWriter | None
    _entry_writer: EntryWriter | None

    @property
    def _loop(self) -> asyncio.AbstractEventLoop:
        return self.task.get_loop()

    @property
    def told_to_stop(self) -> bool:
        """Whether the handler was asked to stop, and its task perhaps cancelled."""
        return self._why is not None

    def resource(self, resource: Resource[T]) -> T:
        """From the handler, on whatever thread."""
        return self._place.resources.get(resource)

    # -- adding to the job

    def entry_writer(self) -> EntryWriter:
        """From the handler, on whatever thread; most have nothing to add, and none is made for them."""
        if (writer := self._entry_writer) is None:
            with _making:
                if (writer := self._entry_writer) is None:
                    attempt = 0 if self._ctx is None else self._ctx.attempt
                    writer = self._entry_writer = EntryWriter(self.owned.lanes, attempt, self._on_record, self._loop)
        return writer

    def log(self, data: str) -> None:
        """From the handler, on whatever thread."""
        if self._calling and self.ending is None:
            self.entry_writer().log(data)

    async def _written(self) -> None:
        if self._entry_writer is not None:
            await self._entry_writer.flush()

    async def _on_record(self) -> Job | None:
        return self.owned.job if await self.owned.recorded() and self.owned.job.status is Status.RUNNING else None

    # -- reporting

    def acted(self) -> None:
        """From the handler, on whatever thread."""
        self._loop.call_soon_threadsafe(self._write_start)

    def _write_start(self) -> None:
        if self.ending is None:
            self.owned.write_start()

    def report(self, report: Progress) -> None:
        """From the handler, on whatever thread."""
        if (progress := self._progress) is None:
            with _making:
                if (progress := self._progress) is None:
                    progress = self._progress = ProgressWriter(self.owned, self._loop)
        progress.report(report)

    async def flush(self) -> None:
        """From the handler, on whatever loop: wait until what was reported is stored."""
        await on_loop(self._loop, self._flush())

    async def _flush(self) -> None:
        if self._progress is not None:
            self._progress.write()
        # Behind the report in the job's own line of writes: when this is answered, the report is stored.
        await self.owned.recorded()

    # -- waiting for others

    @property
    def lent(self) -> bool:
        """Whether its slot is lent."""
        return self.yielding is not None and self.yielding.out

    @property
    def gone(self) -> bool:
        """Whether the handler is done, or should be: it lends nothing and waits for no slot."""
        return self._why is not None or not self._calling

    def slot(self) -> YieldingSlot | None:
        """What to tell of a wait."""
        if (slot := self.yielding) is None and self._calling:
            with _making:
                if (slot := self.yielding) is None:
                    slot = self.yielding = self._place.yielding_slot(self)
        return slot
