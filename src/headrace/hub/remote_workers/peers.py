"""Who a message comes from: a worker at the other end of a socket, or whoever sent a request."""

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
from headrace.hub.remote_workers.held_job import LeaseLost
from headrace.hub.remote_workers.messages import JobAssigned, OfJob
from headrace.hub.remote_workers.remote_worker import RemoteWorker

if TYPE_CHECKING:
    from headrace.hub.hub import Hub
    from headrace.hub.remote_workers.fleet import Fleet

__all__ = ["Peer", "SocketPeer"]


class Peer:
    """Whoever sent a request: known by what the request carries, and by nothing else."""

    def __init__(self, hub: Hub, caller: Caller) -> None:
        self.hub, self.caller = hub, caller
        self.gone = False
        """Whether nobody is there any more to hear an answer."""
        self.joining = asyncio.Lock()
        """Had while it is being found out who a worker is: of messages that come right after another, one registers."""
        self._waiting: set[WaitingClaim] = set()

    @property
    def fleet(self) -> Fleet:
        """The workers behind this hub."""
        return self.hub.fleet

    @contextmanager
    def waiting(self, claim: WaitingClaim) -> Iterator[None]:
        """While a claim waits for its answer, for as long as somebody is there to hear it."""
        self._waiting.add(claim)
        try:
            if self.gone:
                self.fleet.claims.withdraw(claim)
            yield
        finally:
            self._waiting.discard(claim)

    def leave(self) -> None:
        """Nobody is there any more."""
        self.gone = True
        for claim in list(self._waiting):
            self.fleet.claims.withdraw(claim)

    def hears(self, worker: RemoteWorker) -> None:
        """Note a sign of life of this worker."""
        self.fleet.beats.hear(worker)

    def worker(self, worker_id: str | UnsetType) -> RemoteWorker | None:
        """The worker that registered here before, by its name; None: it must say who it is."""
        return None

    def joined(self, worker: RemoteWorker) -> RemoteWorker | None:
        """A worker has registered, or is known again; the one whose place it takes."""
        return None

    async def lease(self, given: OfJob) -> JobLease:
        """The lease by which a message speaks of a job.

        :raises Problem: 400, it has none; 409, it is none of this key
        :raises Stale: no worker at this socket has the job
        """
        if given.lease is UNSET:
            return self.leased(given)
        lease = await self.fleet.signing.read_lease(self.caller.key, given.lease)
        if lease is None:
            detail = "this lease is not one of this key's"
            raise Problem(409, "lease", "The lease does not count", detail, faults=[Fault("lease", detail)])
        if given.job_id is not UNSET and id_of(given.job_id) != lease.job:
            detail = "the lease is that of another job"
            raise Problem(409, "lease", "The lease does not count", detail, faults=[Fault("job_id", detail)])
        return lease

    async def undelivered(self, answer: Any) -> None:
        """Give a job back of which the worker cannot be told."""
        if isinstance(answer, JobAssigned):
            lease = await self.fleet.signing.read_lease(self.caller.key, answer.lease)
            with suppress(LeaseLost):
                if lease is not None:
                    await self.fleet.give_back(*await self.fleet.holding(self, lease))

    def leased(self, given: OfJob) -> JobLease:
        """The lease of a message that carries none; raises like ``lease``."""
        detail = "say by which lease you have the job: the one of its job_assigned"
        raise Problem(400, "malformed", "The request cannot be understood", detail, faults=[Fault("lease", detail)])


class SocketPeer(Peer):
    """The other end of a socket. The workers that registered over it need say no more who they are."""

    def __init__(self, hub: Hub, caller: Caller, push: Any) -> None:
        super().__init__(hub, caller)
        self.workers: dict[str, RemoteWorker] = {}
        self.push = push
        """Sends a message of its own accord."""
        self._cut_off: bool | None = None
        """Whether it was without a goodbye that it closed; None: it is open."""

    def worker(self, worker_id: str | UnsetType) -> RemoteWorker | None:
        """The worker of this name; of one that is the only one, the name may be left out."""
        if worker_id is UNSET:
            return next(iter(self.workers.values())) if len(self.workers) == 1 else None
        return self.workers.get(worker_id)

    def joined(self, worker: RemoteWorker) -> RemoteWorker | None:
        """Talk to this worker over this socket from now on; the one of this name to which it talked before."""
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
            held.told_to_stop = False
        if before is None or before is worker:
            return None
        before.detach(self)
        return before

    def leased(self, given: OfJob) -> JobLease:
        """The lease of a job that was given to a worker at this socket, by the id of the job."""
        if given.job_id is UNSET:
            return super().leased(given)
        id = id_of(given.job_id)
        for worker in self.workers.values():
            if given.worker_id in (UNSET, worker.name) and (epoch := worker.epoch_of(id)) is not None:
                return JobLease(id, epoch, worker.id)
        raise LeaseLost(id, "no worker at this socket has this job")

    @property
    def busy(self) -> bool:
        """Whether a worker at this socket has a job, or waits for one."""
        return any(worker.held or worker.given for worker in self.workers.values())

    def close(self, cut_off: bool) -> None:
        """It is gone; ``cut_off``: without a goodbye, of which the workers at its end may have died."""
        self.leave()
        self._cut_off = cut_off
        for worker in self.workers.values():
            if worker.detach(self) and cut_off:
                self.fleet.parting.near(worker)

    def hears(self, worker: RemoteWorker) -> None:
        """Note a sign of life of this worker, unless it died meanwhile: what a socket brought before its end tells of
        nothing that came after it."""
        if not self.gone:
            super().hears(worker)
