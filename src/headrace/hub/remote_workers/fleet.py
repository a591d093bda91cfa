"""All workers behind this hub: which of them register or are known by a token or a lease, and what each holds."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING
from uuid import UUID

from msgspec.structs import asdict

from headrace.core.auth.tokens import JobLease
from headrace.core.job import Job
from headrace.core.lifecycle.departure import Departure, How
from headrace.core.lifecycle.execution import release
from headrace.core.matching.capabilities import Capabilities
from headrace.engine import WorkerInfo, WorkerRow
from headrace.engine.bus import WORKER, Hint, Topic
from headrace.errors import HeadraceError, TransitionRefused
from headrace.http.problems import Fault, Problem
from headrace.hub.auth.caller import Caller
from headrace.hub.remote_workers.availability import Availability
from headrace.hub.remote_workers.capabilities import Wants, wants_of
from headrace.hub.remote_workers.claims import Claims
from headrace.hub.remote_workers.disconnects import Parting
from headrace.hub.remote_workers.drain import Leaving
from headrace.hub.remote_workers.estimates import Estimates
from headrace.hub.remote_workers.heartbeats import Beats
from headrace.hub.remote_workers.held_job import HeldJob, LeaseLost
from headrace.hub.remote_workers.remote_worker import RemoteWorker, gone
from headrace.runtime.signatures import Signing
from headrace.runtime.single_flight import SingleFlight
from headrace.runtime.totals import FinishTotals
from headrace.runtime.writes.writer import Writer

if TYPE_CHECKING:
    from headrace.client.session import Session
    from headrace.hub.hub import Hub
    from headrace.hub.remote_workers.peers import Peer

__all__ = ["Fleet"]

_log = logging.getLogger("headrace.hub")

VERSION = "remote"


class Fleet:
    """The workers that came to this hub, at the store."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self.workers: dict[UUID, RemoteWorker] = {}
        self.sums = FinishTotals(rising=self._rising)
        """Totals of what they have finished, until they are written."""
        self._signing: Signing | None = None
        self.estimates = Estimates(self)
        self.rows: SingleFlight[dict[UUID, WorkerRow]] = SingleFlight(self._alive)
        """The living workers, as the store has them."""
        self.claims, self.beats, self.availability = Claims(self), Beats(self), Availability(self)
        self.leaving, self.parting = Leaving(self), Parting(self)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run the loops while the hub serves."""
        session = self.session
        self._signing = Signing(session.vault, session.host, self._hub.app.settings.namespace)
        works = self.beats.run(), self.claims.run(), self.availability.run(), self.parting.run()
        loops = [asyncio.create_task(one, name="headrace-hub-work") for one in works]
        draining = asyncio.create_task(self._drain(), name="headrace-hub-work-drain")
        unlisten = session.engine.bus.listen(frozenset({Topic.READY, Topic.SETTINGS, Topic.CANCEL}), self._hinted)
        self._loops = loops
        try:
            yield
        finally:
            unlisten()
            for loop in (draining, *loops):
                loop.cancel()
            await asyncio.gather(draining, *loops, return_exceptions=True)
            await self.claims.close()
            self.estimates.close()
            with suppress(HeadraceError):
                await self.beats.beat()  # so that they have their whole lease to find another hub

    async def _drain(self) -> None:
        await self.draining.wait()
        self.claims.withdraw_all()

    @property
    def alive(self) -> bool:
        """Whether its loops run."""
        return not any(loop.done() for loop in self._loops)

    @property
    def session(self) -> Session:
        """The App's, through which all of this reaches the store."""
        return self._hub.app.session

    @property
    def writer(self) -> Writer:
        """The App's, which writes jobs."""
        return self.session.writer

    @property
    def draining(self) -> asyncio.Event:
        """Set when the hub begins to stop."""
        return self._hub.draining

    @property
    def signing(self) -> Signing:
        """What makes leases and tokens."""
        assert self._signing is not None
        return self._signing

    @property
    def lease(self) -> float:
        """Seconds of silence after which a worker counts as dead."""
        return self._hub.options.worker_lease

    @property
    def grace(self) -> float:
        """Seconds within which a disconnected worker must be back."""
        return self._hub.options.worker_grace

    def monotonic(self) -> float:
        """Return the time by which waiting is measured."""
        return self.session.host.clock.monotonic()

    def _rising(self, last: int) -> int:
        """Return the number of a report: by the time, since other hubs report for the same workers."""
        return max(last + 1, int(self.session.host.clock.now().timestamp() * 1000))

    def _hinted(self, hint: Hint) -> None:
        if hint.topic is Topic.CANCEL:
            self.beats.cancelled(hint.names)
            return
        if hint.topic is Topic.SETTINGS:
            if self.leaving.hinted(hint):
                self.beats.wake()
            self.parting.hinted(hint)
        self.claims.hinted(hint)

    # -- who it is

    async def register(self, caller: Caller, name: str, wants: Wants, concurrency: int) -> RemoteWorker:
        """Register a new worker.

        :raises Problem: 429, its key has too many
        """
        mine = sum(worker.key == caller.key for worker in self.workers.values())
        if mine >= self._hub.options.workers_per_key:
            detail = (
                f"this key has {mine} workers here: let each go on under its token, instead of registering it again"
            )
            raise Problem(429, "too-many", "Too many workers", detail, headers={"Retry-After": "10"})
        session = self.session
        host, engine = session.host, session.engine
        now = await session.writer.now()
        worker = RemoteWorker(host.dice.new_id(now), caller, self.monotonic(), name=name)
        worker.wants, worker.concurrency = wants, concurrency
        worker.voice.came(0)
        self.workers[worker.id] = worker  # counted while it registers
        worker.registered = worker.says
        try:
            await engine.workers.register(self._info(worker), now)
        except BaseException:
            del self.workers[worker.id]
            raise
        engine.bus.send(Hint(Topic.SETTINGS, (f"{WORKER}{worker.id}",)))
        return worker

    def _info(self, worker: RemoteWorker) -> WorkerInfo:
        says = worker.says
        assert says is not None
        return WorkerInfo(
            id=worker.id,
            host=worker.name or "",
            pid=0,
            started_at=self.session.host.clock.now(),
            version=VERSION,
            lease=self.lease,
            name=worker.name,
            **asdict(says),
        )

    async def known(self, peer: Peer, token: str) -> RemoteWorker:
        """Return the worker of this token, wherever it registered.

        :raises Problem: 409, it is no token of this key; 410, the store has declared it dead
        """
        caller = peer.caller
        id = await self.signing.read_token(caller.key, token)
        if id is None:
            detail = "this token is not one of this key's: register again"
            raise Problem(409, "token", "The token does not count", detail, faults=[Fault("token", detail)])
        worker = self.workers.get(id)
        if worker is None or worker.wants is None:
            row = (await self.rows()).get(id)
            if row is None:
                raise gone()
            worker = self.workers.setdefault(id, RemoteWorker(id, caller, self.monotonic()))
            worker.voice.came(row.beats)
            self._adopt(worker, caller, row)
            self.beats.soon(worker)  # it may have been cut off from another hub
            await self.beats.look(worker)
            await self.leaving.look_for(worker)
        elif worker.parted:
            row = (await self.rows()).get(id)
            if row is None:
                worker.buried = True
            else:
                worker.voice.came(row.beats)
        if worker.buried:
            raise gone()
        peer.hears(worker)
        return worker

    async def _alive(self) -> dict[UUID, WorkerRow]:
        return {row.info.id: row for row in await self.session.engine.workers.list() if row.alive}

    def _adopt(self, worker: RemoteWorker, caller: Caller, row: WorkerRow) -> None:
        """Take over the record of a worker that registered elsewhere; its key may be bound otherwise by now."""
        info, beat = row.present, row.beat
        worker.name, worker.concurrency = info.name, info.concurrency
        worker.done, worker.failed = beat.done, beat.utilisation.failed
        worker.claimed_at, worker.polled_at = beat.utilisation.claimed_at, beat.utilisation.polled_at
        can = Capabilities(info.offers, info.customers)
        worker.wants = wants_of(caller, can, info.tasks or None, info.queues)

    def listening(self) -> list[RemoteWorker]:
        """Return the workers that have a connection."""
        return [worker for worker in self.workers.values() if worker.link is not None]

    def forget(self, worker: RemoteWorker) -> None:
        """Forget a worker: it may live on behind another hub."""
        self.workers.pop(worker.id, None)

    async def retire(self, worker: RemoteWorker, how: How = How.STOPPED) -> None:
        """Let a worker go for good; it holds nothing. One that never had a job leaves no record."""
        self.forget(worker)
        departure = Departure(at=self.session.host.clock.now(), how=how) if worker.claimed_at is not None else None
        with suppress(HeadraceError):
            await self.session.engine.workers.retire(worker.id, departure=departure)

    # -- what it holds

    async def holding(self, peer: Peer, lease: JobLease) -> tuple[RemoteWorker, HeldJob]:
        """Return the job of a lease, and the worker that has it.

        :raises LeaseLost: it is no longer theirs
        """
        worker = self.workers.get(lease.worker)
        if worker is None:
            worker = self.workers[lease.worker] = RemoteWorker(lease.worker, peer.caller, self.monotonic())
            self.beats.soon(worker)
        peer.hears(worker)
        held = worker.held.get(lease.job)
        if held is not None and held.epoch == lease.epoch:
            return worker, held
        [job] = await self.session.engine.jobs.get([lease.job])
        if job is None or not job.held or (job.worker, job.epoch) != (lease.worker, lease.epoch):
            raise LeaseLost(lease.job, "it was taken back, or has ended")
        return worker, self.hold(worker, job)

    async def lease_by_name(self, caller: Caller, name: str, job: UUID) -> JobLease | None:
        """Return by which lease the worker of this name has, or last had, a job; None: that cannot be known for sure.

        Only the key that registered it may name it so. The job must not have been in the hands of another registration
        that may have the same name: a message without a lease could be about that attempt.
        """
        known = (one for one in self.workers.values() if one.key == caller.key and one.name == name)
        holders = [(one, epoch) for one in known if (epoch := one.epoch_of(job)) is not None]
        if len(holders) != 1:
            return None
        [(worker, epoch)] = holders
        held = worker.held.get(job)
        if held is not None and held.job.unstarted_losses > 0:
            return None  # offers that were lost leave no attempt that says whose they were
        if held is not None and held.job.attempt > 0 and await self._was_held_by(name, job, except_by=worker.id):
            return None
        return JobLease(job, epoch, worker.id)

    async def _was_held_by(self, name: str, job: UUID, *, except_by: UUID) -> bool:
        """Return whether a registration that had the job before may have this name; one that is gone may."""
        history = await self.session.engine.records.history(job)
        before = {one.worker for one in history.attempts if one.worker is not None} - {except_by}
        rows = await self.rows() if before else {}
        return any((row := rows.get(id)) is None or row.info.name == name for id in before)

    def hold(self, worker: RemoteWorker, job: Job, begin_by: float | None = None) -> HeldJob:
        """Note that the worker holds this job, and return it; ``begin_by``: it must begin until then."""
        held = worker.held.get(job.id)
        if held is None or held.epoch < job.epoch:
            held = worker.held[job.id] = HeldJob(job, self.writer, lambda held: self.drop(worker, held))
            worker.measure(self.monotonic())
        held.begin_by = held.begin_by or begin_by
        return held

    def drop(self, worker: RemoteWorker, held: HeldJob) -> None:
        """Note that the worker no longer holds this job."""
        if worker.held.get(held.job.id) is held:
            del worker.held[held.job.id]
            worker.measure(self.monotonic())
        worker.gave_up(held.job.id, held.epoch)

    async def give_back(self, worker: RemoteWorker, held: HeldJob) -> None:
        """Release what could not be delivered, unless it is also the reply to a repeat of the claim."""
        held.offers -= 1
        if held.offers > 0:
            return
        try:
            await held.write(release)
        except (LeaseLost, TransitionRefused):
            pass
        except HeadraceError as error:
            _log.warning(
                "job %s could not be given back, and will be when its time to accept is over: %s", held.job.id, error
            )
        finally:
            self.drop(worker, held)
