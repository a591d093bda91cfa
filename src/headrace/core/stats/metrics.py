"""The six metrics of the user's jobs over the last 5 minutes, hour and day, each defined once.

They are made of rollups: what a worker finished since its last beat is missing until its next one. A minute or an hour
that is partly within a window counts as a whole.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

import msgspec

from headrace.core.codec.record import Record
from headrace.core.stats.own_tasks import is_own
from headrace.core.stats.rollup import SLOTS, Rollup

__all__ = ["LONGEST_WINDOW", "WINDOWS", "JobSums", "Metrics", "WindowMetrics"]

WINDOWS = {"5m": timedelta(minutes=5), "1h": timedelta(hours=1), "24h": timedelta(hours=24)}
"""The windows by name."""
LONGEST_WINDOW = max(WINDOWS.values())


class WindowMetrics(msgspec.Struct, Record, frozen=True, kw_only=True):
    """Metrics of one window; None: nothing was measured in it."""

    jobs: int = 0
    """Jobs that an attempt completed or left failed."""
    average_queue_time: float | None = None
    """Seconds from the submission of a job to its first assignment; of one that could not run at once, from when it
    could. Of jobs with a first attempt that ended."""
    average_processing_time: float | None = None
    """Seconds from start to completion, of the attempts that completed their jobs; as the worker measured them, where a
    remote one reports that."""
    success_rate: float | None = None
    """The share of ``jobs`` that completed, from 0 to 1."""
    retry_rate: float | None = None
    """The share of ``jobs`` that needed more than one attempt, from 0 to 1."""
    worker_utilisation: float | None = None
    """The share of the time of all slots in which they were busy, from 0 to 1."""


class Metrics(msgspec.Struct, Record, frozen=True, kw_only=True):
    """The six metrics: queue depth at this moment, and five by window."""

    queue_depth: int
    """Jobs that are queued now."""
    windows: dict[str, WindowMetrics]
    """By name: ``5m``, ``1h``, ``24h``."""


class _Sum(msgspec.Struct):
    """What metrics are made of, of one minute or hour."""

    until: datetime
    completed: int = 0
    died: int = 0
    repeated: int = 0
    assigned: int = 0
    queued: float = 0.0
    processed: float = 0.0
    slots: float = 0.0
    busy: float = 0.0


_SUMMED = _Sum.__struct_fields__[1:]


class JobSums:
    """Sums of the user's jobs by minute or hour: a few hundred numbers, however many tasks there are."""

    def __init__(self) -> None:
        self._sums: dict[tuple[datetime, int], _Sum] = {}

    def add(self, rows: Iterable[Rollup], since: datetime, until: datetime) -> None:
        """Add the rows that begin in this time, without those of headrace's own tasks."""
        for row in rows:
            if not since <= row.at < until or (is_own(row.task) and row.task != SLOTS):
                continue
            place = row.at, row.step.seconds
            found = self._sums.get(place)
            if found is None:
                found = self._sums[place] = _Sum(row.until)
            for name in _SUMMED:
                setattr(found, name, getattr(found, name) + getattr(row.totals, name))

    def forget(self, before: datetime) -> None:
        """Drop what was over by then."""
        self._sums = {place: one for place, one in self._sums.items() if one.until > before}

    def windows(self, now: datetime, *more: JobSums) -> dict[str, WindowMetrics]:
        """Return the metrics of each window that ends now, of these sums and more."""
        found = [one for sums in (self, *more) for one in sums._sums.values()]
        return {name: _metrics(one for one in found if one.until > now - span) for name, span in WINDOWS.items()}


def _metrics(sums: Iterable[_Sum]) -> WindowMetrics:
    total = dict.fromkeys(_SUMMED, 0.0)
    for one in sums:
        for name in _SUMMED:
            total[name] += getattr(one, name)
    jobs = total["completed"] + total["died"]
    return WindowMetrics(
        jobs=round(jobs),
        average_queue_time=_ratio(total["queued"], total["assigned"]),
        average_processing_time=_ratio(total["processed"], total["completed"]),
        success_rate=_ratio(total["completed"], jobs),
        retry_rate=_ratio(total["repeated"], jobs),
        worker_utilisation=_ratio(total["busy"], total["slots"]),
    )


def _ratio(part: float, whole: float) -> float | None:
    return round(part / whole, 6) if whole > 0 else None
