"""The first page: does it work, what is stuck, since when, why, and what to do."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any

from headrace.client.api.queues import QueueInfo
from headrace.core.stats.charts import Point
from headrace.core.stats.own_tasks import is_own
from headrace.core.stats.rollup import Step, begin_of
from headrace.core.status import HELD, Status
from headrace.dashboard.alerts import Problem, problems_of
from headrace.dashboard.chart_data import Span
from headrace.dashboard.drawings import charts as charting
from headrace.dashboard.format import count, length
from headrace.dashboard.page import PageRequest, PageView, Shown
from headrace.dashboard.pages.dead_letters import MAX_COUNTED_JOBS, counted_of

__all__ = ["VIEWS"]

RANGES: dict[str, tuple[str, float, Step]] = {
    "1h": ("1 hour", 3600.0, Step.MINUTE),
    "24h": ("24 hours", 86400.0, Step.HOUR),
    "7d": ("7 days", 7 * 86400.0, Step.HOUR),
    "30d": ("30 days", 30 * 86400.0, Step.DAY),
}
BY = {"status": "outcome", "queue": "queue", "task": "task"}
MAX_RUNNING_JOBS, MAX_READ_RUNNING_JOBS = 8, 50
"""How many are shown, and how many are read: headrace's own are left out."""
MAX_ERROR_GROUPS = 5
MAX_LISTED_QUEUES = 8
ERROR_WINDOW = timedelta(days=1)
"""How far back errors are shown here; the page of dead letters has all."""


async def overview(ask: PageRequest) -> Shown:
    """Show the overview."""
    app, now = ask.app, ask.now
    span = ask.given("range") if ask.given("range") in RANGES else "1h"
    by = ask.given("by") if ask.given("by") in BY else "status"
    # All at once: a slow part is awaited only as long as the others take, or a moment longer.
    drawn, problems, (queues, workers, hour, metrics, running, groups) = await asyncio.gather(
        _charts(ask, span or "1h", by or "status"),
        _problems(ask),
        asyncio.gather(
            ask.queues(),
            ask.shared("workers", app.workers.list),
            ask.hour(),
            ask.soon("metrics", app.stats.metrics),
            ask.shared("running", lambda: app.jobs.list(status=[Status.RUNNING], limit=MAX_READ_RUNNING_JOBS)),
            ask.soon(
                "groups",
                lambda: app.jobs.failures(
                    limit=MAX_ERROR_GROUPS, among=MAX_COUNTED_JOBS, finished_after=now - ERROR_WINDOW
                ),
            ),
        ),
    )
    counts: dict[Status, int] = {}
    for queue in queues:
        for status, number in queue.counts.items():
            counts[status] = counts.get(status, 0) + number
    oldest = [queue.oldest for queue in queues if queue.oldest is not None]
    busy = [queue for queue in queues if any(queue.counts.values())]
    users = [row for row in workers if not row.info.own]
    alive = [row for row in users if row.alive]
    data: dict[str, Any] = {
        "range": span,
        "ranges": RANGES,
        "by": by,
        "bys": BY,
        "counts": counts,
        "oldest": min(oldest, default=None),
        "oldest_queue": min(((one.oldest, one.name) for one in busy if one.oldest), default=(None, None))[1],
        "hour": _figures(hour, now, await ask.day()),
        "problems": problems or [],
        "looked": problems is not None,
        "queues": _listed(queues),
        "more_queues": max(0, len(queues) - MAX_LISTED_QUEUES),
        "began": bool(busy),
        "metrics": metrics,
        "windows": {"5m": "5 min", "1h": "1 h", "24h": "24 h"},
        "running": [job for job in running.items if not is_own(job.task)][:MAX_RUNNING_JOBS],
        "groups": groups,
        "counted": await counted_of(ask),
        "drawing": drawn[0],
        "waits": drawn[1],
        "alive": alive,
        "workers": users,
        "slots": sum(row.info.concurrency for row in alive),
        # From the counts that the page shows as running: beats of workers are seconds old.
        "busy": sum(counts.get(status, 0) for status in HELD),
    }
    return Shown("overview.html", "Overview", data)


def _listed(queues: Sequence[QueueInfo]) -> list[QueueInfo]:
    """Return the queues that are shown here, always in the order of workers; if there are more, those with jobs."""
    first = sorted(queues, key=lambda one: not any(one.counts.values()))[:MAX_LISTED_QUEUES]
    names = {one.name for one in first}
    return [one for one in queues if one.name in names]


def _figures(hour: Span, now: datetime, day: Span | None) -> dict[str, Any]:
    """Return the figures of attempts in the last hour, or in the minutes since the first of them."""
    charts = hour.charts()
    total = charts.series[0].total if charts.series else Point(at=charts.since, seconds=3600)
    bad = total.failed + total.timed_out + total.lost
    ended = total.completed + bad
    began, minutes = hour.began_at, 60.0
    if began is not None and (day is None or day.began_at is None or day.began_at >= begin_of(began, Step.HOUR)):
        minutes = min(60.0, max(1.0, (now - began) / timedelta(minutes=1)))
    return {
        "ended": ended,
        "minutes": round(minutes),
        "a_minute": ended / minutes,
        "bad": bad,
        "waiting": total.waiting,
        "running": total.running,
    }


async def _charts(ask: PageRequest, span: str, by: str) -> tuple[charting.Drawing | None, charting.Drawing | None]:
    """Draw attempts and durations; None: they are still being summed."""
    _, seconds, step = RANGES[span]
    sums = await (ask.hour() if step is Step.MINUTE else ask.past(seconds, step))
    return (None, None) if sums is None else sums.drawn(("overview", by), lambda: _drawn(sums, by))


def _drawn(sums: Span, by: str) -> tuple[charting.Drawing, charting.Drawing]:
    whole = sums.charts()
    if by == "status":
        drawing = charting.stacked(whole, charting.by_outcome(whole), count)
    else:
        parts = sums.charts("task" if by == "task" else "queue", times=False)
        drawing = charting.stacked(
            parts, charting.by_name(parts, lambda one: one.task if by == "task" else one.queue), count
        )
    points = {point.at: point for series in whole.series for point in series.points}

    def of(field: str, quantile: str) -> Callable[[Any], float | None]:
        def amount(moment: Any) -> float | None:
            point = points.get(moment)
            found = None if point is None else getattr(point, field)
            return None if found is None else getattr(found, quantile)

        return amount

    waits = charting.lines(
        whole,
        [
            ("waiting-95", "waiting p95", of("waiting", "p95")),
            ("waiting-50", "waiting p50", of("waiting", "p50")),
            ("running-95", "running p95", of("running", "p95")),
            ("running-50", "running p50", of("running", "p50")),
        ],
        length,
    )
    return drawing, waits


async def _problems(ask: PageRequest) -> list[Problem] | None:
    """Return all alerts; None: they are still being looked for."""
    found = await ask.soon("alerts", ask.app.stats.alerts)
    return None if found is None else problems_of(found)


VIEWS = (PageView("/", "overview", overview, "overview"),)
