"""Jobs: the verbs that move them. This is the hot path."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Protocol
from uuid import UUID

from headrace.core.batch import Batch
from headrace.core.change import Change, Verdict
from headrace.core.claim import Ask
from headrace.core.job import Job
from headrace.core.status import Status
from headrace.engine.answers import MAX_BATCH, Claimed, Dead, InsertAnswer, Overdue

__all__ = ["Jobs"]


class Jobs(Protocol):
    """Stores jobs, gives them to workers, applies changes to them."""

    async def insert(
        self, jobs: Sequence[Job], now: datetime, batch: Batch | None = None, *, whole: bool = False
    ) -> list[InsertAnswer]:
        """Store new jobs, in one commit, in the order given; answers in the same order.

        *Order numbers.* Each job that is stored gets the next order number (``seq``), which grows with every insert and
        is never used again. The answer carries it; the jobs that are passed in have 0.

        *Repeats.* An id that is here already is answered ``Inserted`` with the job as it is stored now.

        *Keys.* A dedup key that a live job of the same task holds, or that an earlier job of this call takes, is
        answered ``Duplicated``. A job that has ended takes no key.

        *Profiles.* A profile is a pair of task and requirements, known by a number. More than ``MAX_PROFILES`` of them
        with live jobs are ``Refused``; a profile that no live job needs may be forgotten.

        *Relations.* A job with a parent is ``Refused`` where ``core.family.refusal`` says so; one with ``after`` where
        one of those is not here, nor before it in the same call; one of a batch where
        ``core.batch.refusal_of_member`` says so. These are judged, and it is recorded whom the job waits for, in a step
        that no change of those jobs, and no cancel of the batch, can come between: otherwise a job would wait for one
        that has just ended, and nobody would tell it. A job that waits gets the note that ``core.family.note_of_new``
        says.

        *Batches.* A new job adds ``core.decide.tally_of_new`` to its batch, which is here already or is ``batch``; that
        is made in the same commit unless it is here. A job may name a batch that is not here: it is counted nowhere.

        *All or nothing.* With a ``batch``, or with ``whole``, if one of the jobs is refused all are, for its reason,
        and nothing is stored. A duplicate is no refusal.

        *Not only new ones.* A job need not be as ``submit`` makes it: it may have attempts, an owner, or have ended. It
        is stored field by field.

        *Hints.* The caller sends ``Topic.READY`` afterwards. A store that can send it with the commit may, and then
        must not have it sent twice.
        """
        ...

    async def claim(self, worker: UUID, ask: Ask, request: int, now: datetime) -> Claimed | Dead:
        """Give a worker the first jobs, in order, that it may take.

        First all deferred jobs that are due are queued (``core.claim.promoted``). Then the result is what
        ``core.claim.pick`` makes of the queued jobs of the asked profiles, in queues that are asked for and not paused,
        sorted by ``core.claim.order``. Each is written as ``core.claim.Grant.on`` says.

        *Limits.* Where a queue or task is limited, or jobs have concurrency keys, the result is what
        ``core.limit.deal`` makes of the jobs in line, group by group. An engine that reads only the front of a group
        ends it with an ``Entry`` that is ``unread``; if the answer is ``cut``, that mattered: read further and deal
        again. Nothing is ever given beyond a limit, whatever other claims do at the same time. What ``deal`` answers
        of spent rates and of turns is stored in the same commit.

        *Alive.* That the worker is alive is tested in the same commit: a worker that was buried gets nothing, and the
        answer is ``Dead``.

        *Repeats.* The same request gives the jobs of the first time that this worker still holds unstarted. If it holds
        none of them, it is a claim like any other.
        """
        ...

    async def apply(self, changes: Sequence[Change], now: datetime) -> list[Verdict]:
        """Apply each change, whole, if its rev and owner still hold; verdicts in the same order.

        The verdict is ``core.change.judge``'s; where that is None, the change is written and the answer is ``Applied``.
        At most one change per job is in a call. The changes of one call may be written in several commits, but each
        change is in one.

        *Whole.* With the job go the closed attempt (one of a number that is here folds into it: ``Attempt.fold``), the
        key, the event, the notes, the tally (added to the counts of the job's batch), and the jobs to insert. An engine
        derives none of these from the change. ``Note.ENDED`` alone has a condition: it is stored only if a job was ever
        stored that waits for this one, and then the answer is ``noted``.

        *The order number may be 0.* Whoever decided the change may not know it (a job that a hub passed on). The id is
        what counts.

        *Progress leaves the rev alone.* The change of ``Verb.PROGRESS`` has the same rev before and after; everything
        else of the job stays as it is stored, also which change it saw last.

        *A retry needs its profile again.* With ``Verb.RETRY`` an ended job comes back to life; its profile may have
        been forgotten since and must be there again, under whatever number, for the job to be claimed.

        *Beats.* A change of owner starts the count of beats that did not name the job anew.
        """
        ...

    async def promote(self, now: datetime, limit: int = MAX_BATCH) -> int:
        """Queue deferred jobs that are due, the longest due first, as ``core.claim.promoted`` says; how many."""
        ...

    async def overdue(self, now: datetime, limit: int = MAX_BATCH) -> list[Overdue]:
        """Jobs that the sweeper must look at: held ones whose ``act_by`` has passed, whose worker is not alive, or that
        two successive beats did not name; and idle ones whose ``act_by`` has passed."""
        ...

    async def delete(self, before: Mapping[Status, datetime], limit: int = MAX_BATCH) -> int:
        """Remove up to ``limit`` ended jobs, with all that is kept of them, and count them as pruned; how many.

        A job goes if it ended at or before the moment of its status, no live job waits or waited for it, and, later
        than the earliest of the moments, its parent cannot look for it (``core.family.may_be_looked_for``). With it goes
        the turn of its concurrency key where ``core.limit.forgets`` says so. Settled batches that ended at or before
        the earliest of the moments go, too.
        """
        ...

    async def get(self, ids: Sequence[UUID]) -> list[Job | None]:
        """The jobs of these ids, in order, as they are stored; None for what is not here."""
        ...
