"""Tasks: their workers, their results, and a form to submit one."""

from __future__ import annotations

from headrace.client.api.tasks import undescribed
from headrace.dashboard.drawings import charts as charting
from headrace.dashboard.format import count
from headrace.dashboard.forms import fields_of
from headrace.dashboard.page import Missing, PageRequest, PageView, Shown, audit_of

__all__ = ["VIEWS"]


async def tasks(ask: PageRequest) -> Shown:
    """Show all tasks."""
    app = ask.app
    found = await ask.shared("tasks", app.tasks.list, 5.0)
    workers = await ask.shared("workers", app.workers.list)
    charts = (await ask.hour()).charts("task", own=True)
    having: dict[str, int] = {}
    for row in workers:
        for name in row.info.tasks if row.alive else ():
            having[name] = having.get(name, 0) + 1
    data = {
        "tasks": found,
        "having": having,
        "hour": {series.task: series.total for series in charts.series},
        "limits": {one.task: one for one in await ask.shared("limits", app.limits.list)},
    }
    return Shown("tasks.html", "Tasks", data)


async def task(ask: PageRequest) -> Shown:
    """Show one task."""
    app, name = ask.app, ask.request.path_params["name"]
    known = {one.name: one for one in await ask.shared("tasks", app.tasks.list, 5.0)}
    recent = await ask.shared(("newest of task", name), lambda: app.jobs.list(task=name, limit=10))
    if name not in known and not recent.items:
        raise Missing(f"task {name}")
    shown = known.get(name) or undescribed(name)
    charts = (await ask.hour()).charts(task=name)
    workers = await ask.shared("workers", app.workers.list)
    limits = {one.task: one for one in await ask.shared("limits", app.limits.list)}
    schedules = [one for one in await ask.shared("schedules", app.schedules.list) if one.task == name]
    data = {
        "task": shown,
        "fields": fields_of(shown.schema),
        "drawing": charting.stacked(charts, charting.by_outcome(charts), count),
        "total": charts.series[0].total if charts.series else None,
        "recent": recent.items,
        "workers": [row for row in workers if row.alive and name in row.info.tasks],
        "limit": limits.get(name),
        "schedules": schedules,
        "audit": await audit_of(ask, f"limit:{name}", f"task:{name}"),
    }
    return Shown("task.html", f"Task {name}", data)


VIEWS = (
    PageView("/tasks", "tasks", tasks, "tasks"),
    PageView("/tasks/{name:path}", "task", task, "tasks"),
)
