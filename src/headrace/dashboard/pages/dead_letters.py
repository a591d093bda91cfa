"""Dead letters: jobs that failed alike, in groups, with their number over time."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from headrace.client.api.filters import Filters
from headrace.core.hidden_errors import hidden_group
from headrace.core.job import Job
from headrace.core.stats.failures import FailureGroup, seen_at
from headrace.core.status import Status
from headrace.dashboard.chart_data import Span
from headrace.dashboard.drawings import charts as charting
from headrace.dashboard.format import count
from headrace.dashboard.page import PageRequest, PageView, Shown

__all__ = ["MAX_COUNTED_JOBS", "VIEWS", "counted_of"]

MAX_GROUPS = 50
MAX_COUNTED_JOBS = 10_000
"""Maximum jobs failed for good that are counted, the last ones: the page says so if there are more."""
MAX_DRAWN_GROUPS = 12
"""Groups with a drawing of when they failed."""
SAMPLE_JOBS = 100
"""Jobs of a group that this drawing is made from: the newest."""
COLUMNS, WIDE, HIGH = 24, 120.0, 24.0


@dataclass(frozen=True)
class Spark:
    """The number of failures over time, as small columns."""

    bars: tuple[tuple[float, float, float], ...]
    """Left, top and height of each."""
    sampled: int
    """How many jobs it shows, if there are more: the newest."""
    since: datetime
    until: datetime
    wide: float = WIDE
    high: float = HIGH
    width: float = WIDE / COLUMNS * 0.8


async def dead(ask: PageRequest) -> Shown:
    """Show the groups, the largest first."""
    filters: Filters = {}
    for name in ("task", "queue", "customer"):
        if (value := ask.given(name)) is not None:
            filters[name] = value
    retried = ask.given("retrying") == "1"
    if not retried:
        filters["status"] = [Status.FAILED]
    kept = ask.kept(filters)
    key = (
        "dead",
        ask.viewer.customer,
        ask.viewer.errors,
        retried,
        *(ask.given(name) for name in ("task", "queue", "customer")),
    )
    asked = {name: ask.given(name) for name in ("task", "queue", "customer")}
    data, drawing = await asyncio.gather(
        ask.soon(key, lambda: _groups(ask, kept), 1.0),
        _over_time(ask, asked["task"], asked["queue"]),
    )
    data = data or {"groups": None, "all": True, "jobs": 0, "counted": None}
    more = {"asked": asked, "retrying": retried, "drawing": drawing}
    return Shown("dead.html", "Dead letters", data | more)


async def _over_time(ask: PageRequest, task: str | None, queue: str | None) -> charting.Drawing | None:
    """Draw how many jobs of each task failed for good in each hour of the last day, from rollups of all customers."""
    if ask.viewer.customer is not None or ask.given("customer") is not None:
        return None
    sums = await ask.day()
    return None if sums is None else sums.drawn(("dead", task, queue), lambda: _drawn(sums, task, queue))


def _drawn(sums: Span, task: str | None, queue: str | None) -> charting.Drawing | None:
    charts = sums.charts("task", task=task, queue=queue, times=False)
    parts = charting.by_name(charts, lambda one: one.task, charting.died)
    return charting.stacked(charts, parts, count) if parts else None


async def _groups(ask: PageRequest, filters: Filters) -> dict[str, Any]:
    groups = await ask.app.jobs.failures(limit=MAX_GROUPS, among=MAX_COUNTED_JOBS, **filters)
    found = list[tuple[FailureGroup, Spark | None, Job | None]]()
    for group in groups:
        page: Sequence[Job] = ()
        if len(found) < MAX_DRAWN_GROUPS and group.fingerprint is not None:
            alike: Filters = {**filters, "fingerprint": group.fingerprint}
            page = (await ask.app.jobs.list(limit=SAMPLE_JOBS, **alike)).items
        example = next((one for one in ask.seen(page) if one.id == group.example), None)
        found.append((hidden_group(group) if ask.hides else group, _spark(group, page), example))
    jobs, counted = sum(group.jobs for group in groups), await counted_of(ask)
    return {"groups": found, "all": len(groups) < MAX_GROUPS, "jobs": jobs, "counted": counted}


async def counted_of(ask: PageRequest) -> int | None:
    """Return the maximum of failed jobs in groups, if there may be more; customers do not see the numbers of others."""
    if ask.viewer.customer is not None:
        return MAX_COUNTED_JOBS
    queues = await ask.queues()
    failed = sum(counts.get(Status.FAILED, 0) for queue in queues for counts in (queue.counts, queue.own_counts))
    return MAX_COUNTED_JOBS if failed > MAX_COUNTED_JOBS else None


def _spark(group: FailureGroup, jobs: Sequence[Job]) -> Spark | None:
    moments = [seen_at(job) for job in jobs]
    if len(moments) < 2:
        return None
    since = min(moments)
    span = max(max(moments) - since, timedelta(seconds=1))
    counts = [0] * COLUMNS
    for moment in moments:
        counts[min(COLUMNS - 1, int((moment - since) / span * COLUMNS))] += 1
    most = max(counts)
    bars = []
    for index, number in enumerate(counts):
        if number:
            high = max(2.0, round(number / most * HIGH, 1))
            bars.append((round(index * WIDE / COLUMNS, 1), round(HIGH - high, 1), high))
    return Spark(tuple(bars), len(moments) if group.jobs > len(moments) else 0, since, max(moments))


VIEWS = (PageView("/dead", "dead", dead, "dead", "customer"),)
