"""Workers: their capabilities, their jobs, and why one gets none."""

from __future__ import annotations

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


VIEWS = (
    PageView("/workers", "workers", workers, "workers"),
    PageView("/workers/{id}", "worker", worker, "workers"),
)
