"""How a run speaks to its worker: what it reports and adds, what it uses, and that it waits for others."""

from __future__ import annotations

import asyncio
import threading
from typing import TypeVar

from headrace.core.job import Job, Progress
from headrace.core.outcome import Ending
from headrace.core.status import Status
from headrace.worker.context import Context, Stopping, Voice
from headrace.worker.hold import Hold
from headrace.worker.lending import Loan
from headrace.worker.loops import on_loop
from headrace.worker.place import Place
from headrace.worker.reporting import Reporter
from headrace.worker.resources import Resource
from headrace.worker.scribe import Scribe

__all__ = ["Speaking"]

T = TypeVar("T")

_making = threading.Lock()


class Speaking(Voice):
    """The half of a run that its handler sees, from whatever thread; most use none of it, and nothing is made for
    them."""

    __slots__ = ("_calling", "_ctx", "_place", "_reporter", "_scribe", "_why", "ending", "hold", "loan", "task")

    hold: Hold
    task: asyncio.Task[None]
    ending: Ending | None
    """What the attempt came to; set once, by whoever is first."""
    loan: Loan | None
    """What lends the slot; None as long as the handler has not waited for another job."""
    _place: Place
    _ctx: Context | None
    _calling: bool
    _why: Stopping | None
    _reporter: Reporter | None
    _scribe: Scribe | None

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

    def scribe(self) -> Scribe:
        """From the handler, on whatever thread; most have nothing to add, and none is made for them."""
        if (scribe := self._scribe) is None:
            with _making:
                if (scribe := self._scribe) is None:
                    attempt = 0 if self._ctx is None else self._ctx.attempt
                    scribe = self._scribe = Scribe(self.hold.lanes, attempt, self._on_record, self._loop)
        return scribe

    def log(self, data: str) -> None:
        """From the handler, on whatever thread."""
        if self._calling and self.ending is None:
            self.scribe().log(data)

    async def _written(self) -> None:
        if self._scribe is not None:
            await self._scribe.flush()

    async def _on_record(self) -> Job | None:
        return self.hold.job if await self.hold.recorded() and self.hold.job.status is Status.RUNNING else None

    # -- reporting

    def acted(self) -> None:
        """From the handler, on whatever thread."""
        self._loop.call_soon_threadsafe(self._write_start)

    def _write_start(self) -> None:
        if self.ending is None:
            self.hold.write_start()

    def report(self, report: Progress) -> None:
        """From the handler, on whatever thread."""
        if (reporter := self._reporter) is None:
            with _making:
                if (reporter := self._reporter) is None:
                    reporter = self._reporter = Reporter(self.hold, self._loop)
        reporter.report(report)

    async def flush(self) -> None:
        """From the handler, on whatever loop: wait until what was reported is stored."""
        await on_loop(self._loop, self._flush())

    async def _flush(self) -> None:
        if self._reporter is not None:
            self._reporter.write()
        # Behind the report in the job's own line of writes: when this is answered, the report is stored.
        await self.hold.recorded()

    # -- waiting for others

    @property
    def lent(self) -> bool:
        """Whether its slot is lent."""
        return self.loan is not None and self.loan.out

    @property
    def gone(self) -> bool:
        """Whether the handler is done, or should be: it lends nothing and waits for no slot."""
        return self._why is not None or not self._calling

    def slot(self) -> Loan | None:
        """What to tell of a wait."""
        if (loan := self.loan) is None and self._calling:
            with _making:
                if (loan := self.loan) is None:
                    loan = self.loan = self._place.loan(self)
        return loan
