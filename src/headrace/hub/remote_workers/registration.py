"""Messages of workers about themselves: registering, claiming, heartbeats; and the message that offers a job."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from msgspec import UNSET, UnsetType

from headrace.core.auth.tokens import JobLease
from headrace.core.entry import Kind
from headrace.core.lifecycle.decision import heartbeat_of
from headrace.core.lifecycle.departure import How
from headrace.core.matching.capabilities import Capabilities, capabilities_of
from headrace.core.validation import checked_name
from headrace.http.problems import Fault, Problem
from headrace.hub.api.vocabulary import requirements_of
from headrace.hub.remote_workers.capabilities import wants_of
from headrace.hub.remote_workers.held_job import HeldJob
from headrace.hub.remote_workers.messages import (
    ClaimJob,
    Heartbeat,
    HeartbeatAcknowledged,
    JobAssigned,
    NoJob,
    RegisterWorker,
    WorkerRegistered,
)
from headrace.hub.remote_workers.peers import Peer
from headrace.hub.remote_workers.remote_worker import RemoteWorker

if TYPE_CHECKING:
    from headrace.hub.remote_workers.peers import Peer

__all__ = ["assigned", "claim_job", "heartbeat", "register_worker"]


async def assigned(peer: Peer, worker: RemoteWorker, held: HeldJob, token: str | None) -> JobAssigned:
    """Return the message that offers a job to its worker."""
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
        lease=await fleet.signing.lease(peer.caller.key, JobLease(job.id, job.epoch, worker.id)),
        queue=job.queue,
        customer_id=job.customer,
        timeout=job.timeout,
        heartbeat=heartbeat_of(job, remote=True),
        items=items,
        token=token,
    )


async def register_worker(peer: Peer, given: RegisterWorker) -> WorkerRegistered:
    """Register a worker, or know it again by its token."""
    checked_name(given.worker_id, "worker_id")
    async with peer.joining:
        if given.token is not UNSET:
            worker = await peer.fleet.known(peer, given.token)
            worker.name, worker.concurrency = given.worker_id, given.max_concurrent_jobs
            can = capabilities_of(given.capabilities)
            worker.wants = wants_of(peer.caller, can, _or_none(given.tasks), _or_none(given.queues))
            peer.joined(worker)
            peer.fleet.beats.soon(worker)  # so that every hub sees that it is back
            await peer.fleet.beats.look(worker)
        else:
            worker = await _registered(peer, given, given.max_concurrent_jobs)
    return await _welcome(peer, worker)


async def _welcome(peer: Peer, worker: RemoteWorker) -> WorkerRegistered:
    fleet = peer.fleet
    return WorkerRegistered(
        worker_id=worker.name or "",
        worker=worker.id,
        heartbeat_seconds=fleet.beats.every,
        lease_seconds=fleet.lease,
        token=await fleet.signing.token(peer.caller.key, worker.id),
    )


async def _registered(peer: Peer, given: RegisterWorker | ClaimJob, concurrency: int) -> RemoteWorker:
    can = capabilities_of({} if given.capabilities is UNSET else given.capabilities)
    wants = wants_of(peer.caller, can, _or_none(given.tasks), _or_none(given.queues))
    worker = await peer.fleet.register(peer.caller, given.worker_id, wants, concurrency)
    before = peer.joined(worker)
    if before is not None and not before.held and not before.given:
        await peer.fleet.retire(before, How.REPLACED)
    return worker


def _or_none(names: tuple[str, ...] | UnsetType) -> tuple[str, ...] | None:
    return None if names is UNSET else names


async def claim_job(peer: Peer, given: ClaimJob) -> JobAssigned | NoJob:
    """Offer a worker a job, or reply that there is none, at once or when it has waited long enough."""
    checked_name(given.worker_id, "worker_id")
    fleet, implied = peer.fleet, False
    async with peer.joining:
        worker = peer.worker(given.worker_id)
        if given.token is not UNSET:
            worker = await fleet.known(peer, given.token)
        elif worker is None or worker.buried:
            concurrency = 1 if given.max_concurrent_jobs is UNSET else given.max_concurrent_jobs
            worker, implied = await _registered(peer, given, concurrency), True
    peer.hears(worker)
    _renew(peer, worker, given)
    token = await fleet.signing.token(peer.caller.key, worker.id) if implied else None
    held = None
    try:
        held = await _waited(peer, worker, given)
        if held is None:
            if implied and worker.link is None:
                await fleet.retire(worker)
                token = None
            # A worker that has waited to the end may claim again at once: so it always has a claim.
            waited = given.wait > 0 and not worker.full and not fleet.draining.is_set()
            return NoJob(retry_after=0.0 if waited else fleet.claims.retry_after(worker), token=token)
        return await assigned(peer, worker, held, token)
    except BaseException as error:
        if isinstance(error, Problem) and error.status == 410 and given.token is UNSET and worker.link is not None:
            return await claim_job(peer, given)  # over its socket, a claim registers it anew
        if held is not None:
            await fleet.give_back(worker, held)
        elif implied and worker.link is None:
            await fleet.retire(worker)
        raise


def _renew(peer: Peer, worker: RemoteWorker, given: ClaimJob) -> None:
    """Take over what a claim says anew about its worker."""
    if given.max_concurrent_jobs is not UNSET:
        worker.concurrency = given.max_concurrent_jobs
    if given.current_load is not UNSET:
        worker.load = given.current_load
    assert worker.wants is not None
    before, said = worker.wants, (given.capabilities, given.tasks, given.queues)
    if said != worker.said and said != (UNSET, UNSET, UNSET):
        worker.said = said
        can = Capabilities(before.offers, before.customers)
        if given.capabilities is not UNSET:
            can = capabilities_of(given.capabilities)
        tasks = before.tasks if given.tasks is UNSET else given.tasks
        queues = before.queues if given.queues is UNSET else given.queues
        worker.wants = wants_of(peer.caller, can, tasks, queues)


async def _waited(peer: Peer, worker: RemoteWorker, given: ClaimJob) -> HeldJob | None:
    """Return what the worker is given, while the client is there and the hub serves."""
    fleet = peer.fleet
    request = None if given.request is UNSET else given.request
    if worker.full:
        await fleet.beats.look(worker)  # at another hub it may have ended what it was given here
        if worker.full:
            return None if request is None else fleet.claims.again(worker, request)
    waiting = fleet.claims.claim(worker, request, given.wait)
    with peer.waiting(waiting):
        timer = asyncio.get_running_loop().call_later(given.wait, fleet.claims.withdraw, waiting)
        try:
            held = await asyncio.shield(waiting.future)
        except asyncio.CancelledError:
            fleet.claims.abandon(waiting)
            raise
        finally:
            timer.cancel()
    if held is not None and peer.gone:
        await fleet.give_back(worker, held)
        return None
    return held


async def heartbeat(peer: Peer, given: Heartbeat) -> HeartbeatAcknowledged:
    """Beat for a worker, and return which of its jobs it must stop."""
    fleet = peer.fleet
    if given.token is not UNSET:
        try:
            worker = await fleet.known(peer, given.token)
        except Problem as problem:
            if problem.status != 410:
                raise
            return fleet.beats.buried(() if given.held is UNSET else given.held)
    else:
        async with peer.joining:
            found = peer.worker(given.worker_id)
        if found is None:
            detail = "say who you are: by the token of worker_registered, or over the socket that registered"
            raise Problem(400, "malformed", "The request cannot be understood", detail, faults=[Fault("token", detail)])
        worker = found
    peer.hears(worker)
    if given.held is not UNSET:
        worker.named, worker.named_at = given.held, fleet.monotonic()
    if given.load is not UNSET:
        worker.load = given.load
    if given.state is not UNSET:
        worker.state = given.state
    return await fleet.beats.ask(worker)
