"""Jobs: the verbs that move them, which are the hot path, and optional shortcuts of an engine for a lone job."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Protocol, runtime_checkable
from uuid import UUID

from headrace.core.batch import Batch
from headrace.core.change import Change, Verdict
from headrace.core.job import Job
from headrace.core.lifecycle.claim import ClaimRequest
from headrace.core.status import Status
from headrace.engine.values import MAX_BATCH, Claimed, Companions, InsertAnswer, Inserted, OverdueJobs
from headrace.engine.workers import Dead

__all__ = ["Direct", "InsertsOne", "Jobs"]


class Jobs(Protocol):
    """Stores jobs, gives them to workers, applies changes to them."""

    async def insert(
        self,
        jobs: Sequence[Job],
        now: datetime,
        batch: Batch | None = None,
        *,
        whole: bool = False,
        companions: Companions | None = None,
    ) -> list[InsertAnswer]:
        """Store jobs in one commit, in the order given; return replies in the same order.

        *Order numbers.* Each job that is stored gets the next order number (``seq``). Order numbers grow with every
        insert, and none is used again. The reply has it; the jobs that are passed in have 0.

        *Repeats.* For a job with a stored id the reply is ``Inserted`` with the job as it is stored now.

        *Not only new ones.* A job need not be as ``submit`` makes it: it may have attempts, an owner, or have ended. An
        engine stores it field by field, and indexes it by its status: as queued, as deferred, as held by its worker.

        *Keys.* If another job of the same task holds the dedup key, or an earlier job of this call takes it, the reply
        is ``Duplicated`` with that one, which may have completed (``dedup_for``). The caller decides what follows
        (``core.lifecycle.deduplication.meet``). A job that has ended takes no key.

        *Merged submits.* For a job with an id that was merged into another (``Change.merges``) the reply is
        ``Duplicated`` with that one, as ``replaced``, before any key is checked: submitting it again changes nothing
        more. Only jobs for which ``core.lifecycle.deduplication.replaces`` is true need this lookup.

        *Requests.* If a stored job, live or ended, or an earlier one of this call has the same request
        (``core.lifecycle.deduplication.request_of``), the reply is ``Duplicated`` with that one where
        ``core.lifecycle.deduplication.is_repeat`` is true, and otherwise ``Refused`` with ``KeyReused``. This comes
        before the dedup key: a request gets the job that it made, whichever job holds the dedup key by now. However
        many sessions insert one request at once, one job is stored. A request that was a duplicate by its dedup key
        made no job, and is not remembered.

        *Profiles.* A profile is a pair of task and requirements, known by a number. A job that needs one too many is
        ``Refused`` with ``TooManyProfiles``: ``core.limits.profiles`` says for which customer it counts
        (``staked_by``), of how many that customer may have live jobs (``allowed``, by the settings that are keys),
        which of a call are too many (``excess``), and how many there may be in all (``room_for``; for the operator,
        without those of which customers have live jobs). Only a job that would be stored is refused: ids, requests and
        dedup keys are checked first. However many sessions insert at once, no customer has live jobs of more, but for
        what a user's transaction cannot see. A profile that no live job needs may be forgotten.

        *Relations.* A job with a parent is ``Refused`` by ``core.lifecycle.family.refusal``; one with ``after`` if one
        of those is not stored, nor before it in the same call; one of a batch by ``core.batch.refusal_of_member``. A
        job that waits gets the note of ``core.lifecycle.family.note_of_new``.

        *The race with the end of a parent.* An engine must know of each job whether another was ever stored that waits
        for it, since ``apply`` stores ``Note.ENDED`` only then. Reading the status of the parent, recording that a job
        waits for it and storing the job is one step, and no change of the parent comes between: either the insert sees
        that the parent has ended (the note of the new job then releases it), or the change that ends the parent sees
        that a job waits for it. Otherwise a job would wait for ever for one that has just ended. A lock on the parents
        ensures this, if every change of them takes it as well. The same holds for the cancel of a parent or a batch: a
        new job is refused, or the cancel finds it.

        *Batches.* A new job adds ``core.lifecycle.decision.tally_of_new`` to the counts of its batch, which is stored
        already or is ``batch``; that is made in the same commit unless it exists. A new member moves the batch's
        ``touched_at`` to its own ``updated_at``, if that is later: ``core.batch.is_silent`` uses it. A job may name a
        missing batch: it is counted nowhere.

        *All or nothing.* With a ``batch``, or with ``whole``, if one of the jobs is refused all are, for its reason,
        and nothing is stored. A duplicate is no refusal.

        *Companions.* Other jobs that go with one of these, by its id. If that one is stored by this call, they are
        stored in the same commit, right behind it, each as a job of this call is; one that is stored already or is a
        duplicate is left out. If it is not stored (its id exists already, it is a duplicate, it is refused), none of
        them is. Where one of them is refused, their job is, too, for the same reason: the group is stored whole or not
        at all. Replies are for the jobs alone. Companions count for ``MAX_BATCH``, and no id is twice in a call that
        has some.

        *Hints.* The caller sends ``Topic.READY`` with the queues of the jobs as soon as this has returned. An engine
        may send the hint with the commit instead, so that other sessions receive it sooner; its bus then recognises the
        ``send`` that follows and delivers it to the listeners of its own session only.
        """

    async def claim(self, worker: UUID, ask: ClaimRequest, request: int, now: datetime) -> Claimed | Dead:
        """Give a worker the first jobs, in order, that it may take.

        First all deferred jobs that are due are queued by ``core.lifecycle.claim.promoted``. The result is then what
        ``core.lifecycle.claim.pick`` makes of the queued jobs of the requested profiles, in requested queues, sorted by
        ``core.lifecycle.claim.order``. Jobs of paused queues and tasks (``core.limits.settings.Limits.paused``) are
        left out, however many there are at the same cost. Each of the result is written by
        ``core.lifecycle.claim.Grant.on``.

        *Limits.* Where a queue or a task is limited, or jobs have concurrency keys, the result is what
        ``core.limits.selection.select_jobs`` makes of the queued jobs, group by group. Its spent rates (``spent``) and
        the keys that took a turn (``turned``) are stored in the same commit. Nothing is ever given beyond a limit,
        whatever other claims do at the same time. Permits of rates are spent with ``ask.lead``; ``paced`` of the reply,
        also of that to a repeated request, names the jobs that spent one.

        *Customers.* With ``ask.customers`` only subqueues of customers are served, in queues that are set
        ``by_customer``; for other queues ``core.limits.selection.refusal`` is raised, before anything else.
        ``select_jobs`` gets the customers of the jobs that the worker holds: they are read in the commit of the claim,
        and of two such claims of one worker the later reads what the earlier has written. The cost of a claim depends
        on the subqueues that it serves, not on the jobs in others.

        *Reading only the first jobs.* An engine need not read all jobs of a group. Where it stops, it ends the group
        with a ``QueuedEntry`` that is ``unread`` and has the position of the first job that was not read, or of the
        last that was. If ``select_jobs`` gets that far, its reply is ``cut``: it may have taken too few. Then the
        engine writes nothing of that reply, reads further, and selects again from the usage as it is stored
        (``select_jobs`` has changed the one that it was given). A reply that is not ``cut`` is the same as if all had
        been read.

        *Alive.* The same commit tests that the worker is alive: for a worker that was buried, or is not known, the
        reply is ``Dead``.

        *Repeats.* However often a request is sent, also at the same time and by several sessions, it is one claim: as
        long as this worker holds jobs of the first time, it gives those of them that are not started, in their present
        order, and no others; if all are started, it gives nothing, and the reply is ``over``. If the worker holds none
        of them any more, the request is a claim like any other. So a claim waits for one under way with the same
        request, and then reads what that has given.
        """

    async def apply(self, changes: Sequence[Change], now: datetime) -> list[Verdict]:
        """Apply each change, whole, if its rev and owner still hold; return verdicts in the same order.

        The verdict is that of ``core.change.judge``; where that is None, the change is written and the verdict is
        ``Applied``. At most one change per job is in a call. The changes of one call may be written in several commits,
        but each change is in one. Where one of them releases a dedup key and another takes it, their order counts: a
        key can be taken by the later one only.

        *Whole.* With the job are written the closed attempt (folded into a stored one of its number: ``Attempt.fold``),
        the key, the event, the notes, the tally (added to the counts of the job's batch), and the jobs to insert. An
        engine derives none of these from the change. ``Note.ENDED`` alone has a condition: it is stored only if a job
        was ever stored that waits for this one, and then the verdict is ``noted``.

        *Inserts.* Each is stored as ``insert`` stores it; none is refused for lack of a profile. One that is a
        duplicate for ``insert`` is not stored: the other one counts. One that it would refuse is stored as
        ``core.webhooks.delivery.unchained`` returns it, if that is a job; otherwise it is left out: it is in
        ``Applied.left_out``, and the job of the change gets the event of ``LeftOut.event`` in the same commit.

        *The order number may be 0.* The caller may not know it (a job that came as JSON, say). The id names the job,
        and the stored order number stays.

        *A finish that is repeated* after a lost reply is ``Applied`` although its owner has moved, if the attempt that
        it closes is stored as it closes it: ``judge`` gets the stored attempt of its number. That costs a read only
        where a change was not applied.

        *Progress keeps the rev.* The change of ``Verb.PROGRESS`` has the same rev before and after. It writes the
        progress, the moment and ``act_by``, which moves with each sign of a job with a heartbeat; the rest of the job
        stays as it is stored, and so does the id of its last change: a finish that is repeated after a lost reply is
        still recognised. Only one that inserts jobs, to notify webhooks,
        raises the rev, and is written whole like any other change.

        *A retry needs its profile again.* With ``Verb.RETRY`` an ended job is live again. Its profile may have been
        forgotten since; it must be stored again, under any number, or no worker could claim the job. If that is one too
        many for the customer of the job, by the rules of ``insert``, nothing is written and the verdict is ``Conflict``
        with the job as it is and ``too_many``. No other change, and no retry of a job that counts for no customer, is
        refused for lack of a profile.

        *Beats.* A change of owner resets the count of beats that did not name the job.

        *A submit that is merged.* With ``merges`` the payload of the job is written, and the id is stored with the job
        until that is removed, so that ``insert`` finds it.

        *Open transactions.* Where an open transaction of a user has locked the job, an engine need not wait for it: it
        may return ``Conflict`` with the job as it is, at the same rev, and the caller tries again later.
        """

    async def promote(self, now: datetime, limit: int = MAX_BATCH) -> int:
        """Queue deferred jobs that are due, the longest due first, by ``core.lifecycle.claim.promoted``; return how
        many."""

    async def realign(self, limit: int = MAX_BATCH) -> int:
        """Move queued jobs into the subqueues of their customers, or back into a common one, as their queues are set by
        now (``QueueRule.by_customer``); return how many, up to ``limit``.

        This is for jobs that were queued before the setting was changed. It changes only their subqueue: neither their
        order nor their rev.
        """

    async def overdue(self, now: datetime, limit: int = MAX_BATCH) -> OverdueJobs:
        """Return the jobs that the sweeper must check, with what it must know of their workers, and the next deadline.

        These are held jobs with a passed ``act_by``, of a worker that is not alive or not known, or that two successive
        beats did not name; and jobs without an owner with a passed ``act_by``. ``core.lifecycle.sweep`` and
        ``core.lifecycle.liveness`` decide what to do with them: this verb writes nothing.

        ``next_at`` is the soonest ``act_by`` after ``now`` of all jobs, held or not: the sweeper polls again then. An
        engine finds it without reading the jobs that no worker holds.
        """

    async def delete(
        self,
        before: Mapping[Status, datetime],
        limit: int = MAX_BATCH,
        *,
        now: datetime | None = None,
        since: Mapping[Status, datetime] | None = None,
    ) -> int:
        """Remove up to ``limit`` ended jobs, with all that is stored of them, and count them as pruned; return how
        many.

        A job is removed if all of this holds:

        - it ended at or before the moment of its status; or, if it has a retention of its own for its status
          (``Spec.retention``), at least that long before ``now`` (``core.lifecycle.retention.is_past``);
        - no live job waits or waited for it;
        - it does not hold its dedup key, or ``core.lifecycle.deduplication.has_lapsed`` is true for the moment up to
          which jobs with its retention are removed;
        - it ended at or before the earliest of the moments, or its parent cannot look for it
          (``core.lifecycle.family.may_be_looked_for``).

        ``since``: jobs without a retention of their own that ended at or before the moment of their status here need
        not be checked: they were before. So a store need not read jobs that it keeps for long again and again.

        With a job its keys are removed, the ids of submits that were merged into it, and the turn of its concurrency
        key, where ``core.limits.selection.forgets`` is true. Settled batches that ended at or before the earliest of
        the moments are removed, too.
        """

    async def get(self, ids: Sequence[UUID]) -> list[Job | None]:
        """Return the jobs of these ids, in order, as they are stored; None for a missing one."""


@runtime_checkable
class InsertsOne(Protocol):
    """What the ``jobs`` of an engine may have beside the verbs of ``Jobs``: a shortcut for one lone job."""

    def insert_one(self, job: Job, now: datetime, done: Callable[[InsertAnswer | BaseException | None], None]) -> bool:
        """Begin to store one new job as ``insert`` stores it, and return at once; on the loop of the session.

        *Whether it was begun.* False where the shortcut does not apply: the job has keys or relatives, say, or no
        connection is free. Then nothing was done, and the job goes to ``insert``.

        *The reply.* ``done`` is called once, on the loop, when nothing of the write is under way any more: with the
        reply, with the error that ``insert`` would have raised, or with None if nothing was stored and ``insert`` has
        to find out why, say because the id exists. It may be called before this returns.

        *It cannot be cancelled.* The write belongs to no task: the task that waits for the reply may be cancelled
        meanwhile.
        """


@runtime_checkable
class FindsChanged(Protocol):
    """What the ``jobs`` of an engine may have beside the verbs of ``Jobs``: a check of many jobs that reads none."""

    async def changed(self, known: Sequence[tuple[UUID, int]]) -> list[UUID]:
        """Return those of these jobs, each with the rev at which it was last read, that may have changed or are gone.

        Progress keeps the rev. So a job that has reported some is always among them.
        """


class Direct(Protocol):
    """Writes on the thread that calls, and blocks it; for engines with a driver that does so anyway.

    It may be called from any thread while the session is open, and never on one that runs an event loop. What it does
    not do at once, the ordinary verb does: a caller that gets None, or an error, continues with ``Jobs.insert`` on the
    session's loop.
    """

    def insert(self, job: Job, now: datetime) -> Inserted | None:
        """Store one new job, durable when this returns; None: nothing was written, and ``Jobs.insert`` must store it.

        An engine may always return None. It does so while another write of this session is under way or waits, so that
        jobs that arrive meanwhile form the next write of their batcher, and no batcher waits for lone jobs one by one.
        It does so for a job that is not as ``submit`` makes it, that has relations, or that needs a read of the store:
        its id or key exists already. A job is stored as by ``Jobs.insert``, with the next order number; the caller
        sends its hint.

        Errors are those of every verb. After ``Unavailable(outcome="unknown")`` ``Jobs.insert`` finds out.
        """
