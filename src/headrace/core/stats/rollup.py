"""Rollups: what workers finished, added up by task, queue and time; minutes become hours, and hours days.

A worker adds up the attempts that it finishes (``runtime/totals.py``) and sends the sums with a beat. Every count is in
exactly one row, and a row only ever moves to a coarser step: so the sum stays the same however often any process
regroups rows. What a worker had not sent when it crashed is missing: at most one beat's worth.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from enum import StrEnum

import msgspec

from headrace.core.defaults import MAX_STATS_SERIES, STATS_RETENTION
from headrace.core.stats.errors import ErrorSum, commonest
from headrace.core.stats.histogram import Histogram
from headrace.core.stats.own_tasks import is_own

__all__ = [
    "COUNTS",
    "DEPTH",
    "OTHER",
    "SLOTS",
    "STEP_RETENTION",
    "Rollup",
    "Step",
    "Totals",
    "begin_of",
    "concerns",
    "due_before",
    "merged",
    "parts_of",
    "regrouped",
]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Step(StrEnum):
    """The time span of one row."""

    MINUTE = "minute"
    HOUR = "hour"
    DAY = "day"

    @property
    def seconds(self) -> int:
        """How long it is."""
        return _SECONDS[self]


_SECONDS = {Step.MINUTE: 60, Step.HOUR: 3600, Step.DAY: 86400}

STEP_RETENTION = {Step.MINUTE: timedelta(hours=6), Step.HOUR: timedelta(days=7)}
"""How long rows stay minutes, and hours, before they become the next step."""
OTHER = "(other)"
"""The task and the queue of the rest beyond ``MAX_STATS_SERIES``."""
SLOTS = "headrace.slots"
"""The task of a row that says how busy the slots of workers were, and counts no attempts; it has no queue."""

DEPTH = "headrace.depth"
"""The task of a row that says how many jobs a queue had queued, and counts no attempts; without a queue, it counts how
often that was noted."""


class Totals(msgspec.Struct, array_like=True):
    """Attempts by their outcome, and how long they waited and ran; sums that may still grow."""

    completed: int = 0
    failed: int = 0
    timed_out: int = 0
    lost: int = 0
    snoozed: int = 0
    released: int = 0
    cancelled: int = 0
    retried: int = 0
    """How many of those that failed, timed out or were lost are tried again."""
    waited: Histogram = msgspec.field(default_factory=Histogram)
    """From when the job could be claimed until its handler was called."""
    ran: Histogram = msgspec.field(default_factory=Histogram)
    """From then on until the handler returned."""
    died: int = 0
    """Jobs that an attempt left failed."""
    repeated: int = 0
    """Of the jobs that completed or failed, those that needed more than one charged attempt."""
    assigned: int = 0
    """First attempts of jobs, as far as it is known when the job was assigned."""
    queued: float = 0.0
    """Seconds that those waited, from when the job could be claimed until it was assigned."""
    processed: float = 0.0
    """Seconds that the attempts took which completed their jobs."""
    slots: float = 0.0
    """Of ``SLOTS``: seconds of all slots together."""
    busy: float = 0.0
    """Of ``SLOTS``: seconds of those in which a slot was at work."""
    errors: dict[str, ErrorSum] = {}
    """By fingerprint, the commonest errors of the attempts that failed, timed out or were lost."""
    notes: int = 0
    """Of ``DEPTH``: how often the depths of queues were noted."""
    depth: float = 0.0
    """Of ``DEPTH``: the sum of the depths that were noted."""

    @property
    def attempts(self) -> int:
        """All attempts that are counted."""
        return self.completed + self.failed + self.timed_out + self.lost + self.snoozed + self.released + self.cancelled

    def add(self, completed: int, waited: float, ran: float, assigned: int, queued: float) -> None:
        """Add so many that completed, the sums of their seconds, which the histograms have by buckets, and how many of
        them were first attempts, with the seconds until those were assigned."""
        self.completed += completed
        self.waited.seconds += waited
        self.ran.seconds += ran
        self.processed += ran
        self.assigned += assigned
        self.queued += queued

    def merge(self, other: Totals) -> None:
        """Add the counts and durations of the other."""
        self.tally(other)
        self.waited.merge(other.waited)
        self.ran.merge(other.ran)
        self.died += other.died
        self.repeated += other.repeated
        self.assigned += other.assigned
        self.queued += other.queued
        self.processed += other.processed
        self.slots += other.slots
        self.busy += other.busy
        if other.errors:
            self.errors = commonest(self.errors, other.errors)
        self.notes += other.notes
        self.depth += other.depth

    def tally(self, other: Totals) -> None:
        """Add its counts, and not its durations."""
        for name in COUNTS:
            setattr(self, name, getattr(self, name) + getattr(other, name))


COUNTS = ("completed", "failed", "timed_out", "lost", "snoozed", "released", "cancelled", "retried")
"""The names of the counts of attempts."""


class Rollup(msgspec.Struct, array_like=True):
    """What ended of one task in one queue within one minute, hour or day."""

    step: Step
    at: datetime
    """When that began, in UTC."""
    task: str
    queue: str
    totals: Totals

    @property
    def until(self) -> datetime:
        """When it was over."""
        return self.at + timedelta(seconds=self.step.seconds)


def begin_of(moment: datetime, step: Step) -> datetime:
    """Return the beginning of the minute, hour or day that a moment is in."""
    return _EPOCH + timedelta(seconds=(moment - _EPOCH) // timedelta(seconds=1) // step.seconds * step.seconds)


def concerns(row: Rollup, since: datetime, until: datetime, task: str | None = None, queue: str | None = None) -> bool:
    """Return whether the row is about this task and queue (None: all) in this time."""
    if row.until <= since or row.at >= until:
        return False
    return (task is None or row.task == task) and (queue is None or row.queue == queue)


def due_before(now: datetime) -> dict[Step, datetime]:
    """Return, for each step, the moment before which rows have become the next one, or, of days, are dropped.

    An hour is formed when its last minute is old enough, so that none is half in minutes.
    """
    return {
        Step.MINUTE: begin_of(now - STEP_RETENTION[Step.MINUTE], Step.HOUR),
        Step.HOUR: begin_of(now - STEP_RETENTION[Step.HOUR], Step.DAY),
        Step.DAY: begin_of(now - STATS_RETENTION, Step.DAY),
    }


_MINUTES_READ = STEP_RETENTION[Step.MINUTE] + timedelta(hours=2)
"""The age up to which there may be rows for minutes."""
_SHORT_PART, _LONG_PART = timedelta(hours=1), timedelta(days=2)


def parts_of(since: datetime, until: datetime) -> Iterator[tuple[datetime, datetime]]:
    """Yield a time up to now, or nearly so, in parts to be read one after another: so other requests of the reader do
    not wait long.

    Where there may be rows for minutes a part is an hour, before that two days; each begins with an hour, and rows
    belong to the part in which they begin: so it does not matter when they are regrouped.
    """
    minutes = begin_of(until - _MINUTES_READ, Step.HOUR)
    while since < until:
        end = begin_of(since, Step.HOUR) + _SHORT_PART
        if since < minutes:
            end = min(begin_of(since, Step.DAY) + _LONG_PART, minutes)
        yield since, min(end, until)
        since = min(end, until)


def merged(rows: Iterable[Rollup]) -> list[Rollup]:
    """Return the same counts with one row for each step, moment, task and queue, in that order; at most
    ``MAX_STATS_SERIES`` for a moment."""
    found: dict[tuple[Step, datetime], dict[tuple[str, str], Totals]] = {}
    for row in rows:
        series = found.setdefault((row.step, row.at), {})
        totals = series.get((row.task, row.queue))
        if totals is None:
            totals = series[row.task, row.queue] = Totals()
        totals.merge(row.totals)
    return [
        Rollup(step, at, task, queue, totals)
        for (step, at), series in sorted(found.items(), key=lambda one: (one[0][0].seconds, one[0][1]))
        for (task, queue), totals in sorted(_bounded(series).items())
    ]


def regrouped(rows: Iterable[Rollup], now: datetime) -> list[Rollup]:
    """Return the same counts in the rows that they belong into by now, without those older than ``STATS_RETENTION``."""
    before = due_before(now)
    return merged(one for row in rows if (one := _moved(row, before)) is not None)


def _moved(row: Rollup, before: dict[Step, datetime]) -> Rollup | None:
    step = row.step
    if step is Step.MINUTE and row.at < before[Step.MINUTE]:
        step = Step.HOUR
    if step is Step.HOUR and row.at < before[Step.HOUR]:
        step = Step.DAY
    at = begin_of(row.at, step)
    if step is Step.DAY and at < before[Step.DAY]:
        return None
    return Rollup(step, at, row.task, row.queue, row.totals)


def _bounded(series: dict[tuple[str, str], Totals]) -> dict[tuple[str, str], Totals]:
    """Return headrace's own series and the busiest others, and all the rest as one."""
    if len(series) <= MAX_STATS_SERIES:
        return series
    busiest = sorted(
        series.keys() - {(OTHER, OTHER)}, key=lambda name: (not is_own(name[0]), -series[name].attempts, name)
    )
    kept, rest = {name: series[name] for name in busiest[: MAX_STATS_SERIES - 1]}, Totals()
    for name in (*busiest[MAX_STATS_SERIES - 1 :], (OTHER, OTHER)):
        rest.merge(series.get(name, Totals()))
    return kept | {(OTHER, OTHER): rest}
