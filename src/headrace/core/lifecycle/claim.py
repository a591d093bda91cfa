"""Claiming: the order of jobs, what a worker may be given, and what a claim writes on a job."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from uuid import UUID

import msgspec
from msgspec.structs import replace

from headrace.core.defaults import Rules
from headrace.core.job import Job
from headrace.core.lifecycle.decision import dated, expired
from headrace.core.lifecycle.transitions import check
from headrace.core.matching.customers import Customers
from headrace.core.status import Status, Verb

__all__ = ["ClaimRequest", "Grant", "Order", "grant", "order", "pick", "promoted", "stops"]

Order = tuple[int, int, datetime, int]


class ClaimRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker requests."""

    n: int
    """At most this many jobs."""
    free: int
    """How many of them can be started at once; the rest would be buffered."""
    profiles: frozenset[int]
    """The interned (task, requirements) pairs it can run."""
    queues: tuple[str, ...] | None = None
    """The queues it serves; None is all."""
    accept: bool = True
    """Take the jobs as accepted at once instead of being offered them (assigned)."""
    customers: Customers | None = None
    """The customers of the jobs it takes; None: all. Otherwise all queues that it names are set ``by_customer``, and if
    it names none, it serves those that are."""
    lead: float = 0.0
    """A job that spends a permit of a rate begins within so many seconds of the claim, or is released."""


class Grant(msgspec.Struct, frozen=True):
    """What a claim writes on every job it gives away, beside rev + 1 and epoch + 1.

    Its moments hold for a job that was last changed before them; else the claim is ``dated`` by that change.
    """

    status: Status
    worker: UUID
    claim: int
    assigned_at: datetime
    accepted_at: datetime | None
    act_by: datetime

    def on(self, job: Job) -> Job:
        """Return the job as its new owner holds it."""
        check(job, Verb.CLAIM, self.status)
        at = dated(job, self.assigned_at)
        return replace(
            job,
            status=self.status,
            rev=job.rev + 1,
            epoch=job.epoch + 1,
            worker=self.worker,
            claim=self.claim,
            assigned_at=at,
            accepted_at=None if self.accepted_at is None else at,
            act_by=self.act_by,
            updated_at=at,
        )


def grant(worker: UUID, ask: ClaimRequest, request: int, now: datetime, rules: Rules) -> Grant:
    """Decide what claiming means for this request, once for all its jobs."""
    if ask.accept:
        return Grant(Status.ACCEPTED, worker, request, now, now, now + timedelta(seconds=rules.start))
    return Grant(Status.ASSIGNED, worker, request, now, None, now + timedelta(seconds=rules.accept))


def promoted(job: Job, now: datetime) -> Job:
    """Return a deferred job that is due as queued, since the moment it fell due."""
    check(job, Verb.PROMOTE, Status.QUEUED)
    return replace(job, status=Status.QUEUED, rev=job.rev + 1, arrived_at=job.available_at, updated_at=now)


def order(job: Job, queue_priority: int = 0) -> Order:
    """Return the claim order, smallest first: queue priority, then job priority, then arrival, then order number."""
    changed = job.reprioritised_to  # as ``Job.priority``, without a call: this runs several times for every job
    priority = job.spec.priority if changed is None else changed
    return (-queue_priority, -priority, job.arrived_at, job.seq)


def stops(taken: int, unstarted_losses: int, ask: ClaimRequest, rules: Rules) -> bool:
    """Return whether claiming must end before this job.

    A job that was lost unstarted too often is given only to a free slot, never to a buffer; and it is not passed over
    either, so the claim ends in front of it.
    """
    return unstarted_losses >= rules.fragile_after and taken >= ask.free


def pick(jobs: Iterable[Job], ask: ClaimRequest, now: datetime, rules: Rules) -> list[Job]:
    """Return those of claimable jobs, in order, that the request is given."""
    taken: list[Job] = []
    for job in jobs:
        if len(taken) >= ask.n or stops(len(taken), job.unstarted_losses, ask, rules):
            break
        if not expired(job, now):
            taken.append(job)
    return taken
