"""Counts how the attempts of a worker end, and logs those that did not succeed."""

from __future__ import annotations

import logging
from datetime import datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

from headrace.core.attempt import Completed, Failed, Released, Snoozed, TimedOut
from headrace.core.job import Job
from headrace.core.status import Outcome, Status
from headrace.logs import attempt_summary, labels, name_of
from headrace.runtime.clock import Clock
from headrace.runtime.totals import MAX_GATHERED_JOBS, FinishTotals

if TYPE_CHECKING:
    from headrace.worker.owned_job import OwnedJob

__all__ = ["Tally", "log_failure"]

_log = logging.getLogger("headrace.worker")


def log_failure(job: Job, outcome: Outcome, now: datetime, worker: UUID | None) -> None:
    """Log that an attempt failed, or was timed out; ``job`` is as stored after it."""
    if _log.isEnabledFor(logging.WARNING):
        _log.warning("%s", attempt_summary(job, outcome, now), extra=_labels(job, worker))


def _labels(job: Job, worker: UUID | None) -> dict[str, Any]:
    return labels(job) if worker is None else labels(job) | {"worker": str(worker)}


class Tally:
    """Counts; one line in the log for each attempt that failed, and for starts and ends at level DEBUG."""

    def __init__(self, clock: Clock, sums: FinishTotals) -> None:
        self._clock, self.sums, self._completed = clock, sums, sums.completed
        self.done = self.failed = self.released = self.stale = 0
        self.worker: UUID | None = None
        """The worker of these attempts: a job that has ended has no worker any more."""
        self.talks = False
        """Whether starts and ends are logged: checked now and then, and not for every job."""
        self.look()

    def look(self) -> None:
        """Check whether starts and ends are logged."""
        self.talks = _log.isEnabledFor(logging.DEBUG)

    def begins(self, owned: OwnedJob) -> None:
        """Log that an attempt begins, if that log level is on."""
        job = owned.job
        _log.debug(
            "%s: attempt %d of %d starts",
            name_of(job),
            job.charged + 1,
            job.max_attempts,
            extra=labels(job, job.attempt + 1),
        )

    def ended(self, owned: OwnedJob, *, stored: bool) -> None:
        """Count an attempt when its end is stored or never will be, and log how it ended."""
        ending = owned.ending
        if not stored:
            self.stale += 1
            self.sums.stale += 1
        elif type(ending) is Completed:  # most of them: each check before this one runs for every job
            self.done += 1
            if (began := owned.started_at) is not None and (at := owned.ended_at) is not None:
                self._completed.append((owned.job, began, at))
                if len(self._completed) >= MAX_GATHERED_JOBS:
                    self.sums.gather()
        elif isinstance(ending, Failed | TimedOut):
            self.failed += 1
            outcome = Outcome.TIMED_OUT if isinstance(ending, TimedOut) else Outcome.FAILED
            self._add(owned, outcome)
            log_failure(owned.job, outcome, self._clock.now(), self.worker)
            return
        elif isinstance(ending, Released):
            self.released += 1
            self._add(owned, Outcome.RELEASED)
        elif isinstance(ending, Snoozed):
            self.done += 1
            self._add(owned, Outcome.SNOOZED)
        if self.talks:
            self._say(owned, stored)

    def _add(self, owned: OwnedJob, outcome: Outcome) -> None:
        """Add up an attempt that did not complete its job."""
        outcome = Outcome.CANCELLED if owned.job.status is Status.CANCELLED else outcome
        ended_at = owned.ended_at or self._clock.now()
        self.sums.ended(owned.job, outcome, owned.started_at, ended_at, owned.assigned_at)

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
        _log.debug("%s: %s%s", name_of(job), what, took, extra=_labels(job, self.worker))
