"""One job: all that is known of it, and what can be done to it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from headrace.core.entry import LogLine
from headrace.core.job import Job
from headrace.core.query import seen_status
from headrace.core.status import Status, Verb
from headrace.core.table import TABLE
from headrace.core.webhooks import TASK as DELIVER
from headrace.dashboard.asking import Ask, Shown, View
from headrace.dashboard.graph import graph
from headrace.dashboard.timeline import timeline
from headrace.errors import JobNotFound

__all__ = ["VIEWS"]

LINES = 500
ITEMS = 100
RELATIVES = 60

ACTS: tuple[tuple[Verb, str, str], ...] = (
    (Verb.CANCEL, "Cancel", "danger"),
    (Verb.RETRY, "Retry", "main"),
    (Verb.RUN_NOW, "Run now", ""),
    (Verb.RERUN, "Rerun", ""),
    (Verb.POSTPONE, "Postpone", ""),
    (Verb.MOVE, "Move", ""),
    (Verb.REPRIORITISE, "Priority", ""),
    (Verb.RESOLVE, "Resolve", ""),
    (Verb.DISCARD, "Discard", "danger"),
)
"""What may be done to a job, in the order of the buttons."""


async def job(ask: Ask) -> Shown:
    """The page of a job."""
    found = await ask.job(ask.request.path_params["id"])
    data = await ask.shared(
        ("job", found.id, found.rev, ask.viewer.customer, str(ask.zone)), lambda: _about(ask, found)
    )
    now, status = ask.now, seen_status(found, ask.now)
    data = data | {
        "job": found,
        "status": status,
        "line": timeline(found, data["history"], now),
        "acts": [(verb.value, name, kind) for verb, name, kind in ACTS if found.status in TABLE[verb]],
    }
    return Shown("job.html", f"{found.task} {str(found.id)[-8:]}", data, every=2.0 if found.ended else 1.0)


async def _about(ask: Ask, job: Job) -> dict[str, Any]:
    app, to = ask.app, ask.viewer.customer
    history, told, steps, lines, items = await asyncio.gather(
        app.history(job.id),
        app.explain(job.id, to=to, zone=ask.zone),
        app.steps(job.id),
        _lines(ask, job),
        app.item_page(job.id, limit=ITEMS),
    )
    relatives, reruns, deliveries = await asyncio.gather(
        _relatives(ask, job),
        app.jobs(limit=20, **ask.kept({"rerun_of": job.id})),
        _deliveries(ask, job),
    )
    position = await app.position(job) if seen_status(job, ask.now) is Status.QUEUED else None
    original = await _seen(ask, job.rerun_of)
    workers = {} if to is not None else {row.info.id: row for row in await ask.shared("workers", app.workers)}
    return {
        "history": history,
        "facts": told.facts,
        "position": position,
        "steps": steps,
        "lines": lines,
        "items": items.items,
        "more_items": items.cursor is not None and len(items.items) >= ITEMS,
        "family": graph([job, *relatives]),
        "children": [one for one in relatives if one.parent == job.id],
        "reruns": reruns.items,
        "original": original,
        "deliveries": deliveries,
        "is_delivery": job.task == DELIVER,
        "workers": workers,
    }


async def _deliveries(ask: Ask, job: Job) -> Sequence[Job]:
    if not job.webhook:
        return ()
    return (await ask.app.deliveries(job=job.id, customer=ask.viewer.customer, limit=50)).items


async def _lines(ask: Ask, job: Job) -> tuple[tuple[LogLine, ...], bool]:
    """The last lines of its log, and whether there are earlier ones."""
    found, cursor, cut = list[LogLine](), None, False
    for _ in range(20):
        page = await ask.app.log_page(job.id, limit=1000, cursor=cursor)
        found += page.items
        cursor = page.cursor
        if len(found) > LINES:
            found, cut = found[-LINES:], True
        if cursor is None or len(page.items) < 1000:
            break
    return tuple(found), cut


async def _relatives(ask: Ask, job: Job) -> list[Job]:
    """Those that it has to do with, and that the viewer may see."""
    app = ask.app
    root = job.root or job.id
    found = list((await app.jobs(limit=RELATIVES, **ask.kept({"root": root}))).items)
    found += (await app.jobs(limit=RELATIVES, **ask.kept({"parent": job.id}))).items
    wanted = {one for one in (*job.after, job.parent, job.root) if one is not None}
    wanted |= {other for one in found for other in one.after}
    known = {one.id for one in found} | {job.id}
    for other in await app.get_many(list(wanted - known)[:RELATIVES]):
        if other is not None and ask.viewer.customer in (None, other.customer):
            found.append(other)
    if job.batch is not None and not found:
        found += [one for one in (await app.jobs(limit=RELATIVES, **ask.kept({"batch": job.batch}))).items if one.after]
    return list({one.id: one for one in found if one.id != job.id}.values())


async def _seen(ask: Ask, id: Any) -> Job | None:
    """Another job, if it is there and the viewer may see it."""
    if id is None:
        return None
    try:
        found = await ask.app.get(id)
    except JobNotFound:
        return None
    return found if ask.viewer.customer in (None, found.customer) else None


VIEWS = (View("/jobs/{id}", "job", job, "jobs", "customer"),)
