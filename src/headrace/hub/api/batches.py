"""Operations about batches: list, show and cancel them, and list their jobs."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated
from uuid import UUID

import msgspec

from headrace.client.api.filters import Filters
from headrace.core.batch import Batch, BatchCallback
from headrace.core.change import BatchTally
from headrace.errors import JobNotFound
from headrace.hub.api.documents import JobPage, no_such, page_view
from headrace.hub.api.filters import SaidStatus, filters_in
from headrace.hub.server.operation import Operation, OperationReply, OperationRequest, operations_of

__all__ = ["OPERATIONS", "BatchPage", "BatchView", "CancelledBatch", "Follow", "batch_of"]

Limit = Annotated[int, msgspec.Meta(ge=1, le=1000)]


class Follow(msgspec.Struct, frozen=True):
    """A job that is submitted when a batch has ended."""

    job_id: UUID
    task: str


class BatchView(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs that were submitted together, as the store counts them."""

    id: UUID
    customer: str | None
    """Its customer, if all of its jobs belong to one."""
    created_at: datetime
    sealed: bool
    """Whether all of its jobs are stored; until then it does not end."""
    abandoned: bool
    """Whether it was sealed because its submitter added nothing for an hour: some jobs may be missing."""
    tally: BatchTally
    ended_at: datetime | None
    cancelled_at: datetime | None
    cancelled_by: str | None
    on_complete: Follow | None
    """Submitted when it has ended, whether its jobs completed or not."""
    on_failure: Follow | None
    """Submitted when it has ended and not all of its jobs completed."""

    @classmethod
    def of(cls, batch: Batch, customer: str | None) -> BatchView:
        """Return a batch as a caller of this customer, or of none, sees it."""
        same = ("id", "customer", "created_at", "sealed", "abandoned", "tally", "ended_at", "cancelled_at")
        return cls(
            **{name: getattr(batch, name) for name in same},
            cancelled_by=batch.cancelled_by,
            on_complete=_follow(batch.on_complete, customer),
            on_failure=_follow(batch.on_failure, customer),
        )


def _follow(call: BatchCallback | None, customer: str | None) -> Follow | None:
    """Return the follow-up, if the caller may see it: it may belong to another customer, or to none."""
    if call is None or customer not in (None, call.spec.customer):
        return None
    return Follow(call.id, call.spec.task)


class BatchPage(msgspec.Struct, frozen=True):
    """Some batches, and where the next ones begin."""

    items: tuple[BatchView, ...]
    cursor: str | None
    """Pass it for the next page; null at the end."""


class CancelledBatch(msgspec.Struct, frozen=True):
    """A batch that was cancelled."""

    batch: BatchView
    jobs: int
    """How many of its jobs had not ended."""


class BatchesAsked(msgspec.Struct, frozen=True, kw_only=True):
    """A page of batches."""

    limit: Limit = 50
    cursor: str | None = None


class MembersAsked(msgspec.Struct, frozen=True, kw_only=True):
    """A page of the jobs of a batch."""

    status: tuple[SaidStatus, ...] | None = None
    limit: Limit = 50
    cursor: str | None = None


async def list_batches(ask: OperationRequest) -> OperationReply:
    """Return the caller's batches, newest first."""
    customer = ask.caller.customer
    page = await ask.hub.app.batches.list(limit=ask.query.limit, cursor=ask.query.cursor, customer=customer)
    return OperationReply(BatchPage(tuple(BatchView.of(one, customer) for one in page.items), page.cursor))


async def get_batch(ask: OperationRequest) -> OperationReply:
    """Return one batch."""
    return OperationReply(BatchView.of(await batch_of(ask, ask.path["id"]), ask.caller.customer))


async def cancel_batch(ask: OperationRequest) -> OperationReply:
    """Cancel those jobs of a batch that have not ended."""
    handle = ask.hub.app.batches.handle((await batch_of(ask, ask.path["id"])).id)
    live = await handle.cancel(by=ask.caller.name)
    return OperationReply(CancelledBatch(BatchView.of(await handle.refresh(), ask.caller.customer), live))


async def jobs_of_batch(ask: OperationRequest) -> OperationReply:
    """Return a page of a batch's jobs."""
    batch, asked = await batch_of(ask, ask.path["id"]), ask.query
    filters: Filters = {**filters_in(ask, asked), "batch": batch.id}
    return OperationReply(page_view(await ask.hub.app.jobs.list(limit=asked.limit, cursor=asked.cursor, **filters)))


async def batch_of(ask: OperationRequest, text: str) -> Batch:
    """Return the batch with this id; :raises Problem: 404, it is missing, or another customer's"""
    nothing = no_such("batch", f"no batch {text!r}")
    try:
        batch = await ask.hub.app.batches.handle(UUID(text)).refresh()
    except (ValueError, JobNotFound):
        raise nothing from None
    if ask.caller.customer not in (None, batch.customer):
        raise nothing
    return batch


_ID = "019a8b3f-9d20-7b11-8c3e-64b0d7e1a2f0"
_VIEW = {
    "id": _ID,
    "customer": "customer-123",
    "created_at": "2026-11-16T10:00:00Z",
    "sealed": True,
    "abandoned": False,
    "tally": {"total": 100, "completed": 60, "failed": 1, "cancelled": 0},
    "ended_at": None,
    "cancelled_at": None,
    "cancelled_by": None,
    "on_complete": {"job_id": "019a8b3f-9d21-7c0f-9d5e-0d1f2c3b4a59", "task": "report"},
    "on_failure": None,
}

_batch_of = operations_of("/api/batches/{id}", {"id": _ID}, BatchView, _VIEW, bounded="batch", words=True)

OPERATIONS = (
    Operation(
        path="/api/batches",
        summary="Batches, newest first",
        scope="read",
        bounded="found",
        do=list_batches,
        query=BatchesAsked,
        words=True,
        gives={200: BatchPage},
        answered={"items": [_VIEW], "cursor": None},
    ),
    _batch_of("GET", "One batch, with its counts", "read", get_batch),
    _batch_of(
        "GET /jobs",
        "The jobs of a batch, newest first",
        "read",
        jobs_of_batch,
        query=MembersAsked,
        gives={200: JobPage},
        answered={"items": [], "cursor": None},
    ),
    _batch_of(
        "POST /cancel",
        "Cancel the jobs of a batch that have not ended; it takes no more",
        "act",
        cancel_batch,
        gives={200: CancelledBatch},
        answered={
            "batch": _VIEW
            | {
                "cancelled_at": "2026-11-16T10:05:00Z",
                "cancelled_by": "ops",
                "tally": {"total": 100, "completed": 60, "failed": 1, "cancelled": 39},
                "ended_at": "2026-11-16T10:05:00Z",
            },
            "jobs": 39,
        },
    ),
)
