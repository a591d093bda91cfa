"""The signs of a run with a heartbeat: progress, lines of the log, items, steps, ``ctx.heartbeat()``.

They are written as changes of ``Verb.PROGRESS`` that move the deadline of the job, a few in the time of one heartbeat.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from datetime import timedelta

from headrace.core.change import Change
from headrace.core.job import Job
from headrace.core.lifecycle.execution import sign
from headrace.worker.owned_job import OwnedJob

__all__ = ["SignThrottle", "Signs"]

_SIGNS_PER_HEARTBEAT = 3
"""How many signs are written in the time of one heartbeat."""
_OWN_TIMER_SECONDS = 10.0
"""Seconds up to which a heartbeat has a timer of its own; longer ones are checked when the worker ticks."""
_DOUBT_SECONDS = 0.1
"""Seconds between two findings that no sign came."""


class SignThrottle:
    """Remembers the last sign, and says when it may be written; all times are monotonic."""

    __slots__ = ("_written_at", "heartbeat", "last_at")

    def __init__(self, heartbeat: float, now: float) -> None:
        """``now``: the start, which is the first sign."""
        self.heartbeat = heartbeat
        self.last_at = self._written_at = now
        """When the last sign was given, and until when signs are on record."""

    @property
    def is_unwritten(self) -> bool:
        """Whether the last sign is still to be written."""
        return self.last_at > self._written_at

    def wait(self, now: float) -> float:
        """Seconds until the last sign may be written."""
        return self._written_at + self.heartbeat / _SIGNS_PER_HEARTBEAT - now

    def left(self, now: float) -> float:
        """Seconds until the run has timed out, if no further sign comes."""
        return self.last_at + self.heartbeat - now

    def written(self, now: float) -> None:
        """Note that the signs up to now are stored, by themselves or with a report of progress."""
        self._written_at = now


class Signs:
    """Writes the signs of one run, and finds out when they are missing."""

    __slots__ = ("_doubted", "_loop", "_missing", "_owned", "_timer", "_writing", "throttle")

    def __init__(
        self, owned: OwnedJob, loop: asyncio.AbstractEventLoop, heartbeat: float, missing: Callable[[], None]
    ) -> None:
        """To be made on the loop, when the handler is called; ``missing`` is called there if no sign comes."""
        self._owned, self._loop, self._missing = owned, loop, missing
        self.throttle = SignThrottle(heartbeat, owned.writer.host.clock.monotonic())
        self._doubted = self._writing = False
        self._timer: asyncio.TimerHandle | None = None
        if heartbeat <= _OWN_TIMER_SECONDS:
            self._timer = loop.call_later(heartbeat, self._check)

    def cancel(self) -> None:
        """Miss nothing any more: the handler is done."""
        self._missing = _nothing
        if self._timer is not None:
            self._timer.cancel()

    # -- missing ones

    def tick(self) -> None:
        """Check whether signs are missing, if no timer does."""
        if self._timer is None:
            self._check()

    def _check(self) -> None:
        left = self.throttle.left(self._owned.writer.host.clock.monotonic())
        if left <= 0 and self._doubted:
            self._missing()
            return
        # Not at the first finding: where the loop stood still, its handlers must first have their turn.
        self._doubted = left <= 0
        if self._timer is not None:
            self._timer = self._loop.call_later(_DOUBT_SECONDS if self._doubted else left, self._check)

    # -- those that were given

    def note(self) -> None:
        """Note a sign that is written otherwise: a report of progress; on any thread."""
        self.throttle.last_at = self._owned.writer.host.clock.monotonic()

    def give(self) -> None:
        """Give a sign, which is written as soon as it may be; on any thread."""
        self.note()
        self.write()

    def write(self) -> None:
        """Write the last sign as soon as it may be, if it is not stored then; on any thread."""
        if not self._writing:
            self._writing = True  # until it is stored: one at a time
            with contextlib.suppress(RuntimeError):  # the loop is closed: nothing is written any more
                self._loop.call_soon_threadsafe(self._schedule)

    def _schedule(self) -> None:
        if self._owned.ending is not None or not self.throttle.is_unwritten:
            self._writing = False  # a report of progress said it, or it does not matter any more
        elif (wait := self.throttle.wait(self._owned.writer.host.clock.monotonic())) > 0:
            self._loop.call_later(wait, self._schedule)
        else:
            self._write()

    def _write(self) -> None:
        clock, rules = self._owned.writer.host.clock, self._owned.writer.engine.rules
        monotonic = clock.monotonic()
        at = clock.now() - timedelta(seconds=monotonic - self.throttle.last_at)
        sent = False

        def decide(job: Job) -> Change | None:
            nonlocal sent
            # A report that was on its way may have said it.
            sent = self.throttle.is_unwritten and self.throttle.wait(clock.monotonic()) <= 0
            return sign(job, at, rules) if sent else None

        def written(stored: bool) -> None:
            if stored and sent:
                self.throttle.written(monotonic)
            self._writing = stored and self.throttle.is_unwritten  # another one came meanwhile
            if self._writing:
                self._schedule()

        self._owned.write_start()
        self._owned.write(decide, written)


def _nothing() -> None:
    pass
