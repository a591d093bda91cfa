"""Totals of finished attempts: those since the last beat, and for metrics those since the process began.

A worker adds up on its loop, its heartbeat takes from a thread of its own: hence the lock. Totals are handed in with a
beat, and repeated under its number until a beat was acknowledged. Those for metrics only grow.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from uuid import UUID

from headrace.core.attempt import Attempt
from headrace.core.job import Job
from headrace.core.stats.depth import MAX_DEPTH_QUEUES, depth_rows
from headrace.core.stats.errors import add_error
from headrace.core.stats.histogram import BOUNDS
from headrace.core.stats.rollup import OTHER, SLOTS, Rollup, Step, Totals, begin_of, merged
from headrace.core.status import Outcome, Status

__all__ = ["MAX_GATHERED_JOBS", "MAX_PAIRS", "MEASURED", "FinishTotals", "LifetimeTotals", "Pair"]


Pair = tuple[str, str]
"""A task and a queue."""

MAX_PAIRS = 200
"""Maximum number of pairs of task and queue that are distinguished; of more than that, the queue is ``OTHER``."""

MAX_GATHERED_JOBS = 100
"""How many completed jobs are kept before they are added up: adding one by one would take longer."""
_MAX_DEPTH_ROWS = 10 * (MAX_DEPTH_QUEUES + 1)
"""Of ten notes, if the store takes no beat for so long."""
MEASURED = frozenset({Outcome.FAILED, Outcome.TIMED_OUT})
"""Of what did not complete: how long it waited and ran is of interest."""
_WRONG = frozenset({Status.RETRYING, Status.FAILED})
"""Statuses after an attempt that left an error with the job; in others the error is of an attempt before."""


class LifetimeTotals:
    """Attempts, and jobs that became dead letters, by task and queue. Threads that share it lock it."""

    def __init__(self) -> None:
        self._named: set[Pair] = set()
        """The pairs that are distinguished, for good: a count that was shown under a name must not move to another."""
        self._totals: dict[Pair, Totals] = {}
        self._dead: dict[Pair, int] = {}

    def add(self, counted: Mapping[Pair, Totals]) -> None:
        """Count these as well."""
        self._merge(self._totals, counted)

    def died(self, task: str, queue: str) -> None:
        """Count a job that an attempt left ``failed``."""
        name = self._name((task, queue))
        self._dead[name] = self._dead.get(name, 0) + 1

    def all(self, pending: Iterable[Mapping[Pair, Totals]]) -> tuple[dict[Pair, Totals], dict[Pair, int]]:
        """Everything, those included that are still to be added; attempts, and dead letters."""
        totals = dict[Pair, Totals]()
        self._merge(totals, self._totals)
        for counted in pending:
            self._merge(totals, counted)
        return totals, dict(self._dead)

    def _merge(self, into: dict[Pair, Totals], counted: Mapping[Pair, Totals]) -> None:
        for pair, totals in counted.items():
            into.setdefault(self._name(pair), Totals()).merge(totals)

    def _name(self, pair: Pair) -> Pair:
        if pair in self._named or pair[1] == OTHER:
            return pair
        if len(self._named) >= MAX_PAIRS:
            return pair[0], OTHER
        self._named.add(pair)
        return pair


_MINUTE = timedelta(minutes=1)
_IDLE = timedelta(minutes=5)
"""The shortest time over which metrics are shown: each has a report of an idle worker."""
_NEVER = datetime(1970, 1, 1, tzinfo=UTC)

_Series = dict[tuple[str, str], Totals]
"""By task and queue."""


class FinishTotals:
    """Attempts that ended, by minute, task and queue.

    What completes is only noted, and added up now and then: so a job costs a few hundred nanoseconds.
    """

    def __init__(self, rising: Callable[[int], int] = lambda last: last + 1) -> None:
        """``rising``: the number of the next report, given the last one; for a process that is not the only one to
        hand in under an id."""
        self._rising = rising
        self.completed: list[tuple[Job, datetime, datetime]] = []
        """Jobs completed by an attempt, with when that began and ended; not added up yet. To be added to on the thread
        that gathers."""
        self._lock = threading.Lock()
        self._minutes: dict[datetime, _Series] = {}
        self._number = self._tries = 0
        self._handed_in: tuple[Rollup, ...] = ()
        """The last report, until it is acknowledged, and how often it was sent."""
        self._sender: UUID | None = None
        """The worker that sent it, by its id; None: no store can have it."""
        self.stale = 0
        """Attempts that ended too late to count."""
        self._slots, self._busy = 0.0, 0.0
        """Seconds of slots, and of those at work, that are not handed in yet."""
        self._slots_since: datetime | None = None
        self._slots_at = _NEVER
        self._deep: tuple[Rollup, ...] = ()
        """The depths of queues that are not handed in yet."""
        self._ever: LifetimeTotals | None = None
        """All that was ever counted, where metrics need that."""

    def follow(self) -> None:
        """From now on keep all that is counted, too, for metrics."""
        with self._lock:
            self._ever = self._ever or LifetimeTotals()

    def ever(self) -> tuple[dict[Pair, Totals], dict[Pair, int]]:
        """All that was counted since ``follow``, without what completed since the last ``gather``: attempts, and jobs
        that became dead letters; on any thread."""
        with self._lock:
            return ({}, {}) if self._ever is None else self._ever.all(self._minutes.values())

    def gather(self) -> None:
        """Add up what has completed."""
        if not self.completed:
            return
        done = self.completed.copy()
        self.completed.clear()
        with self._lock:
            # A loop with nothing but local names: it is run for every job.
            begin = end = _NEVER
            totals, last = Totals(), None
            waits, runs = totals.waited.counts, totals.ran.counts
            count, waited, ran, first, queued = 0, 0.0, 0.0, 0, 0.0
            for job, began, at in done:
                if job.spec is not last or job.moved_to is not None or not begin <= at < end:
                    totals.add(count, waited, ran, first, queued)
                    # A job that shares the spec of one that was moved is in another queue.
                    begin, last = begin_of(at, Step.MINUTE), job.spec if job.moved_to is None else None
                    end, totals = begin + _MINUTE, self._totals(begin, job.task, job.queue)
                    waits, runs = totals.waited.counts, totals.ran.counts
                    count, waited, ran, first, queued = 0, 0.0, 0.0, 0, 0.0
                count += 1
                if job.attempt == 1 and (assigned := job.assigned_at) is not None:
                    first += 1
                    seconds = (assigned - job.arrived_at).total_seconds()
                    if seconds > 0.0:  # unless a clock was set
                        queued += seconds
                elif job.charged > 1:
                    totals.repeated += 1
                seconds = (began - job.arrived_at).total_seconds()
                if seconds < 0.0:  # a clock was set
                    seconds = 0.0
                place = bisect_left(BOUNDS, seconds)
                waits[place] = waits.get(place, 0) + 1
                waited += seconds
                seconds = (at - began).total_seconds()
                if seconds < 0.0:
                    seconds = 0.0
                place = bisect_left(BOUNDS, seconds)
                runs[place] = runs.get(place, 0) + 1
                ran += seconds
            totals.add(count, waited, ran, first, queued)

    def taken(self, attempt: Attempt, job: Job) -> None:
        """Count an attempt as it is on record; ``job`` is as stored after it."""
        if attempt.outcome is not Outcome.COMPLETED:
            took, assigned = attempt.processing_time, attempt.assigned_at
            self.ended(job, attempt.outcome, attempt.started_at, attempt.finished_at, assigned, took)
            return
        began = attempt.started_at or attempt.finished_at
        if attempt.processing_time is not None:  # what the worker has measured counts, not what the store saw
            self._took_so_long(job, began, attempt.finished_at, attempt.processing_time)
            return
        self.completed.append((job, began, attempt.finished_at))
        if len(self.completed) >= MAX_GATHERED_JOBS:
            self.gather()

    def _took_so_long(self, job: Job, began: datetime, at: datetime, seconds: float) -> None:
        """Count an attempt that completed its job and took so many seconds."""
        with self._lock:
            totals = self._totals(begin_of(at, Step.MINUTE), job.task, job.queue)
            totals.completed += 1
            totals.processed += seconds
            totals.repeated += job.charged > 1
            _count_first(totals, job, job.assigned_at)
            totals.waited.add(max(0.0, (began - job.arrived_at).total_seconds()))
            totals.ran.add(seconds)

    def ended(
        self,
        job: Job,
        outcome: Outcome,
        began: datetime | None,
        at: datetime,
        assigned: datetime | None = None,
        took: float | None = None,
    ) -> None:
        """Count an attempt that did not complete its job; ``job`` is as stored after it. ``assigned``: when its worker
        got it; ``took``: the seconds that its worker has measured."""
        with self._lock:
            totals = self._totals(begin_of(at, Step.MINUTE), job.task, job.queue)
            if job.status is Status.FAILED:
                totals.died += 1
                totals.repeated += job.charged > 1
                if self._ever is not None:
                    self._ever.died(job.task, job.queue)
            _count_first(totals, job, assigned)
            setattr(totals, outcome.value, getattr(totals, outcome.value) + 1)
            totals.retried += job.status is Status.RETRYING
            if job.status in _WRONG and job.error is not None and job.fingerprint is not None:
                add_error(totals.errors, job.fingerprint, job.error, job.id)
            if began is not None and outcome in MEASURED:
                totals.waited.add(max(0.0, (began - job.arrived_at).total_seconds()))
                totals.ran.add(max(0.0, (at - began).total_seconds() if took is None else took))

    def occupied(self, slots: float, busy: float, at: datetime) -> None:
        """Add so many seconds of slots, and of those at work, up to this moment."""
        with self._lock:
            self._slots, self._busy, self._slots_at = self._slots + slots, self._busy + busy, at
            self._slots_since = self._slots_since or at

    def deep(self, depths: Mapping[str, int], at: datetime) -> None:
        """Note how deep these queues are now."""
        with self._lock:
            self._deep = (*self._deep, *depth_rows(depths, at))[-_MAX_DEPTH_ROWS:]

    def report(self, worker: UUID) -> tuple[int, tuple[Rollup, ...]]:
        """What this worker is to hand in now, and its number; 0: nothing.

        The last report again if it was not acknowledged, since the store keeps a number once. Under another id it would
        be kept again: what was sent under the one before is dropped, since nothing may be counted twice.
        """
        with self._lock:
            if self._sender is not None and self._sender != worker:
                self._handed_in = ()
            if not self._handed_in and (self._minutes or self._deep or self._slots_are_due):
                taken, self._minutes = self._minutes, {}
                if self._ever is not None:
                    for series in taken.values():
                        self._ever.add(series)
                self._handed_in = tuple(
                    merged(
                        Rollup(Step.MINUTE, at, task, queue, totals)
                        for at, series in taken.items()
                        for (task, queue), totals in series.items()
                    )
                )
                self._handed_in += self._slots_taken() + self._deep
                self._deep = ()
                self._number, self._tries = self._rising(self._number), 0
            if not self._handed_in:
                return 0, ()
            self._tries, self._sender = self._tries + 1, worker
            return self._number, self._handed_in

    def acknowledged(self, number: int) -> None:
        """Forget the report of this number: the store has it."""
        with self._lock:
            if number == self._number:
                self._handed_in = ()

    def refused(self) -> None:
        """Keep the report for the worker's next id: the store has declared this one dead, and kept nothing of it. One
        that was sent before may have been kept then, and is dropped."""
        with self._lock:
            if self._tries > 1:
                self._handed_in = ()
            self._tries, self._sender = 0, None

    @property
    def _slots_are_due(self) -> bool:
        """Whether the use of slots is handed in alone; seldom if all were idle: an idle worker writes little."""
        if self._slots_since is None:
            return False
        return self._slots_at - self._slots_since >= (_MINUTE if self._busy else _IDLE)

    def _slots_taken(self) -> tuple[Rollup, ...]:
        if not self._slots:
            return ()
        totals = Totals(slots=self._slots, busy=self._busy)
        self._slots, self._busy, self._slots_since = 0.0, 0.0, self._slots_at
        return (Rollup(Step.MINUTE, begin_of(self._slots_at, Step.MINUTE), SLOTS, "", totals),)

    def _totals(self, minute: datetime, task: str, queue: str) -> Totals:
        series = self._minutes.setdefault(minute, {})
        totals = series.get((task, queue))
        if totals is None:
            totals = series[task, queue] = Totals()
        return totals


def _count_first(totals: Totals, job: Job, assigned: datetime | None) -> None:
    """Count how long a job was queued, if this was its first attempt and it is known when it was assigned."""
    if job.attempt == 1 and assigned is not None:
        totals.assigned += 1
        totals.queued += max(0.0, (assigned - job.arrived_at).total_seconds())
