"""One job: everything known about it, and the actions on it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from headrace.core.hidden_errors import hidden_history
from headrace.core.job import Job
from headrace.core.lifecycle.actions import ACTIONS
from headrace.core.lifecycle.transitions import TRANSITIONS
from headrace.core.query import seen_status
from headrace.core.status import Status
from headrace.core.webhooks.delivery import TASK as DELIVER
from headrace.dashboard.drawings.graph import graph
from headrace.dashboard.drawings.timeline import timeline
from headrace.dashboard.page import PageRequest, PageView, Shown, audit_of_job
from headrace.errors import JobNotFound

__all__ = ["VIEWS"]

MAX_LOG_LINES = 500
"""Lines of the log: its end."""
MAX_RERUNS = 50
"""Maximum reruns of one job, and reruns of those, that are shown."""
MAX_ITEMS = 100
MAX_RELATIVES = 60


@dataclass(frozen=True)
class Chain:
    """A job and its reruns, and theirs; the oldest first."""

    jobs: tuple[Job, ...]
    whole: bool
    """Whether these are all of them."""


async def job(ask: PageRequest) -> Shown:
    """Show a job."""
    found = await ask.job(ask.request.path_params["id"])
    data = await ask.shared(
        ("job", found.id, found.rev, ask.viewer.customer, ask.viewer.errors, str(ask.zone)), lambda: _about(ask, found)
    )
    now, status = ask.now, seen_status(found, ask.now)
    data = data | {
        "job": found,
        "status": status,
        "line": timeline(found, data["history"], now),
        "acts": [one for verb, one in ACTIONS.items() if found.status in TRANSITIONS[verb]],
    }
    return Shown("job.html", f"{found.task} {str(found.id)[-8:]}", data, every=2.0 if found.ended else 1.0)


async def _about(ask: PageRequest, job: Job) -> dict[str, Any]:
    app, to = ask.app, ask.viewer.customer
    history, told, steps, lines, items = await asyncio.gather(
        app.jobs.history(job.id),
        app.jobs.explain(job.id, to=to, zone=ask.zone, hide_errors=ask.hides),
        app.jobs.steps(job.id),
        app.jobs.log_tail(job.id, limit=MAX_LOG_LINES),
        app.jobs.items(job.id, limit=MAX_ITEMS),
    )
    relatives, chain, deliveries = await asyncio.gather(_relatives(ask, job), _chain(ask, job), _deliveries(ask, job))
    if ask.hides:
        history = hidden_history(history, job)
    position = await app.jobs.position(job) if seen_status(job, ask.now) is Status.QUEUED else None
    workers = {} if to is not None else {row.info.id: row for row in await ask.shared("workers", app.workers.list)}
    return {
        "history": history,
        "facts": told.facts,
        "position": position,
        "steps": steps,
        "lines": lines,
        "items": items.items,
        "more_items": items.cursor is not None and len(items.items) >= MAX_ITEMS,
        "family": graph([job, *relatives]),
        "children": [one for one in relatives if one.parent == job.id],
        "chain": chain,
        "submitted": [] if to is not None else await audit_of_job(ask, job),
        "deliveries": deliveries,
        "is_delivery": job.task == DELIVER,
        "workers": workers,
    }


async def _deliveries(ask: PageRequest, job: Job) -> Sequence[Job]:
    if not job.webhook:
        return ()
    return ask.seen((await ask.app.webhooks.deliveries(job=job.id, customer=ask.viewer.customer, limit=50)).items)


async def _chain(ask: PageRequest, job: Job) -> Chain:
    """Return the jobs that this one is a rerun of, back to the first, and all reruns since: the oldest first."""
    back, whole = list[Job](), True
    while whole and (before := (back[-1] if back else job).rerun_of) is not None:
        other = await _seen(ask, before)
        if other is None:
            break
        back.append(other)
        whole = len(back) < MAX_RERUNS
    first, known = (back[-1] if back else job), {job.id: job} | {one.id: one for one in back}
    open_ends = [first]
    while open_ends and whole:
        one = open_ends.pop()
        page = await ask.app.jobs.list(limit=MAX_RERUNS, **ask.kept({"rerun_of": one.id}))
        open_ends += page.items
        known |= {other.id: other for other in page.items}
        whole = len(known) < MAX_RERUNS
    return Chain(ask.seen(sorted(known.values(), key=lambda one: one.seq)), whole)


async def _relatives(ask: PageRequest, job: Job) -> list[Job]:
    """Return the related jobs that the viewer may see."""
    app = ask.app
    root = job.root or job.id
    found = list((await app.jobs.list(limit=MAX_RELATIVES, **ask.kept({"root": root}))).items)
    found += (await app.jobs.list(limit=MAX_RELATIVES, **ask.kept({"parent": job.id}))).items
    wanted = {one for one in (*job.after, job.parent, job.root) if one is not None}
    wanted |= {other for one in found for other in one.after}
    known = {one.id for one in found} | {job.id}
    for other in await app.jobs.get_many(list(wanted - known)[:MAX_RELATIVES]):
        if other is not None and ask.viewer.customer in (None, other.customer):
            found.append(other)
    if job.batch is not None and not found:
        found += [
            one
            for one in (await app.jobs.list(limit=MAX_RELATIVES, **ask.kept({"batch": job.batch}))).items
            if one.after
        ]
    return list(ask.seen({one.id: one for one in found if one.id != job.id}.values()))


async def _seen(ask: PageRequest, id: Any) -> Job | None:
    """Return another job, if it exists and the viewer may see it."""
    if id is None:
        return None
    try:
        found = await ask.app.jobs.get(id)
    except JobNotFound:
        return None
    return found if ask.viewer.customer in (None, found.customer) else None


async def log(ask: PageRequest) -> Shown:
    """Show the log of a job from its beginning, a page at a time."""
    found, cursor = await ask.job(ask.request.path_params["id"]), ask.given("cursor")
    page = await ask.app.jobs.log_page(found.id, limit=MAX_LOG_LINES, cursor=cursor)
    data = {
        "job": found,
        "lines": page.items,
        "cursor": cursor,
        "next": page.cursor if len(page.items) >= MAX_LOG_LINES else None,
    }
    return Shown("log.html", f"Log of {found.task} {str(found.id)[-8:]}", data, every=0)


VIEWS = (
    PageView("/jobs/{id}", "job", job, "jobs", "customer", alike=0.0),  # people watch it for changes
    PageView("/jobs/{id}/log", "log", log, "jobs", "customer"),
)
