"""Jobs: the verbs that move them, which are the hot path, and short ways that an engine may have for a lone job."""

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
from headrace.engine.values import MAX_BATCH, Claimed, Companions, InsertAnswer, Inserted, Overdue
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
        """Store jobs, in one commit, in the order given; answers in the same order.

        *Order numbers.* Each job that is stored gets the next order number (``seq``). Order numbers grow with every
        insert, and none is used again. The answer carries it; the jobs that are passed in have 0.

        *Repeats.* A job whose id is here already is answered ``Inserted`` with the job as it is stored now.

        *Not only new ones.* A job need not be as ``submit`` makes it: it may have attempts, an owner, or have ended. An
        engine stores it field by field, and puts it where its status says: in line, among the deferred, among what its
        worker holds.

        *Keys.* A job whose dedup key another job of the same task holds, or an earlier job of this call takes, is
        answered ``Duplicated`` with that one, which may have completed (``dedup_for``). What comes of it is for the
        caller to decide (``core.lifecycle.deduplication.meet``). A job that has ended takes no key.

        *Merged submits.* A job whose id was merged into another (``Change.merges``) is answered ``Duplicated`` with
        that one, as ``replaced``, before any key is looked at: however often it is submitted again, it changes nothing
        more. Only jobs of which ``core.lifecycle.deduplication.replaces`` says so need to be looked up.

        *Requests.* A job whose request (``core.lifecycle.deduplication.request_of``) is that of a stored job, live or
        ended, or of an earlier one of this call, is answered ``Duplicated`` with that one if
        ``core.lifecycle.deduplication.is_repeat`` says so; otherwise it is ``Refused`` with ``KeyReused``. This comes
        before the dedup key: a request is answered with the job that it made, whoever holds the dedup key by now.
        However many insert one request at once, one job is stored. A request that met a dedup key made no job, and is
        not remembered.

        *Profiles.* A profile is a pair of task and requirements, known by a number. A job that needs one too many is
        ``Refused`` with ``TooManyProfiles``: ``core.limits.profiles`` says for whom it counts (``staked_by``), how many
        that customer may have live jobs of (``allowed``, by the settings that are keys), which of a call are too many
        (``excess``), and how many there may be in all (``room_for``; for the operator, without those of which customers
        have live jobs). Only a job that would be stored is refused: ids, requests and dedup keys are looked at first.
        However many sessions insert at once, no customer has live jobs of more, but for what a user's transaction
        cannot see. A profile that no live job needs may be forgotten.

        *Relations.* A job with a parent is ``Refused`` where ``core.lifecycle.family.refusal`` says so; one with
        ``after`` where one of those is not here, nor before it in the same call; one of a batch where
        ``core.batch.refusal_of_member`` says so. A job that waits gets the note that
        ``core.lifecycle.family.note_of_new`` says.

        *The race with the end of a parent.* An engine must know of each job whether another was ever stored that waits
        for it, since ``apply`` stores ``Note.ENDED`` only then. To read the status of the parent, to record that it is
        waited for and to store the job is one step, and no change of the parent comes between: either the insert sees
        that the parent has ended (the note of the new job then releases it), or the change that ends the parent sees
        that it is waited for. Otherwise a job would wait for ever for one that has just ended. A lock on the parents
        does it, if every change of them takes it as well. The same holds for the cancel of a parent or a batch: a new
        job is refused, or the cancel finds it.

        *Batches.* A new job adds ``core.lifecycle.decision.tally_of_new`` to the counts of its batch, which is here
        already or is ``batch``; that is made in the same commit unless it is here. A new member moves the batch's
        ``touched_at`` to its own ``updated_at``, if that is later: ``core.batch.is_silent`` goes by it. A job may name
        a batch that is not here: it is counted nowhere.

        *All or nothing.* With a ``batch``, or with ``whole``, if one of the jobs is refused all are, for its reason,
        and nothing is stored. A duplicate is no refusal.

        *Companions.* Other jobs that go with one of these, by its id. If that one is stored by this call, they are
        stored in the same commit, right behind it, each as a job of this call is; one that is here already or is a
        duplicate is left out. If it is not stored (its id is here already, it is a duplicate, it is refused), none of
        them is. Where one of them is refused, their job is, too, for the same reason: the group is stored whole or not
        at all. Answers are for the jobs alone. Companions count for ``MAX_BATCH``, and no id is twice in a call that
        has some.

        *Hints.* The caller sends ``Topic.READY`` with the queues of the jobs as soon as this has returned. An engine
        may let the hint ride in the commit instead, for other sessions to hear it sooner; its bus then recognises the
        ``send`` that follows and passes it to the listeners of its own session only.
        """
        ...

    async def claim(self, worker: UUID, ask: ClaimRequest, request: int, now: datetime) -> Claimed | Dead:
        """Give a worker the first jobs, in order, that it may take.

        First all deferred jobs that are due are queued, as ``core.lifecycle.claim.promoted`` says. The result is then
        what ``core.lifecycle.claim.pick`` makes of the queued jobs of the asked profiles, in queues that are asked for
        and not paused, sorted by ``core.lifecycle.claim.order``. Each of them is written as
        ``core.lifecycle.claim.Grant.on`` says.

        *Limits.* Where a queue or a task is limited, or jobs have concurrency keys, the result is what
        ``core.limits.selection.deal`` makes of the jobs in line, group by group. What it answers of spent rates
        (``spent``) and of keys that had a turn (``turned``) is stored in the same commit. Nothing is ever
        given beyond a limit, whatever other claims do at the same time. Permits of rates are dealt with ``ask.lead``;
        ``paced`` of the answer, also of that to a repeated request, names the jobs that spent one.

        *Customers.* With ``ask.customers`` only lines of customers are served, in queues that are set ``by_customer``;
        ``core.limits.selection.refusal`` says what is raised elsewhere, before anything else. ``deal`` is told whose
        jobs the worker holds: that is read in the commit of the claim, and of two such claims of one worker the later
        reads what the earlier has written. A claim costs by the lines that it serves, not by what stands in those of
        others.

        *Reading only the front.* An engine need not read all jobs of a group. Where it stops, it ends the group with an
        ``Entry`` that is ``unread`` and stands where the first job stands that was not read, or the last that was.
        If ``deal`` gets that far, its answer is ``cut``: it may have taken too few. Then the engine writes nothing of
        that answer, reads further, and deals again from the usage as it is stored (``deal`` has changed the one that it
        was given). An answer that is not ``cut`` is the same as if all had been read.

        *Alive.* That the worker is alive is tested in the same commit: a worker that was buried gets nothing, and the
        answer is ``Dead``. So is the answer to a worker that is not known.

        *Repeats.* However often a request is sent, also at the same time and by several sessions, it is one claim: as
        long as this worker holds jobs of the first time, it gives those of them that are not started, in the order that
        holds by now, and none beside them; if all are started, it gives nothing, and the answer is ``over``. If the
        worker holds none of them any more, the request is a claim like any other. So a claim waits for one under the
        same request that is under way, and then looks at what that has given.
        """
        ...

    async def apply(self, changes: Sequence[Change], now: datetime) -> list[Verdict]:
        """Apply each change, whole, if its rev and owner still hold; verdicts in the same order.

        The verdict is that of ``core.change.judge``; where that is None, the change is written and the answer is
        ``Applied``. At most one change per job is in a call. The changes of one call may be written in several commits,
        but each change is in one. Where one of them releases a dedup key and another takes it, their order counts: a
        key can be taken by the later one only.

        *Whole.* With the job go the closed attempt (one of a number that is here folds into it: ``Attempt.fold``), the
        key, the event, the notes, the tally (added to the counts of the job's batch), and the jobs to insert. An engine
        derives none of these from the change. ``Note.ENDED`` alone has a condition: it is stored only if a job was ever
        stored that waits for this one, and then the answer is ``noted``.

        *Inserts.* Each is stored as ``insert`` stores it; none is refused for want of a profile. One that ``insert``
        would call a duplicate is not stored: the other one stands for it. One that it would refuse is stored as
        ``core.webhooks.delivery.unchained`` has it, if that is a job; otherwise it is left out: ``Applied.left_out``
        says so, and the job of the change gets the event that ``LeftOut.event`` makes, in the same commit.

        *The order number may be 0.* Whoever decided the change may not know it (a job that came as JSON, say). The id
        names the job, and the stored order number stays.

        *A finish that is repeated* after a lost reply is ``Applied`` although its owner has moved, if the attempt that
        it closes is on record as it closes it: ``judge`` is given what is there under its number. That costs a look
        only where a change was not applied.

        *Progress leaves the rev alone.* The change of ``Verb.PROGRESS`` has the same rev before and after. It writes
        the progress and the moment; the rest of the job stays as it is stored, and so does the id of the change that it
        saw last: a finish that is repeated after a lost reply is still recognised. Only one that inserts jobs, because
        webhooks are told of it, raises the rev, and is written whole as any other change.

        *A retry needs its profile again.* With ``Verb.RETRY`` an ended job comes back to life. Its profile may have
        been forgotten since; it must be there again, under whatever number, or no worker could claim the job. If that
        is one too many for the customer of the job, by the rules of ``insert``, nothing is written and the answer is
        ``Conflict`` with the job as it is and ``too_many``. No other change, and no retry of a job that counts for no
        customer, is refused for want of a profile.

        *Beats.* A change of owner starts the count of beats that did not name the job anew.

        *A submit that is merged.* With ``merges`` the payload of the job is written, and the id is kept with the job
        until that is removed, for ``insert`` to find it.

        *Open transactions.* Where a transaction of a user's that is still open holds the job, an engine need not wait
        for it: it may answer ``Conflict`` with the job as it is, at the same rev, and the caller tries again later.
        """
        ...

    async def promote(self, now: datetime, limit: int = MAX_BATCH) -> int:
        """Queue deferred jobs that are due, the longest due first, as ``core.lifecycle.claim.promoted`` says; how
        many."""
        ...

    async def realign(self, limit: int = MAX_BATCH) -> int:
        """Put jobs that are in line into the lines of their customers, or back into a common line, as their queues are
        set by now (``QueueRule.by_customer``); how many, up to ``limit``.

        This is for jobs that came into line before the setting was changed. It changes nothing of a job but where it
        stands: not its order, nor its rev.
        """
        ...

    async def overdue(self, now: datetime, limit: int = MAX_BATCH) -> list[Overdue]:
        """The jobs that the sweeper must look at, with what it must know of their workers.

        These are held jobs whose ``act_by`` has passed, whose worker is not alive or not known, or that two successive
        beats did not name; and jobs that nobody holds whose ``act_by`` has passed. What to do about them is decided by
        ``core.lifecycle.sweep`` and ``core.lifecycle.liveness``: this verb writes nothing.
        """
        ...

    async def delete(
        self,
        before: Mapping[Status, datetime],
        limit: int = MAX_BATCH,
        *,
        now: datetime | None = None,
        since: Mapping[Status, datetime] | None = None,
    ) -> int:
        """Remove up to ``limit`` ended jobs, with all that is kept of them, and count them as pruned; how many.

        A job is removed if all of this holds:

        - it ended at or before the moment of its status; or, if it has a retention of its own for its status
          (``Spec.retention``), at least that long before ``now`` (``core.lifecycle.retention.is_past``);
        - no live job waits or waited for it;
        - it does not hold its dedup key, or ``core.lifecycle.deduplication.has_lapsed`` says so for the moment up to
          which jobs with its retention are removed;
        - it ended at or before the earliest of the moments, or its parent cannot look for it
          (``core.lifecycle.family.may_be_looked_for``).

        ``since``: jobs without a retention of their own that ended at or before the moment of their status here need
        not be looked at: they were before. So a store with many jobs that are kept for long need not read them again
        and again.

        With a job go its keys, the ids of submits that were merged into it, and the turn of its concurrency key, where
        ``core.limits.selection.forgets`` says so. Settled batches that ended at or before the earliest of the moments
        are removed, too.
        """
        ...

    async def get(self, ids: Sequence[UUID]) -> list[Job | None]:
        """The jobs of these ids, in order, as they are stored; None for what is not here."""
        ...


@runtime_checkable
class InsertsOne(Protocol):
    """What the ``jobs`` of an engine may have beside that: a short way for one job that comes alone."""

    def insert_one(self, job: Job, now: datetime, done: Callable[[InsertAnswer | BaseException | None], None]) -> bool:
        """Begin to store one new job as ``insert`` stores it, and return at once; on the loop of the session.

        *Whether it was begun.* False where the short way is of no use: the job has keys or relatives, say, or there is
        no connection at hand. Then nothing was done, and the job goes to ``insert``.

        *The answer.* ``done`` is called once, on the loop, when nothing of the write is under way any more: with the
        answer, with the error that ``insert`` would have raised, or with None if nothing was stored and ``insert`` has
        to find out why, say because the id is here already. It may be called before this returns.

        *Nobody can stop it.* The write belongs to no task: whoever waits for the answer may be cancelled meanwhile.
        """
        ...


@runtime_checkable
class FindsChanged(Protocol):
    """What the ``jobs`` of an engine may have beside the verbs of ``Jobs``: a look at many that reads none of them."""

    async def changed(self, known: Sequence[tuple[UUID, int]]) -> list[UUID]:
        """Of these jobs, each with the rev at which it was read last: those that may be another now, or are gone.

        Progress leaves the rev alone. So a job that has reported some is always among them.
        """
        ...


class Direct(Protocol):
    """Writes on the thread that calls, and blocks it; for engines whose driver does so anyway.

    It may be called from any thread while the session is open, and never on one that runs an event loop. Whatever it
    does not do at once, the ordinary verb does: a caller who gets None, or an error, goes on with ``Jobs.insert`` on
    the session's loop.
    """

    def insert(self, job: Job, now: datetime) -> Inserted | None:
        """Store one new job, durable when this returns; None: nothing was written, it takes the ordinary way.

        An engine may always say None. It says so while another write of this session is under way or waits, so that
        those who come meanwhile form the next write of their lane, and no lane waits for lone jobs one by one. It says
        so for a job that is not as ``submit`` makes it, that has relations, or that needs a look at what is stored: one
        whose id or key is there already. A job that is stored is stored as by ``Jobs.insert``, with the next order
        number; its hint is the caller's to send.

        Errors are those of every verb. After ``Unavailable(outcome="unknown")`` the ordinary way finds out.
        """
        ...
