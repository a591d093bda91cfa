"""A decided transition with its effects, as a value; and an engine's verdicts on it."""

from __future__ import annotations

from collections.abc import Callable, Generator
from datetime import datetime
from enum import StrEnum
from typing import ClassVar
from uuid import UUID

import msgspec

from headrace.core.attempt import Attempt, Event
from headrace.core.codec.record import Record
from headrace.core.job import Job
from headrace.core.status import Verb
from headrace.errors import Unavailable

__all__ = [
    "Applied",
    "BatchTally",
    "Change",
    "Conflict",
    "KeyEffect",
    "LeftOut",
    "Note",
    "Verdict",
    "WasStale",
    "judge",
    "until_applied",
]

_MAX_MOVES = 50
"""How often a job may move on while a decision about it is being written."""


class KeyEffect(StrEnum):
    """What becomes of the job's dedup key with a change."""

    KEEP = "keep"
    TAKE = "take"
    RELEASE = "release"


class Note(StrEnum):
    """A message to other jobs, stored with the change that causes it and processed after it."""

    ENDED = "ended"
    """For the jobs that wait for this one. A store keeps it only if another job was stored to wait for this one."""
    CANCELLED = "cancelled"
    """For the children of this job."""
    WAITS = "waits"
    """For the job itself: the jobs it waits for may have ended already."""
    STOPPED = "stopped"
    """For the jobs of a cancelled batch; the only note that belongs to a batch and not to a job."""


class BatchTally(msgspec.Struct, Record, frozen=True):
    """How many jobs a batch has, and how many of them ended in which way."""

    total: int = 0
    completed: int = 0
    failed: int = 0
    cancelled: int = 0

    @property
    def ended(self) -> int:
        """How many have ended, in whatever way."""
        return self.completed + self.failed + self.cancelled

    @property
    def live(self) -> int:
        """How many have not ended."""
        return self.total - self.ended

    def plus(self, other: BatchTally) -> BatchTally:
        """The sum of both."""
        return BatchTally(
            self.total + other.total,
            self.completed + other.completed,
            self.failed + other.failed,
            self.cancelled + other.cancelled,
        )


class Change(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A transition: makes ``job`` of the stored one if that is still at ``rev`` (and, for a worker's change, its own).

    The change is complete: an engine writes all of it in one commit and derives nothing more from it.
    """

    verb: Verb
    rev: int
    """The rev the decision was made from."""
    job: Job
    """What becomes of it; carries its new rev."""
    epoch: int | None = None
    """With ``worker``: the owner this change speaks for. None: nobody's, judged by rev alone."""
    worker: UUID | None = None
    attempt: Attempt | None = None
    """The attempt this change closes; a record of the same number folds it in (``Attempt.fold``)."""
    key: KeyEffect = KeyEffect.KEEP
    moves: bool = False
    """It stands in another line than before, or at another priority: ``queue``, ``priority`` or
    ``core.lifecycle.suspects.requirements_of`` the job are others. An engine stores the new place with the change."""
    event: Event | None = None
    """An entry for the audit trail of the job."""
    notes: tuple[Note, ...] = ()
    """What other jobs must learn of; ``Note.ENDED`` is stored only if another job was stored to wait for this one."""
    tally: BatchTally | None = None
    """What is added to the counts of the job's batch; None: nothing, or the job is in no batch."""
    inserts: tuple[Job, ...] = ()
    """New jobs that follow from this change. Each is stored as ``insert`` stores it, and none is refused for want of a
    profile. One that ``insert`` would answer with a duplicate is not stored: that one stands for it. One that it would
    refuse for another reason is ``LeftOut``."""
    merges: UUID | None = None
    """The id of a submit whose payload the job has from now on. With the change its payload is written, and the job is
    known by this id as well: ``insert`` of a job of this id is answered with it. No other change writes the payload."""
    id: int = 0
    """Names this one write, so that a repeat after a lost reply is recognised; stamped by whoever writes it."""


class LeftOut(msgspec.Struct, Record, frozen=True):
    """A job that should have been stored with a change, and was refused. It is on record with the job of the change."""

    id: UUID
    """The id that it would have."""
    task: str
    why: str

    VERB: ClassVar[str] = "left_out"
    """The verb of the event in the audit trail of the job that was changed."""

    @classmethod
    def of(cls, job: Job, why: Exception) -> LeftOut:
        """This job was refused."""
        return cls(job.id, job.spec.task, str(why))

    def event(self, at: datetime) -> Event:
        """The entry for the audit trail of the job that was changed."""
        return Event(self.VERB, at, details=self.to_dict())


class Applied(msgspec.Struct, frozen=True, gc=False, tag=True):
    """The change is durable (now, or already since an earlier try); ``job`` is what it made."""

    job: Job
    noted: bool = False
    """Whether a note was stored for jobs that wait for this one: ``process_notes`` has something to do."""
    left_out: tuple[LeftOut, ...] = ()
    """What the change should have inserted, and did not."""


class Conflict(msgspec.Struct, frozen=True, tag=True):
    """Same owner, but the job moved on: decide again from ``job``. ``holder``: a key to take was not free."""

    job: Job
    holder: Job | None = None
    too_many: str | None = None
    """Why a retry is refused: the customer would have live jobs of too many pairs (``core.limits.profiles``)."""


class WasStale(msgspec.Struct, frozen=True, tag=True):
    """The owner moved (``job`` is None when it is gone altogether): drop the change."""

    job: Job | None


Verdict = Applied | Conflict | WasStale


def judge(
    change: Change,
    last: int | None,
    job: Job | None,
    holder: Job | None = None,
    attempt: Attempt | None = None,
) -> Verdict | None:
    """The verdict on a change, or None if it can be applied.

    ``last`` is the id of the change that the job saw last, ``job`` the job as it is stored (None: gone), ``holder``
    the other job that holds the dedup key this change would take, and ``attempt`` what is on record under the number
    of the attempt that this change closes.
    """
    if job is None:
        return WasStale(None)
    if change.id != 0 and change.id == last:
        return Applied(change.job)
    if change.worker is not None and (change.worker, change.epoch) != (job.worker, job.epoch):
        return Applied(change.job) if _closed(change, attempt) else WasStale(job)
    if change.rev != job.rev:
        return Conflict(job)
    return None if holder is None else Conflict(job, holder)


def _closed(change: Change, attempt: Attempt | None) -> bool:
    """Whether this attempt is on record as the change closes it: then it was applied, whatever came after it.

    A worker ends an attempt once, at a moment of its own. In a record of several attempts only the last can be told.
    """
    ours = change.attempt
    if ours is None or attempt is None or attempt.number != ours.number:
        return False
    if (attempt.outcome, attempt.finished_at) != (ours.outcome, ours.finished_at):
        return False
    return attempt.count > 1 or (attempt.worker, attempt.epoch) == (ours.worker, ours.epoch)


def until_applied(
    job: Job, decide: Callable[[Job], Change | None]
) -> Generator[Change | None, Verdict | None, tuple[Change | None, Applied | WasStale]]:
    """Decide a change of a job, and again whenever the job moved meanwhile; returns the last change and its verdict.

    It yields each change, to be sent its verdict; and None if the job has not moved, since a transaction that is still
    open has it, or the key it needs: to be sent None after a pause. Where ``decide`` finds nothing to change, the
    change is None, and the verdict has the job as it stands.

    :raises Unavailable: the job moved too often
    """
    moves = 0
    while moves < _MAX_MOVES:
        change = decide(job)
        if change is None:
            return None, Applied(job)
        verdict = yield change
        assert verdict is not None, "a change is sent its verdict"
        if not isinstance(verdict, Conflict):
            return change, verdict
        job = verdict.job
        if job.rev == change.rev:
            yield None
        else:
            moves += 1
    raise Unavailable(f"job {job.id} changed {_MAX_MOVES} times while a decision about it was being written")
