"""Queues: their depth, since when, what runs, and their settings."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import datetime
from functools import partial

from headrace.client.api.known_names import strange_name
from headrace.client.api.queues import QueueInfo, page_of_queues
from headrace.core.job import Job
from headrace.core.query import Page
from headrace.core.status import HELD, Status
from headrace.dashboard.drawings import charts as charting
from headrace.dashboard.drawings.depth import small_depth
from headrace.dashboard.format import count
from headrace.dashboard.page import Missing, PageRequest, PageView, Shown, audit_of

__all__ = ["VIEWS"]

PAGE_QUEUES = 100
MAX_SHOWN_JOBS = 20
MAX_READ_JOBS = 500
"""Jobs that are read to find their customers."""
MAX_CUSTOMERS = 50


async def queues(ask: PageRequest) -> Shown:
    """Show a page of queues, in the order in which workers serve them."""
    cursor = ask.given("cursor")
    page = page_of_queues(await ask.queues(), PAGE_QUEUES, cursor)
    usage = await ask.shared("usage", ask.app.limits.usage)
    charts = (await ask.hour()).charts("queue")
    hour = {series.queue: series.total for series in charts.series}
    moments, depths = await ask.depths()
    drawn = {one.name: small_depth(moments, depths.get(one.name, {})) for one in page.items}
    data = {"page": page, "cursor": cursor, "held": usage.queues, "hour": hour, "depths": drawn}
    return Shown("queues.html", "Queues", data)


async def queue(ask: PageRequest) -> Shown:
    """Show one queue."""
    app, name = ask.app, ask.request.path_params["name"]
    known = {one.name: one for one in await ask.queues()}
    if name not in known and await strange_name(app, "queue", name):
        raise Missing(f"queue {name}")
    usage = await ask.shared("usage", app.limits.usage)
    hour = await ask.hour()
    charts = hour.charts(queue=name)
    if not charts.series:  # a queue with nothing but headrace's own jobs
        charts = hour.charts(queue=name, own=True)
    holders = await ask.shared(
        ("holders of queue", name), lambda: app.jobs.list(queue=name, status=[*HELD], limit=MAX_SHOWN_JOBS)
    )
    line = await ask.shared(
        ("line of queue", name), lambda: app.jobs.list(queue=name, status=[Status.QUEUED], limit=MAX_SHOWN_JOBS)
    )
    shown = known.get(name) or QueueInfo(name, 0, False, {}, None)
    data = {
        "queue": shown,
        "customers": await _customers(ask, name) if shown.by_customer else None,
        "held": usage.queues.get(name, 0),
        "holders": holders.items,
        "line": line.items,
        "drawing": charting.stacked(charts, charting.by_outcome(charts), count),
        "depth": await _depth(ask, name),
        "audit": await audit_of(ask, f"queue:{name}"),
        "rates": sorted(await ask.shared("rates", app.rates.list)),
    }
    return Shown("queue.html", f"Queue {name}", data)


async def _depth(ask: PageRequest, queue: str) -> charting.Drawing | None:
    """Draw how deep the queue was in each minute of the last hour; None: it was not noted."""
    moments, depths = await ask.depths()
    noted, depth = frozenset(moments), depths.get(queue, {})
    charts = (await ask.hour()).charts()

    def amount(moment: datetime) -> float | None:
        return depth.get(moment, 0.0) if moment in noted else None

    drawing = charting.lines(charts, [("depth-line", "jobs queued", amount)], lambda one: count(round(one)), moments)
    return None if drawing.empty else drawing


@dataclass(frozen=True)
class Customers:
    """The customers in a queue that is shared by customer: how many of their jobs are held, how many queued."""

    rows: tuple[tuple[str | None, int, int, datetime | None], ...]
    """With the arrival of the oldest job that was read; sorted by queued jobs, most first."""
    looked_at: int | None
    """How many jobs this was calculated from, if there are more: the newest."""


async def _customers(ask: PageRequest, queue: str) -> Customers:
    async def newest(*statuses: Status) -> Page[Job]:
        find = partial(ask.app.jobs.list, queue=queue, status=[*statuses], limit=MAX_READ_JOBS)
        return await ask.shared(("customers of", queue, statuses), find)

    held, queued = await newest(*HELD), await newest(Status.QUEUED)
    holding, waiting = Counter(job.customer for job in held.items), Counter(job.customer for job in queued.items)
    oldest = {job.customer: job.arrived_at for job in queued.items}  # the newest come first: the last is the oldest
    names = sorted({*holding, *waiting}, key=lambda one: (-waiting[one], -holding[one], one or ""))[:MAX_CUSTOMERS]
    rows = tuple((one, holding[one], waiting[one], oldest.get(one)) for one in names)
    return Customers(rows, MAX_READ_JOBS if held.cursor or queued.cursor else None)


VIEWS = (
    PageView("/queues", "queues", queues, "queues"),
    PageView("/queues/{name:path}", "queue", queue, "queues"),
)
