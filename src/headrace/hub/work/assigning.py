"""A job as it is offered to a worker."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.core.entry import Kind
from headrace.core.signed import Lease
from headrace.hub.wording import requirements_of
from headrace.hub.work.held import Held
from headrace.hub.work.messages import JobAssigned
from headrace.hub.work.remote_worker import RemoteWorker

if TYPE_CHECKING:
    from headrace.hub.work.peers import Peer

__all__ = ["assigned"]


async def assigned(peer: Peer, worker: RemoteWorker, held: Held, token: str | None) -> JobAssigned:
    """What a worker is told of a job that it was given."""
    fleet, job = peer.fleet, held.job
    items = 0
    if job.attempt:
        last = await fleet.session.engine.entries.tail(job.id, Kind.ITEM, limit=1, newest=True)
        items = last[0].number if last else 0
    return JobAssigned(
        job_id=job.id,
        job_type=job.task,
        priority=job.priority,
        payload=job.payload,
        requirements=requirements_of(job),
        claim_timeout=round(fleet.session.engine.rules.accept * 1000),
        estimated_processing_time=fleet.estimates.of(job.task),
        attempt=job.attempt + 1,
        lease=await fleet.signing.lease(peer.caller.key, Lease(job.id, job.epoch, worker.id)),
        queue=job.queue,
        customer_id=job.customer,
        timeout=job.timeout,
        items=items,
        token=token,
    )
