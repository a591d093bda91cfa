"""Charts: finished attempts by minute, hour or day, made of rollups."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Literal

import msgspec

from headrace.core.codec.record import Record
from headrace.core.stats.histogram import Quantiles
from headrace.core.stats.own_tasks import is_own
from headrace.core.stats.rollup import COUNTS, DEPTH, SLOTS, STEP_RETENTION, Rollup, Step, Totals, begin_of, concerns

__all__ = ["By", "Charts", "Point", "Series", "charts_of", "step_for"]


By = Literal["series", "task", "queue", "all"]
"""What has a series of its own: each task in each queue, each task, each queue, or all together."""


class Point(msgspec.Struct, Record, frozen=True, kw_only=True):
    """Attempts that ended within one span of time, by their outcome, and how long they waited and ran."""

    at: datetime
    """When it began."""
    seconds: int
    """How long it is."""
    completed: int = 0
    failed: int = 0
    timed_out: int = 0
    lost: int = 0
    snoozed: int = 0
    released: int = 0
    cancelled: int = 0
    retried: int = 0
    """How many of those that failed, timed out or were lost are tried again."""
    waiting: Quantiles | None = None
    """Seconds from when the job could be claimed until its handler was called; None if nothing was measured."""
    running: Quantiles | None = None
    """Seconds that the handler ran."""

    @classmethod
    def of(cls, at: datetime, seconds: int, totals: Totals) -> Point:
        """Return the point of these totals."""
        counts = {name: getattr(totals, name) for name in COUNTS}
        return cls(at=at, seconds=seconds, waiting=totals.waited.quantiles(), running=totals.ran.quantiles(), **counts)


class Series(msgspec.Struct, Record, frozen=True, kw_only=True):
    """Finished attempts of one task in one queue."""

    task: str
    """Empty where tasks are added up."""
    queue: str
    """Empty where queues are added up."""
    total: Point
    """The sum of all points."""
    points: tuple[Point, ...]
    """In order; a span in which nothing ended has none."""


class Charts(msgspec.Struct, Record, frozen=True, kw_only=True):
    """What workers finished between two moments; approximate: what a worker finished since its last beat is missing
    until its next one, and lost if it is killed before."""

    since: datetime
    until: datetime
    step: Step
    """How long a point is; where only hours or days are kept, points are longer."""
    series: tuple[Series, ...]
    """By task and queue; ``(other)`` is the rest beyond the maximum number of series."""


def step_for(since: datetime, until: datetime, now: datetime) -> Step:
    """Return the finest step of which everything since then is kept, if that makes not too many points."""
    for step in (Step.MINUTE, Step.HOUR):
        if since >= now - STEP_RETENTION[step] and until - since <= STEP_RETENTION[step]:
            return step
    return Step.DAY


def charts_of(
    rows: Iterable[Rollup],
    since: datetime,
    until: datetime,
    step: Step,
    by: By = "series",
    *,
    times: bool = True,
    own: bool = False,
) -> Charts:
    """Return the charts of these rows; spans that are partly within the time count as a whole.

    ``by``: what has a series of its own. Quantiles cannot be added up later, so a caller that wants those of all must
    choose it here. ``times``: whether to include durations, which is the larger part of the work. ``own``: whether to
    include headrace's own tasks.
    """
    since = begin_of(since, step)
    series: dict[tuple[str, str], dict[tuple[datetime, int], Totals]] = {}
    places: dict[tuple[datetime, Step], tuple[datetime, int] | None] = {}
    for row in rows:
        if row.task in (SLOTS, DEPTH) or (not own and is_own(row.task)):
            continue
        if (row.at, row.step) not in places:  # a moment has a row of every task
            wide = max(row.step, step, key=lambda one: one.seconds)
            place = (begin_of(row.at, wide), wide.seconds) if concerns(row, since, until) else None
            places[row.at, row.step] = place
        if (place := places[row.at, row.step]) is not None:
            name = row.task if by in ("series", "task") else "", row.queue if by in ("series", "queue") else ""
            points = series.setdefault(name, {})
            totals = points.get(place)
            if totals is None:
                totals = points[place] = Totals()
            (totals.merge if times else totals.tally)(row.totals)
    found = []
    for (task, queue), points in sorted(series.items()):
        total = Totals()
        for totals in points.values():
            total.merge(totals)
        found.append(
            Series(
                task=task,
                queue=queue,
                total=Point.of(since, round((until - since) / timedelta(seconds=1)), total),
                points=tuple(Point.of(at, seconds, totals) for (at, seconds), totals in sorted(points.items())),
            )
        )
    return Charts(since=since, until=until, step=step, series=tuple(found))
