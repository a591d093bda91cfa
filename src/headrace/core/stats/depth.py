"""The depth of queues over time: how many jobs were queued, noted once a minute as rollups."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime

from headrace.core.query import Count
from headrace.core.stats.rollup import DEPTH, Rollup, Step, Totals, begin_of
from headrace.core.status import Status

__all__ = ["MAX_DEPTH_QUEUES", "depth_rows", "depth_series", "depths_of"]

MAX_DEPTH_QUEUES = 100
"""Maximum queues whose depth is noted in one minute: the deepest."""


def depths_of(counts: Iterable[Count]) -> dict[str, int]:
    """Return how many jobs the deepest queues have queued; of headrace's own only where there are no others."""
    users, own = dict[str, int](), dict[str, int]()
    for one in counts:
        if one.status is Status.QUEUED and one.jobs:
            (own if one.own else users)[one.queue] = one.jobs
    found = own | users
    return {name: found[name] for name in sorted(found, key=lambda name: (-found[name], name))[:MAX_DEPTH_QUEUES]}


def depth_rows(depths: Mapping[str, int], now: datetime) -> tuple[Rollup, ...]:
    """Return the rows of one note: one for each queue, and one without a queue that counts the note itself."""
    at = begin_of(now, Step.MINUTE)
    queues = (Rollup(Step.MINUTE, at, DEPTH, name, Totals(depth=float(jobs))) for name, jobs in sorted(depths.items()))
    return (Rollup(Step.MINUTE, at, DEPTH, "", Totals(notes=1)), *queues)


def depth_series(rows: Iterable[Rollup], step: Step) -> tuple[dict[datetime, int], dict[str, dict[datetime, float]]]:
    """Return how many notes each moment has, and by queue the average depth at each; a queue without one had 0."""
    notes, sums = dict[datetime, int](), dict[str, dict[datetime, float]]()
    for row in rows:
        if row.task != DEPTH:
            continue
        at = begin_of(row.at, step)
        if row.queue:
            queue = sums.setdefault(row.queue, {})
            queue[at] = queue.get(at, 0.0) + row.totals.depth
        else:
            notes[at] = notes.get(at, 0) + row.totals.notes
    average = {
        name: {at: depth / notes[at] for at, depth in found.items() if notes.get(at)} for name, found in sums.items()
    }
    return notes, average
