"""Counts how the attempts of a worker end, and logs those that did not succeed."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from headrace.core.account import account, name_of
from headrace.core.outcome import Failed, Released, Snoozed, TimedOut
from headrace.core.status import Outcome
from headrace.runtime.clock import Clock

if TYPE_CHECKING:
    from headrace.worker.owned_job import OwnedJob

__all__ = ["Tally"]

_log = logging.getLogger("headrace.worker")


class Tally:
    """Counts; one line in the log for each attempt that failed, and for starts and ends where those are asked for."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.done = self.failed = self.released = self.stale = 0
        self.talks = False
        """Whether starts and ends are logged: looked up now and then, and not for every job."""
        self.look()

    def look(self) -> None:
        """Look whether starts and ends are logged."""
        self.talks = _log.isEnabledFor(logging.DEBUG)

    def begins(self, owned: OwnedJob) -> None:
        """Log that an attempt begins, if that log level is on."""
        job = owned.job
        _log.debug("%s: attempt %d of %d starts", name_of(job), job.charged + 1, job.max_attempts)

    def ended(self, owned: OwnedJob, *, stored: bool) -> None:
        """Count an attempt whose end is stored or never will be, and log how it ended."""
        ending = owned.ending
        if not stored:
            self.stale += 1
        elif isinstance(ending, Failed | TimedOut):
            self.failed += 1
            if _log.isEnabledFor(logging.WARNING):
                outcome = Outcome.TIMED_OUT if isinstance(ending, TimedOut) else Outcome.FAILED
                _log.warning("%s", account(owned.job, outcome, self._clock.now()))
            return
        elif isinstance(ending, Released):
            self.released += 1
        else:
            self.done += 1
        if self.talks:
            self._say(owned, stored)

    def _say(self, owned: OwnedJob, stored: bool) -> None:
        job, began, ended = owned.job, owned.started_at, owned.ended_at
        if not stored:
            what = "ended, which is not on record"
        elif isinstance(owned.ending, Released):
            what = f"handed back, {job.status} now"
        elif isinstance(owned.ending, Snoozed):
            what = f"snoozed for {owned.ending.delay:g} s"
        else:
            what = "completed"
        took = "" if began is None or ended is None else f" after {max(0.0, (ended - began).total_seconds()):.3f} s"
        _log.debug("%s: %s%s", name_of(job), what, took)
