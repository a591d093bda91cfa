"""Sums: what a worker, or whoever finishes attempts for others, adds up between two beats.

A worker adds on its loop, its heartbeat takes from a thread of its own: hence the lock. What is counted here is handed
in with a beat, and repeated under its number until a beat was acknowledged.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from datetime import UTC, datetime, timedelta

from headrace.core.histogram import BOUNDS, Histogram
from headrace.core.job import Attempt, Job
from headrace.core.rollup import Rollup, Step, Totals, begin_of, merged
from headrace.core.status import Outcome, Status

__all__ = ["Sums"]

_MINUTE = timedelta(minutes=1)

_Series = dict[tuple[str, str], Totals]
"""By task and queue."""


class Sums:
    """Attempts that ended, by minute, task and queue."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._minutes: dict[datetime, _Series] = {}
        self._series: _Series = {}
        """Those of one minute, which begins and ends then."""
        self._begin = self._end = datetime(1970, 1, 1, tzinfo=UTC)
        self._number = self._tries = 0
        self._handed_in: tuple[Rollup, ...] = ()
        """The last report, until it is acknowledged, and how often it was sent."""

    def completed(self, task: str, queue: str, at: datetime, waited: float, ran: float) -> None:
        """Count an attempt that completed its job at this moment, after so many seconds."""
        # Called for every job: no calls, and nothing is made that is there.
        with self._lock:
            if not self._begin <= at < self._end:
                self._turn(at)
            totals = self._series.get((task, queue))
            if totals is None:
                totals = self._series[task, queue] = Totals()
            totals.completed += 1
            counts, place = totals.waited.counts, bisect_left(BOUNDS, waited)
            counts[place] = counts.get(place, 0) + 1
            totals.waited.seconds += waited
            counts, place = totals.ran.counts, bisect_left(BOUNDS, ran)
            counts[place] = counts.get(place, 0) + 1
            totals.ran.seconds += ran

    def ended(
        self,
        task: str,
        queue: str,
        outcome: Outcome,
        at: datetime,
        waited: float | None = None,
        ran: float | None = None,
        *,
        retried: bool = False,
    ) -> None:
        """Count an attempt that ended in any way; None: how long it took says nothing."""
        with self._lock:
            if not self._begin <= at < self._end:
                self._turn(at)
            totals = self._series.setdefault((task, queue), Totals())
            setattr(totals, outcome.value, getattr(totals, outcome.value) + 1)
            totals.retried += retried
            _measure(totals.waited, waited)
            _measure(totals.ran, ran)

    def taken(self, attempt: Attempt, job: Job) -> None:
        """Count an attempt that somebody else ended than the run itself; ``job`` is as stored after that."""
        waited = ran = None
        if attempt.outcome is Outcome.TIMED_OUT and (began := attempt.started_at) is not None:
            waited, ran = (began - job.arrived_at).total_seconds(), (attempt.finished_at - began).total_seconds()
        retried = job.status is Status.RETRYING
        self.ended(job.task, job.queue, attempt.outcome, attempt.finished_at, waited, ran, retried=retried)

    def report(self) -> tuple[int, tuple[Rollup, ...]]:
        """What is to be handed in now, and its number: the last report again if it was not acknowledged; 0: nothing."""
        with self._lock:
            if not self._handed_in and self._minutes:
                taken, self._minutes, self._end = self._minutes, {}, self._begin
                self._handed_in = tuple(
                    merged(
                        Rollup(Step.MINUTE, at, task, queue, totals)
                        for at, series in taken.items()
                        for (task, queue), totals in series.items()
                    )
                )
                self._number, self._tries = self._number + 1, 0
            if not self._handed_in:
                return 0, ()
            self._tries += 1
            return self._number, self._handed_in

    def acknowledged(self, number: int) -> None:
        """Forget the report of this number: the store has it."""
        with self._lock:
            if number == self._number:
                self._handed_in = ()

    def refused(self) -> None:
        """Keep the report for the worker's next id: the store has declared this one dead, and kept nothing of it.

        One that was sent before may have been kept then; it is dropped, since nothing may be counted twice.
        """
        with self._lock:
            if self._tries > 1:
                self._handed_in = ()
            self._tries = 0

    def _turn(self, at: datetime) -> None:
        self._begin = begin_of(at, Step.MINUTE)
        self._end = self._begin + _MINUTE
        self._series = self._minutes.setdefault(self._begin, {})


def _measure(histogram: Histogram, seconds: float | None) -> None:
    if seconds is not None:
        histogram.add(max(0.0, seconds))
