"""Claims of workers behind this hub: which of them wait, and for which the store is worth a request.

Workers that want the same share a waiting list. When there may be a job, the first claim of the list goes to the
store; if it gets one, two more go, and so on; if it gets none, no more go. So a job costs the claim that takes it, and
idle workers cost nothing, however many they are.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from datetime import datetime
from hashlib import blake2b
from itertools import islice
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from headrace.core.lifecycle.claim import ClaimRequest
from headrace.core.lifecycle.suspects import REQUIREMENT, in_quarantine
from headrace.core.matching.fit import loaded_by
from headrace.core.status import Status
from headrace.engine import Claimed, Dead, Profiles
from headrace.engine.bus import WORKER, Hint, Topic
from headrace.errors import ConfigError, EngineError, StoreLost, Unavailable
from headrace.http.problems import Problem
from headrace.hub.auth.customers import OURS
from headrace.hub.remote_workers.capabilities import Wants
from headrace.hub.remote_workers.failures import LastFailures
from headrace.hub.remote_workers.fit import Bid, Fitting, Kind
from headrace.hub.remote_workers.held_job import HeldJob
from headrace.hub.remote_workers.remote_worker import RemoteWorker, gone
from headrace.runtime.retries import Pauses

if TYPE_CHECKING:
    from headrace.hub.remote_workers.fleet import Fleet

__all__ = ["Claims", "WaitingClaim"]

_log = logging.getLogger("headrace.hub")

POLL_FIRST_SECONDS, POLL_MAX_SECONDS = 1.0, 5.0
"""Seconds between two claims for a waiting list with waiting claims, if no hint comes."""
EMPTY_CACHE_SECONDS = 0.25
"""Seconds for which a list that was given nothing is believed to get nothing, unless a hint comes."""
LEAD_SECONDS = 10.0
"""Seconds within which a job that spent a permit of a rate must be started."""
_MAX_OPEN_CLAIMS = 16
"""Maximum of claims that are sent to the store at the same time."""
_MAX_TRIES = 5
_PAUSE_SECONDS = 0.02
_FIRST_RETRY_SECONDS, _MAX_RETRY_SECONDS = 0.05, 1.0
_MAX_COMPARED_CLAIMS = 64
"""Maximum of claims of one list that are compared by the load of their workers."""
_MAX_OPEN_KINDS = 8
"""Maximum of claims of one list that are sent to the store at the same time: one for each loaded model."""


class WaitingClaim:
    """One claim that waits for its reply."""

    def __init__(self, worker: RemoteWorker, line: _WaitingList, request: int, *, patient: bool) -> None:
        self.worker, self.line, self.request, self.patient = worker, line, request, patient
        self.future: asyncio.Future[HeldJob | None] = asyncio.get_running_loop().create_future()
        self.asking = False
        """Whether a request for it is at the store."""
        self.over = False
        """Whether its worker has started what this request gave it, elsewhere maybe: there is nothing left to claim."""

    @property
    def ready(self) -> bool:
        """Whether a request for it may be sent to the store now."""
        return not self.asking and not self.over and not self.future.done()

    @property
    def kind(self) -> Kind:
        """What makes it equal to other claims, for jobs."""
        return self.line.key, self.worker.loaded  # by its list: the worker may send other capabilities meanwhile


class _WaitingList:
    """The waiting list of workers that want the same."""

    def __init__(self, key: bytes, wants: Wants) -> None:
        self.key, self.wants = key, wants
        self.waiting: deque[WaitingClaim] = deque()
        self.asking = 0
        self.dry_until = -math.inf
        self.again = False
        """Whether there may be more since the last request to the store."""
        self.poll, self.poll_at = POLL_FIRST_SECONDS, math.inf
        self.full = False
        """Whether a concurrency limit keeps a claim waiting."""
        self.next_due: datetime | None = None
        """When there may be a job, as far as the store knows."""
        self.used_at = 0.0
        self._served: tuple[int, frozenset[int], frozenset[int]] = (-1, frozenset(), frozenset())

    def serves(self, hint: Hint) -> bool:
        """Return whether a hint may concern it; that a worker has come makes no job."""
        queues = self.wants.queues
        if hint.topic is Topic.SETTINGS:
            return not hint.names or not all(name.startswith(WORKER) for name in hint.names)
        return not hint.names or queues is None or not set(queues).isdisjoint(hint.names)

    def profiles(self, known: Profiles, *, quarantine: bool) -> frozenset[int]:
        """Return the profiles to claim; ``quarantine``: also those of jobs in quarantine."""
        if self._served[0] != known.rev:
            served = [one for one in known.profiles if self.wants.serves(one)]
            plain = frozenset(one.id for one in served if REQUIREMENT not in one.requires)
            self._served = known.rev, plain, frozenset(one.id for one in served)
        return self._served[2] if quarantine else self._served[1]


class Claims:
    """The waiting lists, and the claims that are sent to the store for them."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._lines: dict[bytes, _WaitingList] = {}
        self._profiles: Profiles | None = None
        self._profiles_rev = -1
        """The newest rev that the store has reported."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._gate = asyncio.Semaphore(_MAX_OPEN_CLAIMS)
        self._wake = asyncio.Event()
        self._unheed: Callable[[], None] | None = None
        self._fitting = Fitting(lambda: fleet.session.host)
        self.failures = LastFailures()

    # -- from outside

    def claim(self, worker: RemoteWorker, request: str | None, seconds: float) -> WaitingClaim:
        """Put a claim on its waiting list. Its ``future`` gets the given job, or None when the claim is withdrawn: at
        once, if it does not wait or the hub is about to stop."""
        assert worker.wants is not None
        number = self._fleet.session.host.dice.token() if request is None else _number(worker, request)
        line, now = self._line(worker), self._fleet.monotonic()
        waiting = WaitingClaim(worker, line, number, patient=seconds > 0 and not self._fleet.draining.is_set())
        self._fleet.availability.claimed(line.key)
        if request is None and now < line.dry_until and not waiting.patient:
            waiting.future.set_result(None)
            return waiting
        line.waiting.append(waiting)
        worker.given += 1
        if all(one.job.claim != number for one in worker.held.values()):  # a repeat may be given another job
            worker.asked.add(number)
        waiting.future.add_done_callback(lambda _: self._left(waiting))
        if request is not None:  # what it was given before is its own, whatever is on the list
            self._ask_for(line, waiting)
        elif now >= line.dry_until:
            self._rouse(line, 1)
        else:
            self._plan(line)
        return waiting

    def _left(self, waiting: WaitingClaim) -> None:
        waiting.worker.given -= 1
        waiting.worker.asked.discard(waiting.request)

    def withdraw(self, waiting: WaitingClaim) -> bool:
        """Take a claim off its list; return False if a request for it is at the store: its reply is awaited."""
        if waiting.asking:
            waiting.patient = False  # if the store gives nothing, that is the reply
            return False
        self._out(waiting.line, waiting)
        if not waiting.future.done():
            waiting.future.set_result(None)
        return True

    def withdraw_all(self, worker: RemoteWorker | None = None) -> None:
        """Reply to all waiting claims, or to all of this worker."""
        for line in list(self._lines.values()):
            for waiting in list(line.waiting):
                if worker is None or waiting.worker is worker:
                    self.withdraw(waiting)

    def abandon(self, waiting: WaitingClaim) -> None:
        """Drop a claim that has no client any more: what it was given, or will be, is released."""
        self._out(waiting.line, waiting)
        if not waiting.future.cancel() and not waiting.future.cancelled() and waiting.future.exception() is None:
            held = waiting.future.result()
            if held is not None:
                self._begin(self._fleet.give_back(waiting.worker, held))

    def again(self, worker: RemoteWorker, request: str) -> HeldJob | None:
        """Return the job that the worker was given for this request and has not started."""
        number = _number(worker, request)
        given = (one for one in worker.held.values() if one.job.claim == number)
        found = next((one for one in given if one.job.status is not Status.RUNNING), None)
        if found is not None:
            found.offers += 1
        return found

    def retry_after(self, worker: RemoteWorker) -> float:
        """Return after how many seconds another claim is worthwhile for a worker that was given nothing."""
        line, clock = self._line(worker), self._fleet.session.host.clock
        if worker.full:
            return POLL_MAX_SECONDS
        due = math.inf if line.next_due is None else (line.next_due - clock.now()).total_seconds()
        return round(max(0.1, min(line.poll, due)), 3)

    def waits(self, worker: RemoteWorker) -> bool:
        """Return whether a claim of this worker waits: then the worker is there. Of a disconnected one, only claims
        that came another way count: a request for a claim of its socket may still be at the store."""
        if not worker.parted or worker.given == 0:
            return worker.given > 0
        return any(one.worker is worker and one.patient for line in self._lines.values() for one in line.waiting)

    def hinted(self, hint: Hint) -> None:
        """Send requests for the lists that a hint may concern: there may be jobs."""
        self._fleet.availability.heard(hint)
        for line in self._lines.values():
            if line.serves(hint):
                line.dry_until = -math.inf
                if line.asking:
                    line.again = True
                elif line.waiting:
                    self._rouse_each(line)

    def _heed(self) -> None:
        """Listen for freed slots as long as a limit keeps claims waiting here."""
        full = any(line.full and line.waiting for line in self._lines.values())
        if full and self._unheed is None:
            self._unheed = self._fleet.session.engine.bus.listen(frozenset({Topic.FREED}), self._freed)
        elif not full and self._unheed is not None:
            self._unheed()
            self._unheed = None

    def _freed(self, hint: Hint) -> None:
        # Jobs end all the time elsewhere: there is no request to the store for each of them.
        asyncio.get_running_loop().call_later(_PAUSE_SECONDS, self._rouse_full)

    def _rouse_full(self) -> None:
        for line in self._lines.values():
            if line.full and line.waiting and not line.asking:
                self._rouse(line, 1)

    async def run(self) -> None:
        """Send requests for waiting claims now and then, should no hint come."""
        while True:
            self._heed()
            now = self._fleet.monotonic()
            for line in list(self._lines.values()):
                if line.waiting and line.poll_at <= now:
                    line.poll_at = math.inf
                    self._rouse(line, 1)
                elif not line.waiting and not line.asking and now - line.used_at > 60:
                    del self._lines[line.key]
            soonest = min((line.poll_at for line in self._lines.values() if line.waiting), default=math.inf)
            self._wake.clear()
            await self._fleet.session.host.wait(self._wake, max(0.0, min(soonest - self._fleet.monotonic(), 30.0)))

    async def close(self) -> None:
        """Reply to all waiting claims, and send no more requests."""
        if self._unheed is not None:
            self._unheed()
        self.withdraw_all()
        if self._tasks:
            await asyncio.wait(self._tasks)

    # -- the lines

    def _line(self, worker: RemoteWorker) -> _WaitingList:
        assert worker.wants is not None
        line = self._lines.get(worker.like)
        if line is None:
            line = self._lines[worker.like] = _WaitingList(worker.like, worker.wants)
        line.used_at = self._fleet.monotonic()
        return line

    def _plan(self, line: _WaitingList, next_due: datetime | None = None) -> None:
        """Plan the next request for the list, if no hint comes."""
        session, now = self._fleet.session, self._fleet.monotonic()
        pause = line.poll * (0.75 + session.host.dice.chance() / 2)
        if next_due is not None:
            pause = min(pause, max(0.0, (next_due - session.host.clock.now()).total_seconds()) + 0.001)
        line.poll_at = min(line.poll_at, now + pause)
        self._wake.set()

    def _rouse(self, line: _WaitingList, count: int) -> None:
        """Send requests for the first ``count`` claims of the list."""
        for waiting in islice(self._ready(line), count):
            self._ask_for(line, waiting)

    def _rouse_each(self, line: _WaitingList) -> None:
        """Send a request for the first claim of each kind: a worker with a loaded model may be farther behind."""
        kinds = set[Kind]()
        for waiting in self._ready(line):
            if waiting.kind not in kinds and len(kinds) < _MAX_OPEN_KINDS:
                kinds.add(waiting.kind)
                self._ask_for(line, waiting)

    def _rouse_others(self, worker: RemoteWorker, failed: frozenset[int]) -> None:
        """Send a request for a claim of another worker, in each list that may be given these profiles."""
        assert self._profiles is not None
        for line in self._lines.values():
            if line.waiting and not failed.isdisjoint(line.profiles(self._profiles, quarantine=False)):
                other = next((one for one in self._ready(line) if one.worker.who != worker.who), None)
                if other is not None:
                    self._ask_for(line, other)

    def _ready(self, line: _WaitingList) -> Iterator[WaitingClaim]:
        """Yield the claims of the list for which a request may be sent: first those whose worker did not fail what is
        due again, and of these those with the least load."""
        found = (one for one in line.waiting if one.ready)
        first = list(islice(found, _MAX_COMPARED_CLAIMS))
        first.sort(key=lambda one: (bool(self._failed_by(one.worker)), one.worker.load))
        yield from first
        yield from found

    def _failed_by(self, worker: RemoteWorker) -> frozenset[int]:
        return self.failures.profiles(worker, self._profiles, self._fleet.session.host.clock.now())

    def _ask_for(self, line: _WaitingList, waiting: WaitingClaim) -> None:
        waiting.asking = True
        line.asking += 1
        bid = Bid(waiting.kind, waiting.worker.load, self._failed_by(waiting.worker))
        self._fitting.enter(bid, line.wants)
        self._begin(self._asked(line, waiting, bid))

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work, name="headrace-hub-claim")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _asked(self, line: _WaitingList, waiting: WaitingClaim, bid: Bid) -> None:
        held: HeldJob | None = None
        try:
            held, next_due = await self._fitted(line, waiting, bid)
        except Exception as error:
            waiting.asking, next_due = False, None
            self._out(line, waiting)
            if not waiting.future.done():
                waiting.future.set_exception(error)
            elif not isinstance(error, EngineError | Problem):
                _log.exception("a claim failed")
            if line.waiting:
                self._plan(line)  # the others still need their requests
            return
        finally:
            line.asking -= 1
        waiting.asking = False
        if held is not None:
            self._out(line, waiting)
            line.poll, line.dry_until = POLL_FIRST_SECONDS, -math.inf
            self._fleet.availability.more(line.key)
            if waiting.future.done():
                await self._fleet.give_back(waiting.worker, held)
            else:
                waiting.future.set_result(held)
            self._rouse(line, 2)
            return
        self._given_nothing(line, waiting, next_due)

    def _given_nothing(self, line: _WaitingList, waiting: WaitingClaim, next_due: datetime | None) -> None:
        if waiting.over:
            self._rouse(line, 1)  # that its request is over says nothing of the others on the list
        elif line.again:
            line.again = False
            self._ask_for(line, waiting)
            return
        else:
            line.dry_until, line.next_due = self._fleet.monotonic() + EMPTY_CACHE_SECONDS, next_due
            self._fleet.availability.dry(line.key)
            line.poll = min(line.poll * 1.5, POLL_MAX_SECONDS)
        self._out(line, waiting)
        if not waiting.future.done():
            if waiting.patient:
                line.waiting.append(waiting)  # behind the others: they may be given what this one may not
            else:
                waiting.future.set_result(None)
        if line.waiting and not waiting.over:
            self._plan(line, next_due)

    def _out(self, line: _WaitingList, waiting: WaitingClaim) -> None:
        if waiting in line.waiting:
            line.waiting.remove(waiting)

    # -- the store

    async def _fitted(
        self, line: _WaitingList, waiting: WaitingClaim, bid: Bid
    ) -> tuple[HeldJob | None, datetime | None]:
        """Return what the store gives for this claim, which first leaves to others what they are to have; and when the
        store may give something, if it gives nothing."""
        kept = set[int]()
        try:
            async with self._gate:
                held, next_due = await self._claimed(line, waiting, bid, kept)
        finally:
            self._fitting.leave(bid)
        if held is None and kept and not waiting.over:
            await self._fitting.turn(bid, line.wants, kept)
            async with self._gate:
                held, next_due = await self._claimed(line, waiting)
        return held, next_due

    async def _claimed(
        self, line: _WaitingList, waiting: WaitingClaim, bid: Bid | None = None, kept: set[int] | None = None
    ) -> tuple[HeldJob | None, datetime | None]:
        """Return what the store gives for this claim; ``bid``: of a first request, which leaves ``kept`` to others."""
        worker, session = waiting.worker, self._fleet.session
        for _ in range(_MAX_TRIES):
            ask = await self._ask(line, worker)
            if ask is None:
                return None, None
            if bid is not None and kept is not None and self._profiles is not None:
                if bid.failed:
                    self._rouse_others(worker, bid.failed)
                kept |= self._fitting.kept(bid, line.wants, self._profiles) & ask.profiles
                if kept and not (ask := replace(ask, profiles=ask.profiles - kept)).profiles:
                    return None, None
            now = await session.writer.now()
            begin_by = self._fleet.monotonic() + LEAD_SECONDS
            answer = await self._surely(worker, ask, waiting.request, now)
            if isinstance(answer, Dead):
                worker.buried = True
                raise gone()
            worker.polled_at = now
            line.again, line.full = line.again and not answer.jobs, answer.full
            self._profiles_rev = answer.profiles_rev
            if answer.jobs:
                return await self._given(worker, answer, now, begin_by), None
            if answer.over:
                waiting.over = True
                return None, None
            assert self._profiles is not None
            if answer.profiles_rev == self._profiles.rev:
                return None, answer.next_due
        return None, None

    async def _given(self, worker: RemoteWorker, answer: Claimed, now: datetime, begin_by: float) -> HeldJob | None:
        [job] = answer.jobs
        held = self._fleet.hold(worker, job, begin_by=begin_by if job.id in answer.paced else None)
        held.offers += 1
        self.failures.given(job)
        worker.claimed_at, worker.loaded = now, loaded_by(job.requires)
        self._fleet.writer.changes.tell([job])
        if job.queue.startswith(OURS):
            await self._fleet.give_back(worker, held)
            return None
        if job.spec.webhook is not None:
            self._begin(held.tell_claim())
        return held

    async def _ask(self, line: _WaitingList, worker: RemoteWorker) -> ClaimRequest | None:
        """Return the request for this worker; None: there is no job that it could be given."""
        wants, engine = line.wants, self._fleet.session.engine
        if self._profiles is None or self._profiles.rev != self._profiles_rev:
            self._profiles = await engine.documents.profiles()
            self._profiles_rev = self._profiles.rev
        runs_one = any(in_quarantine(held.job) for held in worker.held.values())
        profiles = line.profiles(self._profiles, quarantine=not runs_one)
        return ClaimRequest(
            n=1,
            free=1,
            profiles=profiles,
            queues=wants.queues,
            accept=False,
            customers=wants.customers,
            lead=LEAD_SECONDS,
        )

    async def _surely(self, worker: RemoteWorker, ask: ClaimRequest, request: int, now: datetime) -> Claimed | Dead:
        """Send a request to the store, and once more under the same number if its reply was lost."""
        pauses = Pauses(self._fleet.session.host, _FIRST_RETRY_SECONDS, 2 * _MAX_RETRY_SECONDS)
        while True:
            try:
                return await self._fleet.session.engine.jobs.claim(worker.id, ask, request, now)
            except StoreLost:
                raise
            except Unavailable as error:
                if error.outcome != "unknown" or pauses.seconds > _MAX_RETRY_SECONDS:
                    raise
                await pauses.sleep()
            except ConfigError as error:
                raise Problem(409, "mixed-queue", "A queue is not kept apart by customer", str(error)) from None


def _number(worker: RemoteWorker, request: str) -> int:
    """Return the number of a request, as the store knows it."""
    digest = blake2b(request.encode(errors="surrogatepass"), digest_size=8, key=worker.id.bytes).digest()
    return int.from_bytes(digest, "big") >> 1 or 1
