"""Search: from a few characters to the job, task, queue, worker, schedule or batch that is meant."""

from __future__ import annotations

import asyncio
from dataclasses import asdict, dataclass
from uuid import UUID

import msgspec
from starlette.responses import Response

from headrace.dashboard.page import Missing, PageRequest, PageView, Shown
from headrace.dashboard.pages.batches import batch_of
from headrace.dashboard.pages.jobs import NAMES_CACHE_SECONDS
from headrace.dashboard.renderer import MENU

__all__ = ["VIEWS"]

MAX_FOUND_JOBS = 20
MIN_PREFIX_CHARACTERS = 4
"""Minimum characters of an id to search for."""
_DIGITS = frozenset("0123456789abcdefABCDEF-")


@dataclass(frozen=True)
class Found:
    """A search result."""

    kind: str
    name: str
    note: str
    address: str


async def find(ask: PageRequest) -> Shown | Response:
    """Show what the text may mean: as a page, or as JSON for the script of one."""
    text = (ask.given("q") or "").strip()
    found = await ask.shared(("find", text, ask.viewer.customer, ask.base), lambda: _find(ask, text))
    if ask.request.headers.get("accept", "").startswith("application/json"):
        data = msgspec.json.encode([asdict(one) for one in found])
        return Response(data, media_type="application/json")
    if len(found) == 1:
        return Response(status_code=303, headers={"Location": found[0].address})
    return Shown("find.html", "Search", {"text": text, "found": found}, every=0)


async def _find(ask: PageRequest, text: str) -> list[Found]:
    lower, own = text.lower(), ask.viewer.customer
    found = [
        Found("page", title, "", ask.link(path))
        for _, title, path, customers in MENU
        if (customers or own is None) and lower in title.lower()
    ]
    if not text:
        return found
    looks_like_id = len(text) >= MIN_PREFIX_CHARACTERS and set(text) <= _DIGITS
    named, by_id = await asyncio.gather(
        _named(ask, lower) if own is None else _nothing(), _by_id(ask, text) if looks_like_id else _nothing()
    )
    return [*by_id, *found, *named][:MAX_FOUND_JOBS]


async def _nothing() -> list[Found]:
    return []


async def _named(ask: PageRequest, lower: str) -> list[Found]:
    """Return what has the text in its name; names that begin with it are first."""
    app, found = ask.app, list[Found]()
    for task in await ask.shared("tasks", app.tasks.list, 5.0):
        found.append(Found("task", task.name, f"queue {task.queue}", ask.link(f"/tasks/{task.name}")))
    for queue in await ask.soon("queue names", ask.queues, NAMES_CACHE_SECONDS) or ():
        found.append(Found("queue", queue.name, "paused" if queue.paused else "", ask.link(f"/queues/{queue.name}")))
    for one in await ask.shared("schedules", app.schedules.list):
        found.append(Found("schedule", one.name, str(one.rule), ask.link(f"/schedules/{one.name}")))
    for row in await ask.shared("workers", app.workers.list):
        name = row.info.name or f"{row.info.host}:{row.info.pid}"
        found.append(Found("worker", name, str(row.info.id)[-8:], ask.link(f"/workers/{row.info.id}")))
    fitting = [one for one in found if lower in f"{one.name} {one.note}".lower()]
    return sorted(fitting, key=lambda one: (not one.name.lower().startswith(lower), one.kind, one.name))


async def _by_id(ask: PageRequest, text: str) -> list[Found]:
    """Return the job or batch with this id, or the newest jobs with the text in their ids."""
    try:
        id = UUID(text)
    except ValueError:
        page = await ask.app.jobs.list(limit=8, **ask.kept({"text": text.lower()}, by_id=True))
        fitting = [job for job in page.items if text.lower() in str(job.id)]
        return [Found("job", str(job.id), f"{job.task}, {job.status}", ask.link(f"/jobs/{job.id}")) for job in fitting]
    found = list[Found]()
    try:
        job = await ask.job(str(id))
        found.append(Found("job", str(job.id), f"{job.task}, {job.status}", ask.link(f"/jobs/{job.id}")))
    except Missing:
        try:
            batch = await batch_of(ask, str(id))
            found.append(Found("batch", str(batch.id), f"{batch.tally.total} jobs", ask.link(f"/batches/{batch.id}")))
        except Missing:
            pass
    return found


VIEWS = (PageView("/find", "find", find, "jobs", "customer"),)
