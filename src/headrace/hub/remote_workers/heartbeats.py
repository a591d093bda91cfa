"""Beats for workers behind this hub: one write for all that were heard, and the reply to each."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import TYPE_CHECKING
from uuid import UUID

from msgspec.structs import replace

from headrace.client.api.jobs import get_many
from headrace.core.job import Job
from headrace.core.query import Filter
from headrace.core.status import HELD, Status
from headrace.engine import Alive, Beat, Dead
from headrace.engine.values import MAX_BATCH
from headrace.errors import EngineError, StoreLost, TransitionRefused
from headrace.hub.remote_workers.held_job import HeldJob, LeaseLost
from headrace.hub.remote_workers.messages import CancelJob, HeartbeatAcknowledged
from headrace.hub.remote_workers.remote_worker import RemoteWorker

if TYPE_CHECKING:
    from headrace.hub.remote_workers.fleet import Fleet

__all__ = ["Beats"]

_log = logging.getLogger("headrace.hub")

MIN_BEAT_SECONDS = 0.5
"""Minimum of seconds between two beats, while workers wait for a reply."""
_BEATS_PER_SILENCE = 2
"""Beats of this hub in the time in which a worker is to be heard once."""
_TICK_SECONDS = 0.5
"""Seconds between two checks for jobs that run out of time."""
_PAGE_JOBS = 200


class Beats:
    """Beats for the workers that this hub has heard since its last beat."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._asked: dict[RemoteWorker, list[asyncio.Future[HeartbeatAcknowledged]]] = {}
        self._wake = asyncio.Event()
        self._beating = asyncio.Lock()
        self._cancelled: set[UUID] = set()
        self._settings_rev: int | None = None
        """The rev of the settings in the reply to the last beat."""
        self._signing: asyncio.Task[None] | None = None
        """Writes signs of jobs."""

    @property
    def every(self) -> float:
        """Seconds within which a worker is to be heard again."""
        return min(self._fleet.session.engine.rules.beat, self._fleet.lease / 6)

    # -- from outside

    async def ask(self, worker: RemoteWorker) -> HeartbeatAcknowledged:
        """Return the reply to a heartbeat: that of the store to the next beat."""
        future: asyncio.Future[HeartbeatAcknowledged] = asyncio.get_running_loop().create_future()
        self._asked.setdefault(worker, []).append(future)
        self._wake.set()
        return await future

    def cancelled(self, names: Sequence[str]) -> None:
        """Note that a cancel of these jobs may have been requested."""
        if not names:
            self._cancelled.update(job for worker in self._fleet.workers.values() for job in worker.held)
        for name in names:
            with suppress(ValueError):  # anybody who may notify can send any name
                self._cancelled.add(UUID(name))
        self._wake.set()

    def hear(self, worker: RemoteWorker) -> None:
        """Note a sign of life; beat soon if the next beat comes too late for a worker that another hub has lost."""
        now, fleet = self._fleet.monotonic(), self._fleet
        if (
            worker.parted
            or now - worker.beaten_at > fleet.parting.patience - self.every / _BEATS_PER_SILENCE - MIN_BEAT_SECONDS
        ):
            self.soon(worker)
        worker.hear(now)

    def soon(self, worker: RemoteWorker) -> None:
        """Beat for this worker as if it had sent a heartbeat."""
        self._asked.setdefault(worker, [])
        self._wake.set()

    async def part(self, worker: RemoteWorker) -> None:
        """Record that a worker was cut off here, unless it was heard since, or has another connection."""
        async with self._beating:
            fleet, number = self._fleet, worker.voice.number
            if worker.parted and number is not None and worker.voice.is_sole(fleet.monotonic(), self.every):
                await fleet.parting.record(worker.id, number, fleet.parting.patience)

    def wake(self) -> None:
        """Check at once what is otherwise checked now and then."""
        self._wake.set()

    async def look(self, *workers: RemoteWorker) -> None:
        """Read what the store gives to these workers."""
        await self._given(workers)

    # -- the loop

    async def run(self) -> None:
        """Beat as often as is needed, notify workers of jobs that they must stop, and have signs written."""
        try:
            await self._run()
        finally:
            if self._signing is not None:
                self._signing.cancel()

    async def _run(self) -> None:
        host = self._fleet.session.host
        last, tick = self._fleet.monotonic(), min(_TICK_SECONDS, self.every / 4)
        while True:
            self._wake.clear()
            await host.wait(self._wake, tick)
            try:
                await self._notify_cancelled()
                await self._fleet.leaving.look(self._settings_rev)
                self._notify_late()
                self._write_signs()
                since = self._fleet.monotonic() - last
                if since >= (min(MIN_BEAT_SECONDS, self.every / 4) if self._asked else self.every / _BEATS_PER_SILENCE):
                    last = self._fleet.monotonic()
                    await self.beat()
                    self._forget()
                elif self._asked:
                    await host.sleep(min(MIN_BEAT_SECONDS, self.every / 4) - since)
                    self._wake.set()
            except StoreLost:
                raise
            except EngineError as error:
                _log.warning("beats of workers behind this hub are not acknowledged, trying on: %s", error)
                await host.sleep(tick)
            except Exception:
                _log.exception("workers behind this hub could not be beaten for")
                await host.sleep(tick)

    async def beat(self) -> None:
        """Beat once for all that were heard since the last beat."""
        async with self._beating:
            asked, self._asked = self._asked, {}
            try:
                await self._beat(asked)
            except BaseException as error:
                for future in (one for futures in asked.values() for one in futures):
                    if not future.done() and isinstance(error, Exception):
                        future.set_exception(error)
                    future.cancel()
                raise

    async def _beat(self, asked: dict[RemoteWorker, list[asyncio.Future[HeartbeatAcknowledged]]]) -> None:
        fleet, waits = self._fleet, self._fleet.claims.waits
        workers = [
            one
            for one in fleet.workers.values()
            if not one.buried and (waits(one) or (not one.parted and (one.heard or one in asked)))
        ]
        for first in range(0, len(workers), MAX_BATCH):
            await self._beat_some(workers[first : first + MAX_BATCH])
        due = fleet.session.host.clock.now() + timedelta(seconds=self.every)
        for worker, futures in asked.items():
            answer = self._answer(worker, due)
            for future in futures:
                if not future.done():
                    future.set_result(answer)

    async def _beat_some(self, workers: Sequence[RemoteWorker]) -> None:
        fleet = self._fleet
        engine, host = fleet.session.engine, fleet.session.host
        for worker in workers:
            worker.heard = False
        try:
            given = await self._given(workers)
            fleet.sums.gather()
            for worker in workers:
                fleet.sums.occupied(*worker.occupied(fleet.monotonic()), host.clock.now())
            number, finished = fleet.sums.report(workers[0].id)
            beats = {one.id: self._beat_of(one, given[one.id]) for one in workers}
            if finished:
                beats[workers[0].id] = replace(beats[workers[0].id], report=number, finished=finished)
            answers = await engine.workers.beat_many(beats, host.clock.now())
        except BaseException:
            for worker in workers:
                worker.heard = True  # they are not forgotten
            raise
        self._reported(answers.get(workers[0].id), number)
        self._settings_rev = next((one.settings_rev for one in answers.values() if isinstance(one, Alive)), None)
        now = fleet.monotonic()
        for worker in workers:
            if isinstance(answer := answers.get(worker.id), Alive):
                worker.beaten_at = now
                worker.voice.answered(answer.beats, now)
                self._notify(worker)
            else:
                worker.buried = True

    def _reported(self, answer: Alive | Dead | None, number: int) -> None:
        if isinstance(answer, Alive):
            self._fleet.sums.acknowledged(number)
        else:
            self._fleet.sums.refused()

    def _beat_of(self, worker: RemoteWorker, given: Iterable[UUID]) -> Beat:
        """Return what the worker holds: by its own list, if that is new enough, otherwise all that the store gives it.

        Only jobs that were assigned two beats ago are missed if they are not named. A word that is younger than that
        cannot leave out one that was assigned since.
        """
        rules, fleet = self._fleet.session.engine.rules, self._fleet
        named = worker.named
        if named is None or fleet.monotonic() - worker.named_at > 1.5 * rules.beat:
            held = frozenset(given)
        else:
            since = {id for id, one in worker.held.items() if one.since > worker.named_at}
            held = (frozenset(named) & frozenset(given)) | since
        return Beat(
            held=tuple(held),
            state="draining" if worker.leaving else worker.state,
            busy=len(worker.held),
            done=worker.done,
            utilisation=worker.used(fleet.monotonic()),
            renewed=worker.renewed,
        )

    # -- what the store gives

    async def _given(self, workers: Sequence[RemoteWorker]) -> dict[UUID, set[UUID]]:
        """Return the jobs that the store gives to each of these workers; update what is known of them here."""
        fleet, since = self._fleet, self._fleet.monotonic()
        records, now = fleet.session.engine.records, fleet.session.host.clock.now()
        by_id, given = {one.id: one for one in workers}, {one.id: set[UUID]() for one in workers}
        cursor, more = None, True
        while more:
            page = await records.find(Filter(status=HELD, worker=frozenset(by_id)), now, _PAGE_JOBS, cursor)
            for job in page.items:
                self._saw(by_id, given, job)
            cursor, more = page.cursor, page.cursor is not None
        lost = dict[UUID, RemoteWorker]()
        for worker in workers:
            for id, held in list(worker.held.items()):
                if id not in given[worker.id] and held.since < since and not held.lock.locked():
                    lost[id] = worker
                    fleet.drop(worker, held)
                    if worker.link is not None:
                        worker.link.push(CancelJob(job_id=id, reason="lost"))
        for found in await get_many(fleet.session, list(lost)) if lost else ():
            if (
                found is not None and found.status is Status.RETRYING
            ):  # it hung there: another worker is to try it first
                fleet.claims.failures.note(lost[found.id], found)
        return given

    def _saw(self, by_id: dict[UUID, RemoteWorker], given: dict[UUID, set[UUID]], job: Job) -> None:
        worker = None if job.worker is None else by_id.get(job.worker)
        if worker is not None and not worker.has_given_up(job.id, job.epoch):
            given[worker.id].add(job.id)
            self._fleet.hold(worker, job).saw(job)

    # -- what they must know

    def buried(self, held: tuple[UUID, ...]) -> HeartbeatAcknowledged:
        """Return the reply to a worker that was declared dead: all that it has is lost."""
        now = self._fleet.session.host.clock.now()
        return HeartbeatAcknowledged(next_heartbeat_expected=now, cancel=(), lost=held, registered=False)

    def _answer(self, worker: RemoteWorker, due: datetime) -> HeartbeatAcknowledged:
        named = worker.named or ()
        if worker.buried:
            return self.buried(named)
        return HeartbeatAcknowledged(
            next_heartbeat_expected=due,
            cancel=tuple(id for id, held in worker.held.items() if held.must_stop),
            lost=tuple(id for id in named if id not in worker.held),
            registered=True,
        )

    def _notify(self, worker: RemoteWorker) -> None:
        """Notify a worker that has a connection of the jobs that it must stop, once."""
        for id, held in worker.held.items():
            reason = held.must_stop
            if reason is not None and not held.stop_sent and worker.link is not None:
                held.stop_sent = True
                worker.link.push(CancelJob(job_id=id, reason=reason))

    async def _notify_cancelled(self) -> None:
        ids, self._cancelled = self._cancelled, set()
        if not ids:
            return
        of = {id: worker for worker in self._fleet.workers.values() for id in worker.held if id in ids}
        for job in await get_many(self._fleet.session, list(of)):
            held = None if job is None else of[job.id].held.get(job.id)
            if job is not None and held is not None and job.worker == of[job.id].id:
                held.saw(job)
                self._notify(of[job.id])

    def _notify_late(self) -> None:
        for worker in self._fleet.workers.values():
            if worker.link is not None and worker.held:
                self._notify(worker)

    def _write_signs(self) -> None:
        """Have the signs of jobs with a heartbeat written that came too soon after others.

        Beside the beats: a row that a transaction of a program keeps locked delays its own sign, and no beat.
        """
        if self._signing is not None and not self._signing.done():
            return
        held = [one for worker in self._fleet.workers.values() for one in worker.held.values()]
        due = [one for one in held if one.sign_due and not one.lock.locked()]
        self._signing = asyncio.create_task(_sign(due), name="headrace-hub-signs") if due else None

    def _forget(self) -> None:
        """Forget workers that are not heard here any more: they are dead, or behind another hub."""
        now, lease = self._fleet.monotonic(), self._fleet.lease
        for worker in list(self._fleet.workers.values()):
            gone = worker.link is None and not self._fleet.claims.waits(worker)
            if gone and now - worker.heard_at > 1.5 * lease:
                self._fleet.forget(worker)


async def _sign(held: Sequence[HeldJob]) -> None:
    """Write the signs of these jobs; one that fails is due again at the next tick."""
    for answer in await asyncio.gather(*(one.write_sign() for one in held), return_exceptions=True):
        if isinstance(answer, Exception) and not isinstance(answer, LeaseLost | TransitionRefused):
            _log.warning("the sign of a job was not stored, trying on: %s", answer)
