"""What one run writes: the entries it adds to its job, in order, and its progress, the newest and not too often.

One write is under way at a time, and none before the start of the run is on record.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from contextvars import Context
from datetime import datetime
from functools import partial

from headrace.core.attempt import Progress
from headrace.core.defaults import MAX_LOG_LINES
from headrace.core.entry import Append, Entry, Kind, log_data
from headrace.core.job import Job
from headrace.core.lifecycle.execution import progress
from headrace.errors import HeadraceError, Stopped
from headrace.runtime.writes.writer import Writer
from headrace.worker.execution.signs import Signs
from headrace.worker.owned_job import OwnedJob

__all__ = ["EntryWriter", "ProgressWriter", "ReportThrottle", "Started"]


_log = logging.getLogger("headrace.worker")

MAX_WRITE_ENTRIES, MAX_WRITE_BYTES = 1000, 1024 * 1024
"""The maximum of one write; as much again may wait before the handler has to wait, too."""


Started = Callable[[], Awaitable[Job | None]]
"""Stores the start of the run; the job as it is then, or None if the worker does not own it any more."""


class EntryWriter:
    """Writes the entries of one run, on the loop of its worker."""

    def __init__(
        self,
        writer: Writer,
        attempt: int,
        started: Started,
        loop: asyncio.AbstractEventLoop,
        added: Callable[[], None] | None = None,
    ) -> None:
        """May be made on any thread; what it does, unless it says otherwise, it does on the loop. ``added`` is called
        with each entry."""
        self.writer, self.attempt, self.loop = writer, attempt, loop
        self._started, self._added = started, added
        self._numbers = dict.fromkeys(Kind, 0)
        self._lines: deque[tuple[str, datetime]] = deque()
        self._logged = self._dropped = 0
        self._waiting: deque[Entry] = deque()
        self._bytes = 0
        self._writing: asyncio.Task[None] | None = None
        self._moved = asyncio.Event()
        """Set whenever there may be room again."""
        self._error: HeadraceError | None = None
        """Why nothing more is written."""
        self.position = 0
        """How many items of the stream earlier attempts have stored."""
        self.resumes = False
        """Whether the handler read that position, and so goes on from there."""
        self.streamed = False
        """Whether the stream of this attempt has begun."""
        self.steps: dict[str, str] | None = None
        """The results of steps by name, of this attempt and earlier ones, once they were read."""
        self.stepped: set[str] = set()
        """The names of the steps that the handler has come to."""

    def number_from(self, kind: Kind, number: int) -> None:
        """Number the next entry of this kind after this one."""
        self._numbers[kind] = number

    def add(self, kind: Kind, data: str, name: str | None = None, *, at: datetime | None = None) -> None:
        """Add an entry, which is written soon."""
        self._numbers[kind] += 1
        self._take(Entry(kind, self.attempt, self._numbers[kind], data, at or self.writer.host.clock.now(), name))

    def begin_anew(self) -> None:
        """Add an entry that says that the stream of this attempt replaces those of earlier ones."""
        self._take(Entry(Kind.ITEM, self.attempt, 0, "null", self.writer.host.clock.now()))

    def _take(self, entry: Entry) -> None:
        if self._error is not None:
            return
        if self._added is not None:
            self._added()
        self._waiting.append(entry)
        self._bytes += len(entry.data)
        if self._writing is None:
            # In a context of its own, because the handler's context variables do not concern this task.
            self._writing = self.loop.create_task(self._write(), name="headrace-entries", context=Context())

    def log(self, data: str) -> None:
        """Add a line to the log, if the log is not full; may be called from any thread."""
        if self._logged >= MAX_LOG_LINES:
            self._dropped += 1
            return
        self._logged += 1
        self._lines.append((data, self.writer.host.clock.now()))
        if len(self._lines) == 1:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nothing is written any more
                self.loop.call_soon_threadsafe(self._take_lines)

    def _take_lines(self) -> None:
        while self._lines:
            data, at = self._lines.popleft()
            self.add(Kind.LOG, data, at=at)

    async def finish(self) -> None:
        """Write everything, now that the attempt is over, and how many lines of its log were not stored. Raises
        nothing: each caller that needs to know what was not written knows it already."""
        self._take_lines()
        if self._dropped:
            message = f"{self._dropped} more lines were not kept: the log of an attempt has {MAX_LOG_LINES}"
            self.add(Kind.LOG, log_data("WARNING", "headrace", message))
            self._dropped = 0  # said
        with contextlib.suppress(HeadraceError):
            await self.flush()

    async def room(self) -> None:
        """Wait while as much is waiting as one write takes; raises like ``flush``."""
        while self._error is None and (len(self._waiting) >= MAX_WRITE_ENTRIES or self._bytes >= MAX_WRITE_BYTES):
            self._moved.clear()
            await self._moved.wait()
        if self._error is not None:
            raise self._error

    async def flush(self) -> None:
        """Wait until everything that was added is durable.

        :raises Stopped: the job has another owner by now
        :raises EngineError: the store does not take it
        """
        self._take_lines()
        while self._writing is not None:
            await asyncio.shield(self._writing)
        if self._error is not None:
            raise self._error

    async def _write(self) -> None:
        try:
            job = await self._started()
            while self._waiting and self._error is None:
                entries = self._next()
                if (
                    job is None
                    or job.worker is None
                    or not await self.writer.append(Append(job.id, job.worker, job.epoch, entries))
                ):
                    self._error = Stopped("lost")
        except HeadraceError as error:
            self._error = error
        except Exception as error:  # a bug in headrace: every waiting caller must get an error
            _log.exception("what a run had to add was not written")
            self._error = HeadraceError(f"what the run had to add was not written: {error!r}")
        finally:
            self._writing = None
            if self._error is not None:
                self._waiting.clear()
                self._bytes = 0
            self._moved.set()

    def _next(self) -> tuple[Entry, ...]:
        entries: list[Entry] = []
        size = 0
        while self._waiting and len(entries) < MAX_WRITE_ENTRIES and (not entries or size < MAX_WRITE_BYTES):
            entry = self._waiting.popleft()
            size += len(entry.data)
            entries.append(entry)
        self._bytes -= size
        self._moved.set()  # more may come while these are being written
        return tuple(entries)


_REPORT_SECONDS = 0.25
"""Seconds between two reports that are written."""


class ReportThrottle:
    """Keeps the newest report of a run, and says when it may be written."""

    def __init__(self) -> None:
        self.newest: Progress | None = None
        """The report that is still to be written."""
        self._taken_at = float("-inf")

    def wait(self, now: float) -> float:
        """Seconds until the newest may be written; ``now`` is monotonic."""
        return self._taken_at + _REPORT_SECONDS - now

    def take(self, now: float) -> Progress | None:
        """The newest report, which is written now; None: it is written already."""
        report, self.newest = self.newest, None
        self._taken_at = self._taken_at if report is None else now
        return report


class ProgressWriter:
    """Writes what one run reports of its progress."""

    def __init__(self, owned: OwnedJob, loop: asyncio.AbstractEventLoop, signs: Signs | None = None) -> None:
        """``signs``: those of a job with a heartbeat, of which a report is one."""
        self._owned, self._loop, self._signs = owned, loop, signs
        self._reports = ReportThrottle()
        self._reporting = False

    def report(self, report: Progress) -> None:
        """Write this report soon, unless a newer one comes first; called by the handler, on any thread."""
        fresh, self._reports.newest = self._reports.newest is None, report
        if fresh:
            self._loop.call_soon_threadsafe(self._schedule)

    def _schedule(self) -> None:
        if self._reporting:
            return  # one at a time: what a slow store has not taken yet must not pile up before the end
        if (wait := self._reports.wait(self._loop.time())) > 0:
            self._loop.call_later(wait, self.write)
        else:
            self.write()

    def write(self) -> None:
        """Write the newest report now, unless the attempt is over."""
        report = self._reports.take(self._loop.time())
        if report is None or self._owned.ending is not None:
            return
        self._reporting = True
        clock, rules = self._owned.writer.host.clock, self._owned.writer.engine.rules
        self._owned.write_start()
        reported = partial(self._reported, clock.monotonic())
        self._owned.write(lambda job: progress(job, clock.now(), report, rules), reported)

    def _reported(self, sent_at: float, stored: bool) -> None:
        self._reporting = False
        if self._signs is not None and stored:
            self._signs.throttle.written(sent_at)
        elif self._signs is not None:
            self._signs.write()  # a report that cannot be stored is a sign all the same
        if self._reports.newest is not None and self._owned.kept:
            self._schedule()
