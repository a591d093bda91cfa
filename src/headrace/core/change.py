"""A decided transition with its effects, as a value; and an engine's verdicts on it."""

from __future__ import annotations

from collections.abc import Callable, Generator
from datetime import datetime
from enum import StrEnum
from operator import add
from typing import ClassVar
from uuid import UUID

import msgspec
from msgspec.structs import astuple

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
    """What a change does to the job's dedup key."""

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
        """How many have ended, in any status."""
        return self.completed + self.failed + self.cancelled

    @property
    def live(self) -> int:
        """How many have not ended."""
        return self.total - self.ended

    def plus(self, other: BatchTally) -> BatchTally:
        """The sum of both."""
        return BatchTally(*map(add, astuple(self), astuple(other)))


class Change(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A transition: makes ``job`` of the stored one if it is at ``rev`` (and, for a worker's change, still its own).

    The change is complete: an engine writes all of it in one commit and derives nothing more from it.
    """

    verb: Verb
    rev: int
    """The rev the decision was made from."""
    job: Job
    """The job after the change; has its new rev."""
    epoch: int | None = None
    """With ``worker``: the owner that fences this change. None: no owner, only the rev counts."""
    worker: UUID | None = None
    attempt: Attempt | None = None
    """The attempt this change closes; a record of the same number folds it in (``Attempt.fold``)."""
    key: KeyEffect = KeyEffect.KEEP
    moves: bool = False
    """The job changes its subqueue or its priority: ``queue``, ``priority`` or
    ``core.lifecycle.suspects.requirements_of`` the job differ. An engine stores the new position with the change."""
    event: Event | None = None
    """An entry for the audit trail of the job."""
    notes: tuple[Note, ...] = ()
    """Messages for other jobs; ``Note.ENDED`` is stored only if another job was stored to wait for this one."""
    tally: BatchTally | None = None
    """What is added to the counts of the job's batch; None: nothing, or the job is in no batch."""
    inserts: tuple[Job, ...] = ()
    """New jobs that follow from this change. Each is stored as ``insert`` stores it, and none is refused for lack of a
    profile. Where ``insert`` would return a duplicate, nothing is stored and the duplicate counts. One that it would
    refuse for another reason is ``LeftOut``."""
    merges: UUID | None = None
    """The id of a submit that gives the job its payload. The change writes this payload, and the job is known by this
    id as well: ``insert`` of a job of this id returns it. No other change writes the payload."""
    id: int = 0
    """Identifies this one write, so that a repeat after a lost reply is recognised; the writer sets it."""


class LeftOut(msgspec.Struct, Record, frozen=True):
    """A refused job that should have been stored with a change. The changed job's audit trail records it."""

    id: UUID
    """The id that it would have."""
    task: str
    why: str

    VERB: ClassVar[str] = "left_out"
    """The verb of the event in the audit trail of the job that was changed."""

    @classmethod
    def of(cls, job: Job, why: Exception) -> LeftOut:
        """Return the record of a refused job."""
        return cls(job.id, job.spec.task, str(why))

    def event(self, at: datetime) -> Event:
        """The entry for the audit trail of the job that was changed."""
        return Event(self.VERB, at, details=self.to_dict())


class Applied(msgspec.Struct, frozen=True, gc=False, tag=True):
    """The change is durable (now, or since an earlier try); ``job`` is its result."""

    job: Job
    noted: bool = False
    """Whether a note was stored for jobs that wait for this one: ``process_notes`` has something to do."""
    left_out: tuple[LeftOut, ...] = ()
    """What the change should have inserted, and did not."""


class Conflict(msgspec.Struct, frozen=True, tag=True):
    """The job changed under the same owner: decide again from ``job``. ``holder``: a key to take was not free."""

    job: Job
    holder: Job | None = None
    too_many: str | None = None
    """Why a retry is refused: the customer would have live jobs of too many pairs (``core.limits.profiles``)."""


class WasStale(msgspec.Struct, frozen=True, tag=True):
    """The job has another owner (``job`` is None when it is gone): drop the change."""

    job: Job | None


Verdict = Applied | Conflict | WasStale


def judge(
    change: Change,
    last: int | None,
    job: Job | None,
    holder: Job | None = None,
    attempt: Attempt | None = None,
) -> Verdict | None:
    """Return the verdict on a change, or None if it can be applied.

    ``last`` is the id of the last change of the job, ``job`` the job as stored (None: gone), ``holder`` the other job
    that holds the dedup key that this change would take, and ``attempt`` the stored attempt of the number that this
    change closes.
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
    """Return whether this attempt is stored as the change closes it: then it was applied, whatever came after it.

    A worker ends an attempt once, at a moment of its own. In a record of several attempts only the last is recognised.
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
