"""The contract: what every engine promises, verb by verb.

Engines apply what ``headrace.core`` decides. None reads a clock (``now`` is always an argument), none decides what
becomes of a job, and none has optional verbs: what an engine cannot do is missing from its ``capabilities``, and
asking for it raises ``NotSupported``.

Errors every verb may raise: ``Unavailable(outcome="refused")`` when nothing was written, ``Unavailable(outcome=
"unknown")`` when the write may have happened (repeat it: every write may be repeated), ``Unstorable`` when the data
of a row is refused (nothing of the batch was written; the batcher halves it until the guilty row stands alone). Every
engine refuses text with half of a surrogate pair, and names, keys and tags with a NUL; it keeps a NUL within JSON, and
everything that ``core.bounds`` allows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from typing import Any, Protocol
from uuid import UUID

from headrace.answers import (
    MAX_BATCH,
    MAX_PROFILES,
    TRANSACTION,
    Alive,
    Beat,
    Check,
    Claimed,
    Dead,
    Duplicated,
    InsertAnswer,
    Inserted,
    Overdue,
    Profiles,
    Refused,
    Setting,
    Told,
    WorkerInfo,
    WorkerRow,
)
from headrace.bus import Bus
from headrace.core.batch import Batch
from headrace.core.change import Change, Verdict
from headrace.core.claim import Ask
from headrace.core.entry import BEGIN, Append, Cursor, Entry, Kept, Kind
from headrace.core.job import History, Job
from headrace.core.limit import Usage
from headrace.core.query import Count, Filter, Ledger, Page
from headrace.core.rule import Bound
from headrace.core.rules import Rules
from headrace.core.standing import MOST, WINDOW, Standing
from headrace.core.status import Status
from headrace.steps import Enlisted, Steps

__all__ = [
    "MAX_BATCH",
    "MAX_PROFILES",
    "TRANSACTION",
    "Alive",
    "Beat",
    "Check",
    "Claimed",
    "Dead",
    "Duplicated",
    "Engine",
    "Enlisted",
    "InsertAnswer",
    "Inserted",
    "Overdue",
    "Profiles",
    "Refused",
    "Setting",
    "Steps",
    "Told",
    "WorkerInfo",
    "WorkerRow",
]


class Engine(Protocol):
    """A session on a store; used from one event loop. Constructing touches nothing; ``open`` connects."""

    name: str
    rules: Rules
    bus: Bus
    capabilities: frozenset[str]

    async def open(self) -> None:
        """Connect, and create the schema in an empty store; :raises SchemaTooNew, SchemaTooOld, Unavailable:"""
        ...

    async def exists(self) -> bool:
        """Whether there is a store to open; if not, opening makes one."""
        ...

    async def close(self) -> None:
        """Finish what is under way and disconnect; a closed session may be opened again."""
        ...

    async def migrate(self, *, plan: bool = False) -> list[str]:
        """Bring the schema up to date, or (``plan``) only say what would be done; the names of the migrations."""
        ...

    async def check(self, now: datetime) -> list[Check]:
        """Look at the store's own health: reachable, settings, versions, integrity, clock."""
        ...

    def twin(self) -> Engine:
        """Another session on the same store, for a loop of another thread; opened and closed by its user."""
        ...

    # -- jobs

    async def insert(
        self, jobs: Sequence[Job], now: datetime, batch: Batch | None = None, *, whole: bool = False
    ) -> list[InsertAnswer]:
        """Store new jobs, in one commit, in the order given; answers in the same order.

        An id that is here already is answered ``Inserted`` with the job as it stands: repeating is harmless. A dedup
        key held by a live job (or taken by an earlier job of the batch) is answered ``Duplicated``. A pair of
        task and requirements beyond ``MAX_PROFILES`` with live jobs is ``Refused``.

        A job with a parent is ``Refused`` where ``core.family.refusal`` says so, one with ``after`` where one of those
        is not here (nor before it in the same call), one of a batch where ``core.batch.refusal_of_member`` says so:
        all are judged, and whom it waits for is recorded, in a step that no change of those jobs, nor a cancel of the
        batch, comes between. A new job adds ``core.batch.tally_of_new`` to its batch, which is here already, or is
        ``batch``: made in the same commit unless it is here. With a ``batch``, or where that is asked for (``whole``),
        it is all or nothing: if one of the jobs is refused, all are, for its reason, and nothing is stored.
        """
        ...

    async def claim(self, worker: UUID, ask: Ask, request: int, now: datetime) -> Claimed | Dead:
        """Promote what is due, then give the worker the first jobs in order that it may take.

        The result is what ``core.claim.pick`` makes of the queued jobs of the asked profiles in queues that are asked
        for and not paused, sorted by ``core.claim.order``; where something is limited, or jobs have concurrency keys,
        it is what ``core.limit.deal`` makes of them, and no limit is exceeded. That the worker is alive is tested in
        the same commit. A repeat with the same request gives the jobs of the first time that it still holds unstarted;
        while it holds none of them, it is a claim like any other.
        """
        ...

    async def apply(self, changes: Sequence[Change], now: datetime) -> list[Verdict]:
        """Apply each change, with all its effects, if its rev and owner still hold; verdicts in the same order.

        At most one change per job. A change id that this job saw last is answered ``Applied`` again. A worker's change
        whose owner holds but whose rev moved is ``Conflict``; whose owner moved, ``WasStale``; anybody else's change
        whose rev moved, ``Conflict``; of a job that is gone, ``WasStale(None)``. A key to take that another live job
        holds is ``Conflict`` with the holder, and nothing is changed. A change is written whole, in one commit: its
        attempt, key and event, its notes (``Note.ENDED`` only of a job that another was stored to wait for), its tally
        (added to the counts of the job's batch), and the jobs it inserts. An answer ``noted`` says that ``Note.ENDED``
        was stored.
        """
        ...

    async def tell(self, now: datetime, limit: int = MAX_BATCH) -> Told:
        """Work off notes, each in one commit with what follows from it, as far as ``limit`` other jobs.

        In rounds: of those whom the notes that are there concern, the children of a cancelled job (while
        ``core.family.still_cancelled``) are given to ``core.family.doom``, and of the others those that wait to
        ``core.family.release``, with the statuses of those they wait for as they were when the round began. A child
        that has ended is told of in the next round, to its own children, where ``core.family.passes_on`` says so. The
        jobs of a cancelled batch that are no such children are given to ``core.batch.stop``.
        Batches for which ``core.batch.is_silent`` are sealed and marked. Two sessions may tell at once.
        """
        ...

    async def batches(self, ids: Sequence[UUID]) -> list[Batch | None]:
        """The batches of these ids, in order, with exact tallies; None for what is not here."""
        ...

    async def find_batches(self, limit: int = 50, cursor: str | None = None) -> Page[Batch]:
        """All batches, newest first, by when they were made and by id, with exact tallies; a page at a time, as
        ``core.batch.newest_first`` makes it."""
        ...

    async def seal(self, batch: UUID, now: datetime) -> bool:
        """All jobs of the batch are there; whether it is here. A second time changes nothing."""
        ...

    async def cancel_batch(self, batch: UUID, now: datetime, by: str | None = None) -> Batch | None:
        """Make of the batch what ``core.batch.cancelled`` says and note in the same commit that its jobs are to be
        stopped; the batch as it stands then, None if it is not here. No job is added to it after that."""
        ...

    async def settle(self, batch: UUID) -> None:
        """What follows the end of the batch was submitted; ``tell`` speaks of it no more."""
        ...

    async def usage(self, rates: Sequence[Bound] = ()) -> Usage:
        """How many jobs are held of each queue, task and concurrency key, and what was used of these rates."""
        ...

    async def standing(self, job: Job, now: datetime, window: float = WINDOW, most: int = MOST) -> Standing:
        """Where a queued or due job stands, and what its queue did in the last ``window`` seconds.

        Before it are the queued jobs of its queue, as seen now, that come first by ``core.claim.order`` and have not
        expired, whether they have concurrency keys or not. Done are jobs that were claimed and ended as in
        ``core.standing.BY_WORK``. No engine needs to look at more than ``most`` jobs before it, ``most`` that are due
        but not promoted (the longest due first), ``most`` keys, and ``most`` that ended, of any queue (the last first):
        then ``more`` says that there may be more, ``ahead`` is ``most`` or less, and ``since`` is the end of the first
        job that is not counted.
        """
        ...

    async def promote(self, now: datetime, limit: int = MAX_BATCH) -> int:
        """Queue deferred jobs that are due (arrival = the moment they fell due); how many."""
        ...

    async def overdue(self, now: datetime, limit: int = MAX_BATCH) -> list[Overdue]:
        """Jobs with a question open: held ones whose ``act_by`` has passed, whose worker is not alive, or that two
        beats did not name; idle ones whose ``act_by`` has passed."""
        ...

    async def get(self, ids: Sequence[UUID]) -> list[Job | None]:
        """The jobs of these ids, in order; None for what is not here."""
        ...

    async def history(self, id: UUID) -> History:
        """The attempts and events of one job, oldest first."""
        ...

    async def find(self, filter: Filter, now: datetime, limit: int = 50, cursor: str | None = None) -> Page[Job]:
        """The jobs that ``core.query.matches``, as seen now, newest first."""
        ...

    async def count(self, now: datetime) -> list[Count]:
        """Jobs by queue and status, as seen now."""
        ...

    async def ledger(self) -> Ledger:
        """The books."""
        ...

    async def delete(self, before: Mapping[Status, datetime], limit: int = MAX_BATCH) -> int:
        """Remove up to ``limit`` terminal jobs that ended at or before their status's moment and that no live job waits
        or waited for, with all that is kept of them; count them as pruned in the same commit. A child goes at the
        earliest of the moments only while it ``core.family.may_be_looked_for``. Settled batches that ended at or before
        the earliest of the moments go, too."""
        ...

    # -- what runs add to their jobs

    async def append(self, appends: Sequence[Append], now: datetime) -> list[Kept]:
        """Keep entries of running jobs, in one commit; answers in the same order, one for each job.

        At most one append per job. It is ``stale`` unless the job is ``running`` in the hands of this worker, at this
        epoch: so that a start is on record before anything else of its attempt, and nothing is added to an attempt that
        is over. An entry that is here already (same job, kind, attempt and number) is left as it is: repeating is
        harmless. ``busy``: a transaction that is still open has the job; nothing was kept.
        """
        ...

    async def tail(
        self, job: UUID, kind: Kind, after: Cursor = BEGIN, limit: int = MAX_BATCH, *, newest: bool = False
    ) -> list[Entry]:
        """The first ``limit`` entries of one kind behind the cursor, or (``newest``) the last, by attempt and number.

        Nothing ever appears behind a cursor already given, as long as the owner of the job appends in order: an append
        and the change that takes the job from its owner never overlap.
        """
        ...

    # -- in the user's own transaction; engines without the capability raise NotSupported

    def enlist(self, connection: Any) -> Enlisted:
        """Use a connection of the user's; :raises NotSupported: this kind of connection is unknown to the engine."""
        ...

    async def inserting(self, jobs: Sequence[Job], now: datetime) -> Steps[list[InsertAnswer]]:
        """``insert`` as steps for the user's connection; what must be durable before them (profiles) already is. A key
        that is taken fails nothing: the answer is ``Duplicated``. Who waits for such jobs is told by the commit."""
        ...

    async def applying(self, change: Change, now: datetime) -> Steps[Verdict]:
        """``apply`` of one change of a worker as steps for the user's connection; what must be durable before them (the
        profiles of jobs that it inserts) already is."""
        ...

    def transaction(self) -> AbstractAsyncContextManager[Any]:
        """A connection of the engine's own, in a transaction that ends with the block: committed, or rolled back if
        the block raises. :raises Unavailable: with outcome ``unknown`` when the commit was not answered"""
        ...

    # -- workers

    async def register(self, info: WorkerInfo, now: datetime) -> None:
        """Make the worker known and alive, with beat 0; repeating changes nothing."""
        ...

    async def beat(self, worker: UUID, beat: Beat, now: datetime) -> Alive | Dead:
        """Raise the worker's beat number and tell it what it should know, if it is alive.

        Of the jobs held by it and assigned two beats (``rules.beat``) ago or earlier, those not named gain an unnamed
        beat, those named again lose their count.
        """
        ...

    async def bury(self, worker: UUID, beats: int) -> bool:
        """Declare the worker dead if its beat number is still this one; whether it was. A dead worker stays known
        until no job names it."""
        ...

    async def retire(self, worker: UUID) -> None:
        """The worker left in good order: dead at once, and forgotten as soon as no job names it."""
        ...

    async def workers(self) -> list[WorkerRow]:
        """Every known worker, oldest first; forgets the dead that no job names."""
        ...

    # -- the rest of the store

    async def profiles(self) -> Profiles:
        """Every live profile, and the rev that grows whenever one is added."""
        ...

    async def settings(self, prefix: str = "") -> list[Setting]:
        """Settings whose key begins with the prefix, by key."""
        ...

    async def put_setting(self, key: str, value: str | None, expect: int) -> Setting | None:
        """Write (None: delete) if the setting is still at rev ``expect`` (0: not there); the setting written
        (deleted: as it was), or None when another was faster. No rev is given to a key twice. The documents
        ``queue:NAME``, ``limit:TASK`` and ``rate:NAME`` rule claims, as ``core.rule`` reads them; one that it cannot
        read is stored all the same."""
        ...

    async def lease(self, name: str, holder: UUID, seconds: float, now: datetime) -> int | None:
        """Take or renew a duty; its token (higher for each new holder), or None while another holds it."""
        ...

    async def unlease(self, name: str, holder: UUID) -> None:
        """Give a duty back."""
        ...
