"""One run of an owned job: the start if it must be stored first, the call, the end, and every way to stop it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable
from datetime import datetime
from math import inf
from typing import TYPE_CHECKING, TypeVar

from headrace.core.attempt import Ending, ErrorInfo, Failed, Progress, Released, TimedOut
from headrace.core.job import Job
from headrace.core.lifecycle.loss import timeout_error
from headrace.core.lifecycle.suspects import in_quarantine
from headrace.core.status import Status
from headrace.logs import labels
from headrace.worker.execution.backoff import timed, timed_out
from headrace.worker.execution.call import call, call_async, raised
from headrace.worker.execution.completion import Completion
from headrace.worker.execution.context import Caller, Context, Stopping
from headrace.worker.execution.errors import is_passing, message_of
from headrace.worker.execution.resources import Resource
from headrace.worker.execution.signs import Signs, SignThrottle
from headrace.worker.execution.tracing import timed_out_in
from headrace.worker.execution.writers import EntryWriter, ProgressWriter
from headrace.worker.owned_job import OwnedJob
from headrace.worker.process.loops import on_loop
from headrace.worker.yielded_slots import RunSlot

if TYPE_CHECKING:
    from headrace.worker.execution.bulk import BulkCall
    from headrace.worker.slots import Slots

__all__ = ["Run"]

T = TypeVar("T")

_log = logging.getLogger("headrace.worker")

_RUNNING = Status.RUNNING  # looked up once: see core.lifecycle.execution

_making = threading.Lock()

OWN_TIMER_SECONDS = 10.0
"""Seconds up to which a timeout has a timer of its own: a timer for each of thousands of jobs would cost too much."""
STOP_TIMEOUT_SECONDS = 5.0
"""How long a cancelled coroutine may take to end after its time ran out, before its attempt ends without it."""


class Run(Caller):
    """The handler of an owned job being called. The attempt and the handler may end apart: a thread cannot be stopped.

    It makes what its Context requests, from any thread, at the first request: most handlers request nothing.
    """

    __slots__ = (
        "_calling",
        "_completing",
        "_ctx",
        "_entry_writer",
        "_leaving",
        "_now",
        "_progress",
        "_signs",
        "_slots",
        "_time_taken",
        "_time_up_at",
        "_timers",
        "_why",
        "began",
        "bulk_call",
        "late",
        "own_slot",
        "owned",
        "since",
        "task",
    )

    def __init__(
        self,
        owned: OwnedJob,
        slots: Slots,
        task: asyncio.Task[None],
        now: datetime,
        monotonic: float,
        bulk_call: BulkCall | None = None,
    ) -> None:
        """``now`` and ``monotonic``: the present time, which the caller has just read."""
        self.owned, self.task, self.bulk_call = owned, task, bulk_call
        self.began = self.since = monotonic
        """When the handler was called, and since when it has its slot (monotonic)."""
        self.own_slot: RunSlot | None = None
        """Its slot, to be yielded; None as long as the handler has not waited for another job."""
        self._slots, self._now = slots, now
        self._ctx: Context | None = None
        self._why: Stopping | None = None
        self._calling = False
        self._completing: Completion | None = None
        self._leaving: tuple[Ending, asyncio.Task[None]] | None = None
        self._entry_writer: EntryWriter | None = None
        self._progress: ProgressWriter | None = None
        self._signs: Signs | None = None
        """Those of a job with a heartbeat, while its handler is called."""
        self.late: ErrorInfo | None = None
        """How it timed out, if not by its timeout."""
        self._timers: tuple[asyncio.TimerHandle | Signs, ...] = ()
        self._time_up_at = inf
        self._time_taken: float | None = None

    @property
    def _loop(self) -> asyncio.AbstractEventLoop:
        return self.task.get_loop()

    @property
    def stop_requested(self) -> bool:
        """Whether the handler was requested to stop, and its task perhaps cancelled."""
        return self._why is not None

    @property
    def stuck(self) -> bool:
        """Whether the handler goes on although its attempt is over."""
        return self.owned.ending is not None and self._calling

    async def go(self) -> None:
        """Execute the job in its task, and write how it ended."""
        owned, slots = self.owned, self._slots
        try:
            if owned.must_start_first(beside_suspect=slots.suspects.any_here):
                if not await self._started_first():
                    return
                self.began = slots.host.clock.monotonic()
            if self.stop_requested or (owned.permits is not None and self._is_late()):  # before it began
                self.finish(Released())
                return
            if owned.started_at is None:
                owned.started_at = self._now
            job = owned.job
            attempt = job.attempt if job.status is _RUNNING else job.attempt + 1
            self._ctx = Context(job, attempt, owned.started_at, self)
            self._set_time(job)
            self._calling = True
            try:
                if owned.handler.direct:
                    ending = await call_async(owned.handler, self._ctx, job)
                else:
                    ending = await call(owned.handler, self._ctx, job, slots.threads, slots.children)
                if self._why == "timed_out":
                    ending = TimedOut(self.late)
            except asyncio.CancelledError:
                ending = self._cancelled()
            self._calling = False
            added = self._completing is not None or self._entry_writer is not None
            if (added or owned.job.status is _RUNNING) and self._time_taken is None:
                # Between its start and its end on record there is more: the start was stored before the call, or what
                # it added is stored before the end.
                self._time_taken = slots.host.clock.monotonic() - self.began
            if added:
                await self._wind_up(ending)
            else:
                self.finish(ending)
        except BaseException as error:
            self._break_down(error)
        finally:
            self._calling = False
            for timer in self._timers:
                timer.cancel()
            # Otherwise every job would leave a circle of references, context and run, for the garbage collector.
            self._ctx, self._timers = None, ()
            slots.left(self)

    def _is_late(self) -> bool:
        """Whether a rate counts the job and it may not begin any more; a bulk call checks when it begins."""
        left = None if self.bulk_call is not None else self.begins_within()
        return left is not None and left < 0

    def finish(self, ending: Ending) -> None:
        """End the attempt, once: the owned job writes the end, and passes the store's reply to the slots."""
        owned, slots = self.owned, self._slots
        if owned.ending is None:
            if self._progress is not None and isinstance(ending, Failed | TimedOut):
                self._progress.write()  # how far it came is worth keeping
            if type(ending) is TimedOut:
                ending = timed_out_in(self._ctx, timed_out(ending, owned.handler, owned.job))
            slots.unacknowledged += 1
            owned.finish(ending, slots.host.clock.now(), self._time_taken)

    def _break_down(self, error: BaseException) -> None:
        """End the attempt with an error that came past the handler, so that the worker does not go on owning the job;
        unless the loop itself ends."""
        if is_passing(error):
            raise error
        if isinstance(error, GeneratorExit):
            # Thrown in by a future of the handler's: it closes every coroutine up to the task, and none may wait for
            # anything any more.
            ending = raised(error, self.owned.handler, self.owned.job)
            self._leaving = ending, self._loop.create_task(self._wind_up(ending), name="headrace-leaving")
            raise error
        _log.exception("job %s: the run broke down", self.owned.job.id, extra=labels(self.owned.job))
        self.finish(Failed(error=ErrorInfo(type(error).__name__, f"the worker broke down: {message_of(error)}")))

    async def _started_first(self) -> bool:
        """Store the start; False if the worker may not run the job any more."""
        owned = self.owned
        if in_quarantine(owned.job):
            await self._slots.suspects.clear_the_way()
        stored = await owned.recorded()
        if owned.ending is not None:
            return False  # abandoned while the start was being written
        if not stored or owned.job.status is not _RUNNING:
            owned.settle(stored)
            return False
        owned.started_at = owned.job.started_at
        return True

    async def _wind_up(self, ending: Ending) -> None:
        """End the attempt, unless the handler has done so itself, and not before what it added is written."""
        if self.task.cancelling():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(0)  # a cancellation that the handler requested and did not await ends here
        if self._completing is not None and await self._completing.settle():
            if isinstance(ending, Failed) and (error := ending.error) is not None:
                id, trace = self.owned.job.id, f"\n{error.traceback}" if error.traceback else ""
                message = "job %s was completed before its handler raised %s: %s%s"
                _log.error(message, id, error.type, error.message, trace, extra=labels(self.owned.job))
            self.finish(ending)
            return
        if self._entry_writer is not None:
            await self._entry_writer.finish()
        self.finish(ending if self._leaving is None else self._leaving[0])

    def timed_out(self, late: ErrorInfo | None) -> TimedOut:
        """The ending of a run that is out of time; ``late``: its error, if that is not the usual one."""
        return timed_out_in(self._ctx, TimedOut(late))

    def _cancelled(self) -> Ending:
        if self._why is not None:
            self.task.uncancel()
            return TimedOut(self.late) if self._why == "timed_out" else Released()
        keeper = self._slots.keeper
        if self.task.cancelling() and keeper is not None and keeper.cancelling():
            return Released()  # the loop is ending, and everything on it is cancelled
        error = ErrorInfo("CancelledError", "the handler cancelled itself")
        ending = Failed(error=error, names=("CancelledError", "asyncio.exceptions.CancelledError"))
        return timed(ending, self.owned.handler, self.owned.job)

    def _set_time(self, job: Job) -> None:
        """Arrange that the handler is stopped at its timeout, or when it gives no sign for its heartbeat: by a timer if
        that is soon, otherwise by ``tick``."""
        timeout, heartbeat = job.spec.timeout, job.spec.heartbeat
        if heartbeat is not None:
            self._signs = Signs(self.owned, self._loop, heartbeat, self._miss_signs)
            self._timers += (self._signs,)
        if timeout is None:
            return
        if timeout <= OWN_TIMER_SECONDS:
            self._later(timeout, lambda: self.stop("timed_out"))
        else:
            self._time_up_at = self.began + timeout

    def _miss_signs(self) -> None:
        job = self.owned.job
        self.stop("timed_out", timeout_error(job, job.spec.heartbeat))

    @property
    def signs(self) -> SignThrottle | None:
        """The signs of a job with a heartbeat, while its handler is called."""
        return None if self._signs is None else self._signs.throttle

    def tick(self, monotonic: float) -> None:
        """Stop the handler if its time is up, or it gives no sign; settle a transaction that has its job, if that is
        over."""
        if monotonic >= self._time_up_at:
            self.stop("timed_out")
        if self._signs is not None:
            self._signs.tick()
        if self._completing is not None:
            self._completing.tick()

    # -- being stopped

    def stop(self, why: Stopping, late: ErrorInfo | None = None) -> None:
        """Stop the handler: cancel a coroutine, signal and then kill a child process, only signal a thread. ``late``:
        how it timed out, if not by its timeout."""
        if self._why is not None:
            return
        self._why, self.late = why, late
        if self._ctx is None or not self._calling:
            return  # the handler was not called yet, and will not be
        self._ctx.stopping = why
        over: Ending = TimedOut(late) if why == "timed_out" else Released()
        mode = self.owned.handler.mode
        timeout = self._slots.cancel_grace if why == "cancelled" else STOP_TIMEOUT_SECONDS
        if mode == "async":
            self.task.cancel()
            self._later(timeout, lambda: self.abandon(over))
            return
        if self.owned.handler.middleware:
            self.task.cancel()  # what is around the call; that itself is waited for
        if why in ("timed_out", "lost"):
            self.abandon(over)
        else:
            self._slots.children.stop(self._ctx, why)
            self._later(timeout, lambda: self.abandon(over))

    def abandon(self, ending: Ending) -> None:
        """End the attempt although its handler goes on; not before what that has added is written, if it may be."""
        if self._entry_writer is None or self.owned.ending is not None or self._why == "lost":
            self.finish(ending)
        elif self._leaving is None:
            leaving = self._leave(self._entry_writer, ending)
            self._leaving = ending, self._loop.create_task(leaving, name="headrace-leaving")
        if self.owned.handler.mode == "process" and self._ctx is not None:
            self._slots.children.kill(self._ctx)

    async def _leave(self, writer: EntryWriter, ending: Ending) -> None:
        await writer.finish()
        self.finish(ending)

    def _later(self, seconds: float, act: Callable[[], None]) -> None:
        self._timers += (self._loop.call_later(seconds, act),)

    # -- for its Context, on whatever thread

    def begins_within(self) -> float | None:
        """How many seconds are left to call the handler, if a rate counts the job."""
        return None if self.owned.permits is None else self.owned.permits.left()

    def took(self, seconds: float) -> None:
        """Note how long the handler took: one that was called elsewhere, or together with others."""
        self._time_taken = seconds

    def begun(self) -> None:
        """Note that the handler was called before: a permit is for the run, however often middleware calls it."""
        self.owned.permits = None

    def resource(self, resource: Resource[T]) -> T:
        """The resource that the worker has open for this definition."""
        return self._slots.resources.get(resource)

    def entry_writer(self) -> EntryWriter:
        """The writer of what the run adds to its job."""
        with _making:
            if self._entry_writer is None:
                attempt = 0 if self._ctx is None else self._ctx.attempt
                added = None if self._signs is None else self._signs.give
                self._entry_writer = EntryWriter(self.owned.writer, attempt, self._on_record, self._loop, added)
            return self._entry_writer

    async def _on_record(self) -> Job | None:
        return self.owned.job if await self.owned.recorded() and self.owned.job.status is _RUNNING else None

    def log(self, data: str) -> None:
        """Add a line to the log of the job, as long as the attempt lasts."""
        if self._calling and self.owned.ending is None:
            self.sign()  # also if the log is full
            self.entry_writer().log(data)

    def acted(self) -> None:
        """Store the start, because the handler did something visible to others."""
        self._loop.call_soon_threadsafe(self._write_start)

    def _write_start(self) -> None:
        if self.owned.ending is None:
            self.owned.write_start()

    def report(self, report: Progress) -> None:
        """Write the progress of the handler."""
        with _making:
            if self._progress is None:
                self._progress = ProgressWriter(self.owned, self._loop, self._signs)
        if self._signs is not None:
            self._signs.note()
        self._progress.report(report)

    def sign(self) -> None:
        """Keep the job from timing out for its heartbeat."""
        if (signs := self._signs) is not None:
            signs.give()

    async def flush(self) -> None:
        """Wait until all progress reported so far is stored."""
        await on_loop(self._loop, self._flush())

    async def _flush(self) -> None:
        if self._progress is not None:
            self._progress.write()
        # Behind the report among the job's own writes: when this returns, the report is stored.
        await self.owned.recorded()

    def completer(self) -> Completion:
        """What ends the job within a transaction of its handler's."""
        if self._completing is None:
            self._completing = Completion(self.owned, self._loop, self._written)
        return self._completing

    async def _written(self) -> None:
        if self._entry_writer is not None:
            await self._entry_writer.flush()

    # -- waiting for other jobs

    @property
    def yielded(self) -> bool:
        """Whether its slot is yielded."""
        return self.own_slot is not None and self.own_slot.is_yielded

    def _gone(self) -> bool:
        """Whether the handler is done, or should be: then it yields nothing and waits for no slot."""
        return self._why is not None or not self._calling

    def slot(self) -> RunSlot | None:
        """Its slot, which all jobs of a bulk call share; None if the handler is done."""
        with _making:
            if self.own_slot is None and self._calling:
                self.own_slot = self._new_slot() if self.bulk_call is None else self.bulk_call.own_slot
            return self.own_slot

    def _new_slot(self) -> RunSlot:
        owned = self.owned
        return RunSlot(self._slots.yielded, self._loop, owned.handler.mode, owned.job.spec.task, self._gone)
