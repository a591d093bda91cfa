"""Queues: how deep they are, since when, who runs, and what is set."""

from __future__ import annotations

from headrace.app import QueueInfo
from headrace.core.status import HELD, Status
from headrace.dashboard import charting
from headrace.dashboard.asking import Ask, Missing, Shown, View
from headrace.dashboard.views.audited import audit_of
from headrace.dashboard.words import count

__all__ = ["VIEWS"]

SHOWN = 20


async def queues(ask: Ask) -> Shown:
    """All of them, in the order in which workers serve them."""
    found = await ask.shared("queues", lambda: ask.app.queues(history=False))
    usage = await ask.shared("usage", ask.app.usage)
    charts = await ask.shared("hour by queue", lambda: ask.app.charts(by="queue"), 5.0)
    hour = {series.queue: series.total for series in charts.series}
    return Shown("queues.html", "Queues", {"queues": found, "held": usage.queues, "hour": hour})


async def queue(ask: Ask) -> Shown:
    """One of them."""
    app, name = ask.app, ask.request.path_params["name"]
    known = {one.name: one for one in await ask.shared("queues", lambda: app.queues(history=False))}
    if name not in known and await app.strange_name("queue", name):
        raise Missing(f"queue {name}")
    usage = await ask.shared("usage", app.usage)
    charts = await ask.shared(("hour of queue", name), lambda: app.charts(queue=name, by="all"), 5.0)
    holders = await ask.shared(("holders of queue", name), lambda: app.jobs(queue=name, status=[*HELD], limit=SHOWN))
    line = await ask.shared(("line of queue", name), lambda: app.jobs(queue=name, status=[Status.QUEUED], limit=SHOWN))
    data = {
        "queue": known.get(name) or QueueInfo(name, 0, False, {}, None),
        "held": usage.queues.get(name, 0),
        "holders": holders.items,
        "line": line.items,
        "drawing": charting.stacked(charts, charting.by_outcome(charts), count),
        "audit": await audit_of(ask, f"queue:{name}"),
        "rates": sorted(await ask.shared("rates", app.rates)),
    }
    return Shown("queue.html", f"Queue {name}", data)


VIEWS = (
    View("/queues", "queues", queues, "queues"),
    View("/queues/{name:path}", "queue", queue, "queues"),
)
