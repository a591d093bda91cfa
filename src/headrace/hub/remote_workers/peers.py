"""The sender of a message: a worker at the other end of a socket, or the client of a request."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from msgspec import UNSET, UnsetType

from headrace.core.auth.tokens import JobLease
from headrace.core.defaults import MAX_SOCKET_WORKERS
from headrace.http.problems import Fault, Problem, id_of
from headrace.hub.auth.caller import Caller
from headrace.hub.remote_workers.claims import WaitingClaim
from headrace.hub.remote_workers.held_job import HeldJob, LeaseLost
from headrace.hub.remote_workers.messages import JobAssigned, OfJob
from headrace.hub.remote_workers.remote_worker import RemoteWorker

if TYPE_CHECKING:
    from headrace.hub.hub import Hub
    from headrace.hub.remote_workers.fleet import Fleet

__all__ = ["Peer", "SocketPeer"]


class Peer:
    """The client of a request: known by what the request carries, and by nothing else."""

    def __init__(self, hub: Hub, caller: Caller) -> None:
        self.hub, self.caller = hub, caller
        self.gone = False
        """Whether the client is gone, so that no reply reaches it."""
        self.joining = asyncio.Lock()
        """Held while the worker of a message is identified: of several messages at once, one registers."""
        self._waiting: set[WaitingClaim] = set()

    @property
    def fleet(self) -> Fleet:
        """The workers behind this hub."""
        return self.hub.fleet

    @contextmanager
    def waiting(self, claim: WaitingClaim) -> Iterator[None]:
        """Withdraw the claim if the client leaves while it waits."""
        self._waiting.add(claim)
        try:
            if self.gone:
                self.fleet.claims.withdraw(claim)
            yield
        finally:
            self._waiting.discard(claim)

    def leave(self) -> None:
        """Note that the client is gone, and withdraw its claims."""
        self.gone = True
        for claim in list(self._waiting):
            self.fleet.claims.withdraw(claim)

    def hears(self, worker: RemoteWorker) -> None:
        """Note a sign of life of this worker."""
        self.fleet.beats.hear(worker)

    def worker(self, worker_id: str | UnsetType) -> RemoteWorker | None:
        """Return the worker that registered here before, by its name; None: the message must identify it."""
        return None

    def joined(self, worker: RemoteWorker) -> RemoteWorker | None:
        """Note that a worker has registered, or is known again; return the one that it replaces."""
        return None

    async def lease(self, given: OfJob) -> JobLease:
        """Return the lease of the job that a message is about.

        :raises Problem: 400, it has none; 409, it is none of this key
        :raises LeaseLost: no worker at this socket has the job
        """
        if given.lease is UNSET:
            return await self.leased(given)
        lease = await self.fleet.signing.read_lease(self.caller.key, given.lease)
        if lease is None:
            detail = "this lease is not one of this key's"
            raise Problem(409, "lease", "The lease does not count", detail, faults=[Fault("lease", detail)])
        if given.job_id is not UNSET and id_of(given.job_id) != lease.job:
            detail = "the lease is that of another job"
            raise Problem(409, "lease", "The lease does not count", detail, faults=[Fault("job_id", detail)])
        return lease

    async def held(self, given: OfJob) -> HeldJob:
        """Return the job that a message is about; raises like ``lease``."""
        return (await self.fleet.holding(self, await self.lease(given)))[1]

    async def undelivered(self, answer: Any) -> None:
        """Release a job that could not be sent to the worker."""
        if isinstance(answer, JobAssigned):
            lease = await self.fleet.signing.read_lease(self.caller.key, answer.lease)
            with suppress(LeaseLost):
                if lease is not None:
                    await self.fleet.give_back(*await self.fleet.holding(self, lease))

    async def leased(self, given: OfJob) -> JobLease:
        """Return the lease for a message that carries none, but names a job and a worker; raises like ``lease``."""
        if given.job_id is UNSET or given.worker_id is UNSET:
            detail = "say by which lease you have the job: the one of its job_assigned"
            raise Problem(400, "malformed", "The request cannot be understood", detail, faults=[Fault("lease", detail)])
        id = id_of(given.job_id)
        lease = await self.fleet.lease_by_name(self.caller, given.worker_id, id)
        if lease is None:
            raise LeaseLost(id, "no worker of this name and key is known here to have the job: say by which lease")
        return lease


class SocketPeer(Peer):
    """The other end of a socket. The workers that registered over it need not identify themselves again."""

    def __init__(self, hub: Hub, caller: Caller, push: Any) -> None:
        super().__init__(hub, caller)
        self.workers: dict[str, RemoteWorker] = {}
        self.push = push
        """Sends a message that is no reply."""
        self._cut_off: bool | None = None
        """Whether it closed without a close frame; None: it is open."""

    def worker(self, worker_id: str | UnsetType) -> RemoteWorker | None:
        """Return the worker of this name; the name of an only one may be left out."""
        if worker_id is UNSET:
            return next(iter(self.workers.values())) if len(self.workers) == 1 else None
        return self.workers.get(worker_id)

    def joined(self, worker: RemoteWorker) -> RemoteWorker | None:
        """Use this socket for this worker from now on; return the worker of this name that used it before."""
        name = worker.name or ""
        if name not in self.workers and len(self.workers) >= MAX_SOCKET_WORKERS:
            detail = f"a socket may have {MAX_SOCKET_WORKERS} workers: open another one"
            raise Problem(429, "too-many", "Too many workers", detail, headers={"Retry-After": "10"})
        before, self.workers[name] = self.workers.get(name), worker
        if self._cut_off is not None:  # it was gone before this was known
            if self._cut_off:
                self.fleet.parting.near(worker)
            return None
        worker.attach(self)
        for held in worker.held.values():
            held.stop_sent = False
        if before is None or before is worker:
            return None
        before.detach(self)
        return before

    async def leased(self, given: OfJob) -> JobLease:
        """Return the lease of a job that was given to a worker at this socket, by the id of the job."""
        if given.job_id is UNSET:
            return await super().leased(given)
        id = id_of(given.job_id)
        for worker in self.workers.values():
            if given.worker_id in (UNSET, worker.name) and (epoch := worker.epoch_of(id)) is not None:
                return JobLease(id, epoch, worker.id)
        if given.worker_id is UNSET:
            raise LeaseLost(id, "no worker at this socket has this job")
        return await super().leased(given)

    @property
    def busy(self) -> bool:
        """Whether a worker at this socket has a job, or waits for one."""
        return any(worker.held or worker.given for worker in self.workers.values())

    def close(self, cut_off: bool) -> None:
        """Close it; ``cut_off``: without a close frame, so that its workers may have died."""
        self.leave()
        self._cut_off = cut_off
        for worker in self.workers.values():
            if worker.detach(self) and cut_off:
                self.fleet.parting.near(worker)

    def hears(self, worker: RemoteWorker) -> None:
        """Note a sign of life of this worker, unless the socket has closed: it proves nothing about the time after."""
        if not self.gone:
            super().hears(worker)
