"""Batches: jobs that are counted and cancelled together, and what is submitted when the last of them has ended."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from uuid import UUID

import msgspec
from msgspec.structs import replace

from headrace.core.change import BatchTally, Change
from headrace.core.codec.record import Record
from headrace.core.defaults import Rules
from headrace.core.job import Job, Spec
from headrace.core.lifecycle import actions
from headrace.core.lifecycle.decision import tally_of_new
from headrace.core.lifecycle.submission import submit
from headrace.core.limits.rate import micros
from headrace.core.query import Page
from headrace.core.status import Verb
from headrace.errors import ConfigError, HeadraceError, TransitionRefused

__all__ = [
    "Batch",
    "BatchCallback",
    "BatchTally",
    "calls_of",
    "cancelled",
    "cursor_at",
    "customer_of",
    "follow_ups",
    "is_over",
    "is_silent",
    "may_miss_some",
    "newest_first",
    "refusal_of_member",
    "sealed",
    "stop",
    "tally_of_new",
]


class BatchCallback(msgspec.Struct, Record, frozen=True, kw_only=True):
    """A job to be submitted when a batch has ended. Its id is made with the batch, so that a repeat is the same job."""

    id: UUID
    spec: Spec
    payload_text: str
    delay: float = 0.0


class Batch(msgspec.Struct, Record, frozen=True, kw_only=True):
    """Jobs that were submitted together, as the store counts them."""

    id: UUID
    created_at: datetime
    touched_at: datetime
    """When the submitter last added to it."""
    sealed: bool = False
    """Whether all of its jobs are there; until then it does not end."""
    abandoned: bool = False
    """Whether it was sealed because its submitter added nothing for an hour: some jobs may be missing."""
    tally: BatchTally = BatchTally()
    ended_at: datetime | None = None
    """When all of its jobs were first seen ended; stays when one is retried."""
    cancelled_at: datetime | None = None
    """When it was cancelled as a whole, the last time if repeatedly: it takes no more jobs."""
    cancelled_by: str | None = None
    """Who cancelled it."""
    settled: bool = False
    """Whether its callbacks were submitted."""
    on_complete: BatchCallback | None = None
    """Submitted once when it has ended, whatever the endings of its jobs."""
    on_failure: BatchCallback | None = None
    """Submitted once when it has ended and not all of its jobs completed, or some may be missing because it was
    cancelled or abandoned."""
    customer: str | None = None
    """Its customer, as ``customer_of`` says; None: of no customer."""


def customer_of(jobs: Sequence[Job]) -> str | None:
    """Return the customer of a batch of these jobs: the one that all of them share, else None."""
    customers = {job.customer for job in jobs}
    return customers.pop() if len(customers) == 1 else None


def is_over(batch: Batch) -> bool:
    """Return whether all of its jobs are there and have ended."""
    return batch.sealed and batch.tally.ended >= batch.tally.total


def may_miss_some(batch: Batch) -> bool:
    """Return whether it may have been sealed before all of its jobs were there."""
    return batch.abandoned or batch.cancelled_at is not None


def is_silent(batch: Batch, now: datetime, rules: Rules) -> bool:
    """Return whether it is to be sealed without its submitter."""
    return not batch.sealed and batch.touched_at + timedelta(seconds=rules.batch_silence) <= now


def sealed(batch: Batch, now: datetime) -> Batch:
    """Return the batch once its submitter has added all of its jobs; a second time changes nothing."""
    return batch if batch.sealed else replace(batch, sealed=True, touched_at=max(batch.touched_at, now))


def cancelled(batch: Batch, now: datetime, by: str | None) -> Batch | None:
    """Return the batch once it is cancelled; None: there is nothing to cancel.

    This also seals it: jobs that are not there by then are never added. An abandoned batch may be over while its
    submitter may still return.
    """
    if is_over(batch) and (batch.cancelled_at is not None or not batch.abandoned):
        return None
    return replace(batch, sealed=True, cancelled_at=now, cancelled_by=by)


def refusal_of_member(batch: UUID, is_cancelled: bool, job: Job) -> HeadraceError | None:
    """Why a new job may not become one of this batch; None: it may."""
    if not is_cancelled:
        return None
    why = f"its batch {batch} was cancelled, and takes no more jobs; what is to run all the same belongs in another one"
    return TransitionRefused(job, Verb.SUBMIT, why)


def stop(job: Job, batch: Batch, now: datetime, rules: Rules) -> Change | None:
    """Stop a job of a cancelled batch; None: the job ended before, or is being stopped already."""
    if job.ended:
        return None
    return actions.cancel(job, now, rules, by=batch.cancelled_by)


_END = (1 << 62, UUID(int=(1 << 128) - 1))
"""Behind every batch."""


def cursor_at(cursor: str | None) -> tuple[int, UUID]:
    """Return the moment and the id below which a page of batches starts."""
    if cursor is None:
        return _END
    at, _, id = cursor.partition("-")
    try:
        if len(at) > 18:  # more than a store counts to
            raise ValueError
        return int(at), UUID(id)
    except ValueError:
        raise ConfigError(f"not a cursor of an earlier page: {cursor!r:.80}") from None


def newest_first(found: Sequence[Batch], limit: int) -> Page[Batch]:
    """Return a page of batches, given those below its cursor in order, and one more than fit if there is one."""
    items, more = found[:limit], len(found) > limit
    return Page(tuple(items), f"{micros(items[-1].created_at)}-{items[-1].id}" if more else None)


def follow_ups(batch: Batch, now: datetime) -> list[Job]:
    """Return the jobs that are stored at its end. Their ids came with it, so that a repeat stores the same jobs."""
    return [
        submit(
            call.id,
            replace(call.spec, created_at=now),
            call.payload_text,
            now,
            available_at=now + timedelta(seconds=call.delay),
        )
        for call in calls_of(batch)
    ]


def calls_of(batch: Batch) -> list[BatchCallback]:
    """Return the callbacks that are submitted at its end."""
    failed = may_miss_some(batch) or batch.tally.completed < batch.tally.total
    return [call for call in (batch.on_complete, batch.on_failure if failed else None) if call is not None]
