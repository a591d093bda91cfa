"""A job that a worker behind this hub holds: every change that the hub makes to it passes here, one after another."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Literal
from uuid import UUID

from headrace.core.attempt import Attempt, Ending, Progress
from headrace.core.change import Change, WasStale
from headrace.core.job import Job
from headrace.core.lifecycle.decision import heartbeat_of
from headrace.core.lifecycle.execution import finish, progress, sign, start_or_release
from headrace.core.status import Status
from headrace.core.webhooks.delivery import claim_told
from headrace.errors import HeadraceError
from headrace.runtime.writes.decision import Decide, write_decision
from headrace.runtime.writes.writer import Writer
from headrace.worker.execution.signs import SignThrottle
from headrace.worker.execution.writers import ReportThrottle

__all__ = ["HeldJob", "LeaseLost"]

_log = logging.getLogger("headrace.hub")


class LeaseLost(Exception):
    """The job is no longer this worker's: its messages about it do not count."""

    def __init__(self, job: UUID, detail: str) -> None:
        super().__init__(detail)
        self.job, self.detail = job, detail


class HeldJob:
    """A job at one epoch. What is written is decided from the job as last seen, and again if it moved since."""

    def __init__(self, job: Job, writer: Writer, lost: Callable[[HeldJob], None] = lambda held: None) -> None:
        """``lost`` is called when the worker is found to hold the job no longer."""
        self._lost = lost
        self.job, self.epoch = job, job.epoch
        """The job as last known to be stored."""
        self.begin_by: float | None = None
        """Until when it must begin, by monotonic time, if it spent a permit of a rate."""
        self.offers = 0
        """Claims that got it as their reply: more than one, if the claim was repeated."""
        self.since = writer.host.clock.monotonic()
        self.lock = asyncio.Lock()
        """Held by the writer of a change: messages about one job are served in the order in which they came."""
        self.ending = False
        """Whether the worker has sent how it ended."""
        self._reports = ReportThrottle()
        heartbeat = heartbeat_of(job, remote=True)
        self._signs = None if heartbeat is None else SignThrottle(heartbeat, self.since)
        self.stop_sent = False
        """Whether the worker was sent a request to stop."""
        self.writer = writer

    @property
    def must_stop(self) -> Literal["cancelled", "timeout"] | None:
        """Why the worker must stop, as far as is known here; None: it may go on."""
        if self.job.cancel_requested_at is not None:
            return "cancelled"
        at = self.job.timeout_at if self.job.status is Status.RUNNING else None
        return "timeout" if at is not None and at <= self.writer.host.clock.now() else None

    def saw(self, job: Job) -> None:
        """Note the job as it was read elsewhere, unless a newer one is known."""
        if job.epoch == self.epoch and job.rev >= self.job.rev and not self.lock.locked():
            self.job = job

    async def write(self, decide: Decide) -> Job:
        """Write what is decided, with the lock taken; return the job that came of it.

        :raises LeaseLost: another worker has the job, or it has ended
        :raises TransitionRefused: the lifecycle refuses it
        """
        async with self.lock:
            return await self.written(decide)

    async def written(self, decide: Decide) -> Job:
        """Do the same for a caller that has the lock."""

        def decide_held(job: Job, now: datetime) -> Change | None:
            self.job = job
            if not job.held or job.epoch != self.epoch:  # a message that was served before this one ended it
                raise self.stale(_why(job))
            return decide(job, now)

        _, verdict = await write_decision(self.writer, self.job, decide_held)
        if isinstance(verdict, WasStale):
            raise self.stale(_why(verdict.job))
        self.job = verdict.job
        return self.job

    async def tell_claim(self) -> None:
        """Store the messages of the claim for webhooks that want them; what it cannot store goes with the next change
        of the job."""
        try:
            await self.write(lambda job, now: claim_told(job))
        except (LeaseLost, HeadraceError) as error:
            _log.debug("the claim of job %s is told with its next change: %s", self.job.id, error)

    async def started(self) -> Job:
        """Record its start and return the job; the caller has the lock.

        :raises LeaseLost: a rate let it begin at another time, and it is given back
        """

        def decide(job: Job, now: datetime) -> Change | None:
            late = self.begin_by is not None and self.writer.host.clock.monotonic() > self.begin_by
            return start_or_release(job, now, self.writer.engine.rules, gives_back=late, remote=True)

        job = await self.written(decide)
        if job.status is not Status.RUNNING:
            raise self.stale("a rate let it begin, but it did not in time; it was given back")
        return job

    def stale(self, why: str) -> LeaseLost:
        """Note that the worker holds the job no longer, and return the error to be raised."""
        self._lost(self)
        return LeaseLost(self.job.id, why)

    async def report(self, report: Progress) -> None:
        """Record the progress of the job: the newest report, not too often, and none once the end is known."""
        clock, rules, self._reports.newest = self.writer.host.clock, self.writer.engine.rules, report
        if self._signs is not None:
            self._signs.last_at = clock.monotonic()
        if (wait := self._reports.wait(clock.monotonic())) > 0:
            await self.writer.host.sleep(wait)
        async with self.lock:
            if not self.ending and (newest := self._reports.take(clock.monotonic())) is not None:
                await self.started()
                monotonic = clock.monotonic()
                await self.written(lambda job, now: progress(job, now, newest, rules, remote=True))
                if self._signs is not None:
                    self._signs.written(monotonic)

    async def signed(self) -> None:
        """Note that the worker said something of the job: it is written at once, or as soon as it may be."""
        if self._signs is not None:
            self._signs.last_at = self.writer.host.clock.monotonic()
            if self.sign_due:
                await self.write_sign()

    @property
    def sign_due(self) -> bool:
        """Whether a sign is to be written now, if the job is on record as running."""
        signs = self._signs
        return signs is not None and signs.is_unwritten and signs.wait(self.writer.host.clock.monotonic()) <= 0

    async def write_sign(self) -> None:
        """Write the last sign; :raises LeaseLost: the worker holds the job no longer"""
        signs, clock, rules = self._signs, self.writer.host.clock, self.writer.engine.rules
        async with self.lock:
            if signs is None or self.ending or not self.sign_due or self.job.status is not Status.RUNNING:
                return
            monotonic = clock.monotonic()
            at = clock.now() - timedelta(seconds=monotonic - signs.last_at)
            await self.written(lambda job, _: sign(job, at, rules, remote=True))
            signs.written(monotonic)

    async def finish(
        self, ends: Callable[[Job, datetime], Ending], took: float | None, *, starts: bool
    ) -> tuple[Job, Attempt | None]:
        """Write how the attempt ended; return the job as it is then, and the attempt as it is on record, if it is.

        ``starts``: its start is written along if that is not on record.
        """
        writer, chance, closed = self.writer, self.writer.host.dice.chance(), list[Attempt | None]()

        def decide(job: Job, now: datetime) -> Change:
            began = None
            if starts:
                began = now if took is None else max(job.assigned_at or now, _before(now, took))
            change = finish(job, ends(job, now), now, chance, writer.engine.rules, began, took)
            closed.append(change.attempt)
            return change

        self.ending = True
        try:
            job = await self.write(decide)
        except BaseException:
            self.ending = False
            raise
        return job, closed[-1]


def _before(now: datetime, seconds: float) -> datetime:
    try:
        return now - timedelta(seconds=seconds)
    except OverflowError:
        return now


def _why(job: Job | None) -> str:
    if job is None:
        return "the job is gone"
    if job.ended:
        return f"the job has ended: {job.status}"
    return "the job was taken back, and is in other hands" if job.held else f"the job was taken back: {job.status}"
