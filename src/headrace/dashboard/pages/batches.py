"""Batches: jobs that were submitted together, and their progress."""

from __future__ import annotations

from headrace.core.batch import Batch
from headrace.core.query import Page
from headrace.dashboard.page import Missing, PageRequest, PageView, Shown
from headrace.errors import JobNotFound

__all__ = ["VIEWS", "batch_of"]


async def batches(ask: PageRequest) -> Shown:
    """Show all batches, newest first."""
    whose, cursor = ask.viewer.customer, ask.given("cursor")
    page = await ask.shared(
        ("batches", whose, cursor), lambda: ask.app.batches.list(limit=50, cursor=cursor, customer=whose)
    )
    return Shown("batches.html", "Batches", {"page": page, "cursor": cursor})


async def batch(ask: PageRequest) -> Shown:
    """Show one batch."""
    found, cursor = await batch_of(ask, ask.request.path_params["id"]), ask.given("cursor")
    key = ("jobs of batch", found.id, ask.viewer.customer, cursor)
    page = await ask.shared(key, lambda: ask.app.jobs.list(limit=50, cursor=cursor, **ask.kept({"batch": found.id})))
    page = Page(ask.seen(page.items), page.cursor)
    own = ask.viewer.customer
    calls = [
        (name, call)
        for name, call in (("on completion", found.on_complete), ("on failure", found.on_failure))
        if call is not None and own in (None, call.spec.customer)
    ]
    data = {"batch": found, "page": page, "calls": calls, "cursor": cursor}
    return Shown("batch.html", f"Batch {str(found.id)[-8:]}", data, every=1.0 if found.ended_at is None else 5.0)


async def batch_of(ask: PageRequest, id: str) -> Batch:
    """Return a batch that the viewer may see; :raises Missing:"""
    try:
        found = await ask.app.batches.handle(id).refresh()
    except (JobNotFound, ValueError):
        raise Missing(f"batch {id}") from None
    if ask.viewer.customer not in (None, found.customer):
        raise Missing(f"batch {id}")
    return found


VIEWS = (
    PageView("/batches", "batches", batches, "batches", "customer"),
    PageView("/batches/{id}", "batch", batch, "batches", "customer"),
)
