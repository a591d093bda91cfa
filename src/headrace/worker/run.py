"""One execution: the start if it must come first, the call, the end, and every way of being told to stop."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from datetime import datetime

from headrace.core.job import ErrorInfo
from headrace.core.outcome import Completed, Ending, Failed, Released, TimedOut
from headrace.core.status import Status
from headrace.worker.completing import Completing
from headrace.worker.context import Context, Stopping
from headrace.worker.entry_writer import EntryWriter
from headrace.worker.owned_job import OwnedJob
from headrace.worker.perform import raised
from headrace.worker.place import Place
from headrace.worker.raising import is_passing, message_of
from headrace.worker.runner import call, call_async
from headrace.worker.speaking import Speaking

__all__ = ["Run"]

_log = logging.getLogger("headrace.worker")

_RUNNING = Status.RUNNING  # looked up once: see core.lifecycle

SHORT = 10.0
"""Seconds; a timer for each of many thousand jobs a second, nearly all of them cancelled, would be most of the cost."""
STOP_PATIENCE = 5.0
"""How long a cancelled coroutine may take to end after its time ran out, before its attempt ends without it."""


class Run(Speaking):
    """A job being executed. The attempt and the handler may end apart: a thread cannot be stopped."""

    __slots__ = ("_completing", "_leaving", "_time_up_at", "_timers", "began", "now", "since")

    def __init__(
        self, owned: OwnedJob, place: Place, task: asyncio.Task[None], now: datetime, monotonic: float
    ) -> None:
        """``now`` and ``monotonic``: the time, which the caller has just asked for."""
        self.owned, self.task = owned, task
        self.now = now
        """When the run last began or ended something."""
        self.ending = None
        self.began = self.since = monotonic
        """When the handler was called, and since when it has its slot (monotonic)."""
        self._place = place
        self._ctx = None
        self._why = None
        self._calling = False
        self._completing: Completing | None = None
        self._leaving: tuple[Ending, asyncio.Task[None]] | None = None
        self._entry_writer = self._progress = self.yielding = None
        self._timers: list[asyncio.TimerHandle] | None = None
        self._time_up_at = float("inf")

    @property
    def _timed_out(self) -> bool:
        return self._why == "timed_out"

    @property
    def stuck(self) -> bool:
        """Whether the handler goes on although its attempt is over."""
        return self.ending is not None and self._calling

    @property
    def started_at(self) -> datetime | None:
        """When the handler was called."""
        return self.owned.started_at

    async def go(self) -> None:
        """Execute the job, in the task that is given, and write what came of it."""
        owned, place = self.owned, self._place
        try:
            if owned.must_start_first:
                if not await self._started_first():
                    return
                self.began = place.host.clock.monotonic()
            if self._why is not None:  # told to stop before it began
                self.conclude(Released())
                return
            if owned.started_at is None:
                owned.started_at = self.now
            job = owned.job
            attempt = job.attempt if job.status is _RUNNING else job.attempt + 1
            self._ctx = Context(job, attempt, owned.started_at, self)
            self._set_time(job.spec.timeout)
            self._calling = True
            try:
                if owned.handler.direct:
                    ending = await call_async(owned.handler, self._ctx, job)
                else:
                    ending = await call(owned.handler, self._ctx, job, place.threads, place.children)
                if self._timed_out:
                    ending = TimedOut()
            except asyncio.CancelledError:
                ending = self._cancelled()
            self._calling = False
            if self._completing is None and self._entry_writer is None:
                self.conclude(ending)
            else:
                await self._wind_up(ending)
        except BaseException as error:
            self._break_down(error)
        finally:
            self._calling = False
            if self._timers is not None:
                for timer in self._timers:
                    timer.cancel()
            # Else every job would leave a circle of references for the garbage collector: context, run.
            self._ctx = self._timers = None
            place.left(self)

    def _break_down(self, error: BaseException) -> None:
        """Something came past the handler. Unless the whole loop ends, it must not leave the job in our hands."""
        if is_passing(error):
            raise error
        if isinstance(error, GeneratorExit):
            # Thrown in by a future of the handler's: it closes every coroutine up to the task, and none may wait for
            # anything any more.
            ending = raised(error)
            self._leaving = ending, self._loop.create_task(self._wind_up(ending), name="headrace-leaving")
            raise error
        _log.exception("job %s: the run broke down", self.owned.job.id)
        self.conclude(Failed(error=ErrorInfo(type(error).__name__, f"the worker broke down: {message_of(error)}")))

    async def _started_first(self) -> bool:
        """Make the start durable; False if the job turned out to be no longer ours to run."""
        stored = await self.owned.recorded()
        if self.ending is not None:
            return False  # abandoned while the start was being written
        if not stored or self.owned.job.status is not Status.RUNNING:
            self.ending = Released()
            self.owned.over = True
            self._place.stored(self.owned)
            return False
        self.owned.started_at = self.owned.job.started_at
        return True

    async def _wind_up(self, ending: Ending) -> None:
        """End the attempt, unless the handler has done so itself, and not before what it added is written."""
        if self.task.cancelling():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(0)  # one that the handler asked for and did not wait for is not for what follows
        if self._completing is not None and await self._completing.settle():
            self._completed(ending)
            return
        if self._entry_writer is not None:
            await self._entry_writer.finish()
        self.conclude(ending if self._leaving is None else self._leaving[0])

    def _cancelled(self) -> Ending:
        if self._why is not None:
            self.task.uncancel()
            return TimedOut() if self._why == "timed_out" else Released()
        keeper = self._place.keeper
        if self.task.cancelling() and keeper is not None and keeper.cancelling():
            return Released()  # the loop is being torn down, and everything in it cancelled
        error = ErrorInfo("CancelledError", "the handler cancelled itself")
        return Failed(error=error, names=("CancelledError", "asyncio.exceptions.CancelledError"))

    def _set_time(self, timeout: float | None) -> None:
        """A short time-out gets a timer of its own; a long one, as most are, is looked at now and then."""
        if timeout is None:
            return
        if timeout <= SHORT:
            self._later(timeout, lambda: self.stop("timed_out"))
        else:
            self._time_up_at = self.began + timeout

    def check_time(self, monotonic: float) -> None:
        """Stop the handler if its time is up."""
        if monotonic >= self._time_up_at:
            self.stop("timed_out")

    # -- being stopped

    def stop(self, why: Stopping) -> None:
        """Have the handler stop: a coroutine is cancelled, a child asked and then killed, a thread can only be told."""
        if self._why is not None:
            return
        self._why = why
        if self._ctx is None or not self._calling:
            return  # not begun yet: it will not be
        self._ctx.stopping = why
        over: Ending = TimedOut() if why == "timed_out" else Released()
        mode = self.owned.handler.mode
        patience = self._place.cancel_grace if why == "cancelled" else STOP_PATIENCE
        if mode == "async":
            self.task.cancel()
            self._later(patience, lambda: self._abandon(over))
            return
        if self.owned.handler.middleware:
            self.task.cancel()  # what is around the call; that itself is waited for
        if why in ("timed_out", "lost"):
            self._abandon(over)
        else:
            self._place.children.stop(self._ctx, why)
            self._later(patience, lambda: self._abandon(over))

    def abandon(self) -> None:
        """The worker leaves: hand the job back whether or not its handler stops."""
        self._abandon(Released())

    def _abandon(self, ending: Ending) -> None:
        """End the attempt although its handler goes on; not before what that has added is written, if it may be."""
        if self._entry_writer is None or self.ending is not None or self._why == "lost":
            self.conclude(ending)
        elif self._leaving is None:
            self._leaving = (
                ending,
                self._loop.create_task(self._leave(self._entry_writer, ending), name="headrace-leaving"),
            )
        if self.owned.handler.mode == "process" and self._ctx is not None:
            self._place.children.kill(self._ctx)

    async def _leave(self, writer: EntryWriter, ending: Ending) -> None:
        await writer.finish()
        self.conclude(ending)

    def conclude(self, ending: Ending) -> None:
        """End the attempt, once."""
        if self.ending is None:
            if self._progress is not None:
                if isinstance(ending, Failed | TimedOut):
                    self._progress.write()  # how far it came is worth keeping
                self._progress.over = True
            self.ending = ending
            self.now = self._place.host.clock.now()
            self._place.concluded(self)
            self.owned.write_finish(ending, self.now, self._settled)

    def completer(self) -> Completing:
        """What ends the job within a transaction of its handler's."""
        if self._completing is None:
            self._completing = Completing(self.owned, self._loop, self._written)
        return self._completing

    def check_transaction(self) -> None:
        """Look after a job that was lent to a transaction of its handler's."""
        if self._completing is not None:
            self._completing.tick()

    def _completed(self, ending: Ending) -> None:
        """The end of the job is stored, by the handler's own commit: what it came to besides does not count."""
        if isinstance(ending, Failed) and ending.error is not None:
            error, id = ending.error, self.owned.job.id
            trace = f"\n{error.traceback}" if error.traceback else ""
            _log.error("job %s was completed before its handler raised %s: %s%s", id, error.type, error.message, trace)
        if self.ending is None:
            self.ending = Completed(self.owned.job.result_text or "null")
            if self._progress is not None:
                self._progress.over = True
            self._place.concluded(self)
            self._settled(True)

    def _settled(self, stored: bool) -> None:
        self.owned.over = True
        self._place.settled(self, stored)

    def _later(self, seconds: float, act: Callable[[], None]) -> None:
        timer = self._loop.call_later(seconds, act)
        if self._timers is None:
            self._timers = [timer]
        else:
            self._timers.append(timer)
