"""A job that this worker owns: the only writer of what the worker has to write about it."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from datetime import datetime

from headrace.core.attempt import Completed, Ending, ErrorInfo, Failed
from headrace.core.change import Applied, Change, Conflict, Verdict
from headrace.core.job import Job
from headrace.core.lifecycle.execution import finish, release, start_may_wait, start_or_release
from headrace.core.status import Reason, Status, Verb
from headrace.errors import StoreLost, TransitionRefused, Unstorable
from headrace.logs import labels, name_of
from headrace.runtime.writes.writer import Writer
from headrace.worker.claim.permits import Permits
from headrace.worker.handler import Handler

__all__ = ["OwnedJob", "Settled"]

_log = logging.getLogger("headrace.worker")

Decide = Callable[[Job], Change | None]
Then = Callable[[bool], None]
Settled = Callable[["OwnedJob", bool], None]
"""Called with whether the last thing that the worker had written about a job was stored."""


class OwnedJob:
    """A claimed job. Writes its changes one after another: each is decided from what the one before it made.

    Verdicts count as in ``core.change.until_applied``: after a conflict (a cancel was requested, for instance) the
    change is decided again from the job returned, and after a stale one everything still to be written is dropped.
    """

    __slots__ = (
        "_completed",
        "_flying",
        "_landing",
        "_on_settled",
        "_queue",
        "_took",
        "assigned_at",
        "ended_at",
        "ending",
        "handler",
        "in_transaction",
        "items",
        "job",
        "kept",
        "over",
        "permits",
        "since",
        "started_at",
        "weight",
        "writer",
    )
    items: Sequence[Change]
    weight: int
    since: float

    def __init__(self, job: Job, handler: Handler, writer: Writer, on_settled: Settled) -> None:
        """``on_settled`` is called once, when the last change of this worker is stored or never will be."""
        self.job, self.handler = job, handler
        """The job as last known to be stored."""
        self.started_at: datetime | None = None
        """When the handler was called; the start itself may not be stored yet."""
        self.permits: Permits | None = None
        """What its claim has spent of rates, if a rate counts it: it begins in time, or not at all."""
        self.assigned_at: datetime | None = None
        """When the worker got the job, of an attempt that did not complete it: the job itself may have forgotten."""
        self.ending: Ending | None = None
        """How the attempt ended; set once, by the first that ends it."""
        self.ended_at: datetime | None = None
        """When the attempt ended."""
        self.over = False
        """Whether the last change was applied or dropped, so that this worker no longer owns the job."""
        self.kept = True
        """False once nothing more may be written about the job, for instance because it has another owner."""
        self.in_transaction = False
        """Whether a transaction of the handler may have the job: until that is over, nothing is written about it."""
        self.writer = writer
        self._on_settled, self._completed = on_settled, False
        self._took: float | None = None
        self._flying: tuple[Decide, Then | None, Change] | None = None
        self._queue: deque[tuple[Decide, Then | None]] | None = None
        self._landing: asyncio.Future[None] | None = None

    def must_start_first(self, *, beside_suspect: bool) -> bool:
        """Whether the start must be durable before the handler is called; ``beside_suspect``: a job in quarantine is
        here."""
        return not start_may_wait(self.job, beside_suspect=beside_suspect)

    @property
    def start_due(self) -> bool:
        """Whether a start that was not written so far still has to be."""
        if self.started_at is None or self.over or self.in_transaction or self._flying is not None:
            return False
        return self.job.status is not Status.RUNNING

    def write_start(self, then: Then | None = None) -> None:
        """Store the start, unless it is stored; a job that was cancelled meanwhile is handed back instead."""
        host, rules = self.writer.host, self.writer.engine.rules

        def decide(job: Job) -> Change | None:
            cancelled = job.cancel_requested_at is not None and self.started_at is None
            return start_or_release(job, self.started_at or host.clock.now(), rules, gives_back=cancelled)

        self.write(decide, then)

    async def recorded(self) -> bool:
        """Wait until the start and all changes before it are stored; whether the worker still owns the job."""
        future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self.write_start(lambda stored: None if future.done() else future.set_result(stored))
        return await future

    # -- the last change

    def finish(self, ending: Ending, at: datetime, processing_time: float | None = None) -> None:
        """Store how the run ended, together with its start if that was not stored yet. ``processing_time``: the seconds
        that the handler took, if that is not the time since the start on record."""
        self.ending, self.ended_at, self._took = ending, at, processing_time
        self.write(self._decide_end, self.settle)

    def _decide_end(self, job: Job) -> Change:
        ending, at, writer = self.ending, self.ended_at, self.writer
        assert ending is not None
        assert at is not None
        chance = 0.0
        if type(ending) is not Completed:
            chance, self.assigned_at = writer.host.dice.chance(), job.assigned_at  # for the pause before a retry
        return finish(job, ending, at, chance, writer.engine.rules, self.started_at, self._took)

    def release(self) -> None:
        """Give an unstarted job back; decided again from the stored job, this ends it if a cancel was requested."""
        host = self.writer.host
        self.write(lambda job: release(job, host.clock.now()), self.settle)

    def settle(self, stored: bool) -> None:
        """Give the job up and call ``on_settled``: its last change is stored, or never will be."""
        self.over = True
        if self._completed:  # the handler's own commit completed the job, so any other ending does not count
            self.ending, stored = Completed(self.job.result_text or "null"), True
        self._on_settled(self, stored)

    # -- one change after another

    def write(self, decide: Decide, then: Then | None = None) -> None:
        """Write the decided change after those before it; ``then`` is called with whether it was stored."""
        if self._flying is None and not self.in_transaction:
            self._send(decide, then)
        elif self._queue is None:
            self._queue = deque([(decide, then)])
        else:
            self._queue.append((decide, then))

    def _send(self, decide: Decide, then: Then | None) -> None:
        change = None
        if self.kept:
            try:
                change = decide(self.job)
            except TransitionRefused as error:
                # The job ended or was taken between two changes of this worker: there is nothing left to write.
                _log.warning("dropped: %s", error, extra=labels(self.job))
                self.kept = False
            except Exception:  # a bug in headrace: the worker must not go on owning the job because of it
                _log.exception("job %s: nothing could be decided", self.job.id, extra=labels(self.job))
                self.kept = False
        if change is not None:
            self._flying = (decide, then, change)
            self.writer.finish(change, self)
        elif then is not None:
            then(self.kept)

    def _next(self) -> None:
        while self._queue and self._flying is None and not self.in_transaction:
            self._send(*self._queue.popleft())
        if self._flying is None and self._landing is not None:
            landing, self._landing = self._landing, None
            landing.set_result(None)

    # -- while a transaction of the handler's has the job

    async def landed(self) -> None:
        """Wait until the store has replied to the change that is on its way, if one is."""
        if self._flying is not None:
            if self._landing is None:
                self._landing = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._landing)

    def take_back(self) -> None:
        """Go on with the changes that waited: the transaction is over, and the job is as it was."""
        self.in_transaction = False
        self._next()

    def completed(self, job: Job) -> None:
        """Keep the job as the handler's commit has ended it, and write nothing more."""
        self.job, self.kept, self._completed = job, False, True
        self.take_back()

    # -- the ticket of the change on its way

    def wanted(self) -> bool:
        """True: a worker does not withdraw a change that it has sent."""
        return True

    def answer(self, verdicts: Sequence[Verdict]) -> None:
        """Process the store's verdict on the change that was on its way."""
        (verdict,) = verdicts
        decide, then, change = self._landed()
        if type(verdict) is Applied and self.kept:  # most of them
            self.job = verdict.job
            if then is not None:
                then(True)
        elif isinstance(verdict, Conflict):
            self.job = verdict.job
            if self.in_transaction:  # the transaction may have changed the job: write this again when it is over
                self._queue = deque([(decide, then), *(self._queue or ())])
            else:
                self._send(decide, then)
        else:
            if self.kept:  # else the handler's own transaction has completed the job meanwhile
                self.kept = False
                # Without an attempt that ended, nothing of value is lost.
                level = logging.DEBUG if change.attempt is None else logging.WARNING
                what = "%s has another owner by now: what this worker had to say was stale"
                _log.log(level, what, name_of(self.job), extra=labels(self.job))
            if then is not None:
                then(self.kept)
        if self._queue is not None or self._landing is not None:
            self._next()

    def reject(self, error: BaseException) -> None:
        """Go on without the change that was on its way: it could not be stored."""
        _, then, change = self._landed()
        unstorable = isinstance(error, Unstorable)
        if unstorable and change.verb is Verb.PROGRESS:
            _log.warning("job %s: a report of progress was dropped: %s", self.job.id, error, extra=labels(self.job))
            if then is not None:
                then(False)
        elif unstorable and change.attempt is not None and not _is_substitute(change):
            # The result of the run cannot be stored, so the job fails, and is not retried.
            now, rules = self.writer.host.clock.now(), self.writer.engine.rules
            info = ErrorInfo(Unstorable.__name__, str(error)).cut(rules.error_limit)
            ending = Failed(error=info, reason=Reason.NON_RETRYABLE)
            self._send(lambda job: finish(job, ending, now, 0.0, rules, self.started_at), then)
        else:
            why = "the store is lost" if isinstance(error, StoreLost) else error  # logged once elsewhere, in full
            _log.error("job %s: %s could not be stored: %s", self.job.id, change.verb, why, extra=labels(self.job))
            self.kept = False  # whether it was stored is not known: the sweeper will find out
            if then is not None:
                then(False)
        self._next()

    def _landed(self) -> tuple[Decide, Then | None, Change]:
        assert self._flying is not None, "an answer without a question"
        landed, self._flying = self._flying, None
        return landed


def _is_substitute(change: Change) -> bool:
    """Whether this change already replaces an end that could not be stored."""
    return change.job.error is not None and change.job.error.type == Unstorable.__name__
