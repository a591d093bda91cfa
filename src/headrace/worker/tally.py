"""How the attempts of a worker end: counted, and said in its log where they did not succeed."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from headrace.clock import Clock
from headrace.core.account import account, name_of
from headrace.core.outcome import Failed, Released, Snoozed, TimedOut
from headrace.core.status import Outcome

if TYPE_CHECKING:
    from headrace.worker.run import Run

__all__ = ["Tally"]

_log = logging.getLogger("headrace.worker")


class Tally:
    """Counts; one line in the log for each attempt that failed, and for starts and ends where those are asked for."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.done = self.failed = self.released = self.stale = 0
        self.talks = False
        """Whether anybody hears of starts and ends: looked up now and then, and not for every job."""
        self.look()

    def look(self) -> None:
        """See who listens."""
        self.talks = _log.isEnabledFor(logging.DEBUG)

    def begins(self, run: Run) -> None:
        """An attempt begins, and somebody wants to know."""
        job = run.owned.job
        _log.debug("%s: attempt %d of %d starts", name_of(job), job.charged + 1, job.max_attempts)

    def ended(self, run: Run, *, stored: bool) -> None:
        """The end of an attempt is stored, or never will be."""
        ending = run.ending
        if not stored:
            self.stale += 1
        elif isinstance(ending, Failed | TimedOut):
            self.failed += 1
            if _log.isEnabledFor(logging.WARNING):
                outcome = Outcome.TIMED_OUT if isinstance(ending, TimedOut) else Outcome.FAILED
                _log.warning("%s", account(run.owned.job, outcome, self._clock.now()))
            return
        elif isinstance(ending, Released):
            self.released += 1
        else:
            self.done += 1
        if self.talks:
            self._say(run, stored)

    def _say(self, run: Run, stored: bool) -> None:
        job, began = run.owned.job, run.started_at
        if not stored:
            what = "ended, which is not on record"
        elif isinstance(run.ending, Released):
            what = f"handed back, {job.status} now"
        elif isinstance(run.ending, Snoozed):
            what = f"snoozed for {run.ending.delay:g} s"
        else:
            what = "completed"
        took = "" if began is None else f" after {max(0.0, (run.now - began).total_seconds()):.3f} s"
        _log.debug("%s: %s%s", name_of(job), what, took)
