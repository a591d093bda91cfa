"""Workers: their capabilities, their jobs, and why one gets none; and those that are gone."""

from __future__ import annotations

from contextlib import suppress
from uuid import UUID

from headrace.dashboard.page import Missing, PageRequest, PageView, Shown, audit_of
from headrace.errors import UnknownWorker

__all__ = ["VIEWS"]


async def workers(ask: PageRequest) -> Shown:
    """Show all workers, the silent ones first, and headrace's own last."""
    rows = await ask.shared("workers", ask.app.workers.list)
    ordered = sorted(rows, key=lambda row: (row.info.own, row.alive, row.info.host, row.info.started_at))
    return Shown("workers.html", "Workers", {"rows": ordered})


async def worker(ask: PageRequest) -> Shown:
    """Show one worker."""
    app = ask.app
    try:
        id = UUID(ask.request.path_params["id"])
    except ValueError:
        raise Missing(f"worker {ask.request.path_params['id']}") from None
    row = next((one for one in await ask.shared("workers", app.workers.list) if one.info.id == id), None)
    row = row or next((one for one in await app.workers.list() if one.info.id == id), None)  # it may be new
    if row is None or row.beat.state == "dead":
        with suppress(UnknownWorker):
            return await _gone_worker(ask, id)
    if row is None:
        raise Missing(f"worker {id}")
    try:
        told = await ask.soon(("explained", id), lambda: app.workers.explain(id), 2.0)
    except UnknownWorker:
        raise Missing(f"worker {id}") from None
    held = await ask.shared(("held", id), lambda: app.jobs.list(worker=id, limit=100))
    data = {
        "row": row,
        "facts": () if told is None else told.facts,
        "jobs": held.items,
        "audit": await audit_of(ask, f"drain:{id}"),
    }
    return Shown("worker.html", f"Worker {str(id)[-8:]}", data)


async def gone_workers(ask: PageRequest) -> Shown:
    """Show the workers that are gone, the last to go first."""
    cursor = ask.given("cursor")
    page = await ask.shared(("gone workers", cursor), lambda: ask.app.workers.gone(limit=50, cursor=cursor))
    return Shown("gone_workers.html", "Gone workers", {"page": page, "cursor": cursor})


async def _gone_worker(ask: PageRequest, id: UUID) -> Shown:
    """Show one worker that is gone, and what became of the jobs that it held; :raises UnknownWorker:"""
    app = ask.app
    gone = await ask.shared(("gone worker", id), lambda: app.workers.get_gone(id))
    jobs = await ask.shared(("lost", id), lambda: app.jobs.get_many(gone.lost))
    data = {
        "gone": gone,
        "jobs": [job for job in jobs if job is not None],
        "missing": [one for one, job in zip(gone.lost, jobs, strict=True) if job is None],
        "audit": await audit_of(ask, f"drain:{id}"),
    }
    return Shown("gone_worker.html", f"Worker {str(id)[-8:]}", data)


VIEWS = (
    PageView("/workers/gone", "gone_workers", gone_workers, "workers"),
    PageView("/workers", "workers", workers, "workers"),
    PageView("/workers/{id}", "worker", worker, "workers"),
)
