"""A decision about a job, taken again until the store has it: the driver of ``core.change.until_applied``."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING
from uuid import UUID

from headrace.core.change import Applied, Change, Conflict, Verdict, WasStale, until_applied
from headrace.core.job import Job
from headrace.core.lifecycle.deduplication import has_lapsed, lapse
from headrace.engine.transactions import walk_async
from headrace.errors import Duplicate, TooManyProfiles, Unavailable
from headrace.runtime.retries import Pauses
from headrace.runtime.writes.duplicates import FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS

if TYPE_CHECKING:
    from headrace.runtime.writes.writer import Writer

__all__ = ["Decide", "in_transaction", "write_decision"]

Decide = Callable[[Job, datetime], Change | None]
"""Decides about a job as it stands, at this time; None: there is nothing to change."""


def in_transaction(id: UUID) -> Unavailable:
    """The error about a job that others have locked beyond the timeout."""
    return Unavailable(f"job {id} is in a transaction that is still open: nothing was changed", ids=[id])


async def write_decision(writer: Writer, job: Job, decide: Decide) -> tuple[Change | None, Applied | WasStale]:
    """Write what is decided about a job, and decide again whenever the job moved; the last change and its verdict.

    :raises Duplicate: the dedup key that the job needs again is held by another job
    :raises TooManyProfiles: its customer has live jobs of too many pairs of task and requirements
    :raises Unavailable: the store was away, or the job in a transaction of others, beyond the timeout
    """
    host, apply = writer.host, writer.apply
    clock, pauses = host.clock, Pauses(host, FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS, timeout=writer.timeout)

    async def execute(change: Change | None) -> Verdict | None:
        if change is None:
            if not await pauses.sleep():
                raise in_transaction(job.id)
            await writer.now()
            return None
        verdict = await apply(change)
        if isinstance(verdict, Conflict):
            if verdict.too_many is not None:
                raise TooManyProfiles(verdict.too_many)
            if (holder := verdict.holder) is not None:
                if not has_lapsed(holder, clock.now()):
                    raise Duplicate(holder)
                await apply(lapse(holder, clock.now()))
                verdict = await apply(change)
        return verdict

    await writer.now()
    return await walk_async(until_applied(job, lambda job: decide(job, clock.now())), execute)
