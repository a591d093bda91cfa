"""A complete engine in one file: dictionaries, one lock, and a loop over all jobs for every question.

It is as slow as it is short, and it keeps every promise of the contract: ``test_tiny_engine.py`` runs the suite on it.
``docs/engines/writing.md`` walks through it.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from itertools import islice
from uuid import UUID

from msgspec.structs import replace

from headrace.core import batch as batches
from headrace.core.attempt import Attempt, Event, History
from headrace.core.audit import Audited
from headrace.core.batch import Batch, cursor_at
from headrace.core.change import Applied, Change, Conflict, KeyEffect, LeftOut, Note, Verdict, judge
from headrace.core.defaults import MAX_AUDIT_ENTRIES, Rules
from headrace.core.entry import BEGIN, Append, Cursor, Entry, Kept, Kind
from headrace.core.explain.position import BY_WORK, MAX_COUNTED_JOBS, PACE_WINDOW_SECONDS, Position
from headrace.core.job import Job
from headrace.core.lifecycle import family
from headrace.core.lifecycle.claim import ClaimRequest, grant, order, promoted
from headrace.core.lifecycle.decision import expired, tally_of_new
from headrace.core.lifecycle.deduplication import has_lapsed, is_repeat, request_of
from headrace.core.lifecycle.departure import Departure
from headrace.core.lifecycle.duty import FREE, DutyLease, given_back, holder_of, taken
from headrace.core.lifecycle.retention import is_past, latest_end, up_to
from headrace.core.lifecycle.suspects import ran_together, requirements_of
from headrace.core.limits import profiles
from headrace.core.limits.profiles import allowed, excess, no_room, room_for, staked_by
from headrace.core.limits.rate import micros
from headrace.core.limits.selection import QueuedEntry as InLine
from headrace.core.limits.selection import Usage, forgets, lapses, refusal, select_jobs
from headrace.core.limits.settings import Bound, Group, Limits, counted_by, group_of, limits_of
from headrace.core.matching.customers import dedup_of, turn_of
from headrace.core.matching.match import Profile
from headrace.core.query import HISTORY, Count, Filter, Ledger, Page, as_seen, cursor_of, matches
from headrace.core.stats.failures import FailureGroup, grouped
from headrace.core.stats.load import LOAD_MINUTES, MAX_LOAD_JOBS, Loads, loads_of
from headrace.core.stats.own_tasks import is_own
from headrace.core.stats.rollup import Rollup, concerns, regrouped
from headrace.core.stats.verification import Invariant, Mismatch, ledger_book
from headrace.core.status import DEFERRED, LIVE, Status, Verb
from headrace.core.webhooks.delivery import unchained
from headrace.core.webhooks.messages import missing
from headrace.engine import (
    MAX_BATCH,
    MAX_ROLL,
    Alive,
    Attended,
    Beat,
    Bus,
    Check,
    Claimed,
    Companions,
    Dead,
    Direct,
    Duplicated,
    Engine,
    Gone,
    GoneWorker,
    Hint,
    InsertAnswer,
    Inserted,
    LocalBus,
    Overdue,
    OverdueJobs,
    Processed,
    Profiles,
    Refused,
    Setting,
    Topic,
    Transactions,
    Watched,
    WorkerInfo,
    WorkerRow,
)
from headrace.engine.workers import last_gone_first
from headrace.engines.validation import refuse_changes, refuse_entries, refuse_jobs, refuse_text
from headrace.errors import HeadraceError, KeyReused, NotOpen
from headrace.runtime.host import Host

__all__ = ["TinyEngine"]


class Store:
    """Everything that is kept. All sessions of one store share it, and its lock."""

    def __init__(self, rules: Rules) -> None:
        self.rules, self.lock = rules, threading.RLock()
        self.buses: set[TinyBus] = set()
        self.jobs: dict[UUID, Job] = {}
        self.keys: dict[tuple[str, str | None], UUID] = {}  # who holds each dedup key
        self.merged: dict[UUID, UUID] = {}  # the job that took over what was submitted under an id
        self.last_change: dict[UUID, int] = {}
        self.unnamed: Counter[UUID] = Counter()
        self.attempts: dict[UUID, dict[int, Attempt]] = {}
        self.events: dict[UUID, list[Event]] = {}
        self.entries: dict[UUID, dict[tuple[Kind, Cursor], Entry]] = {}
        self.waited_for: set[UUID] = set()
        self.notes: deque[tuple[Note, UUID, int]] = deque()  # what, of which job or batch, how far it got
        self.batches: dict[UUID, Batch] = {}
        self.workers: dict[UUID, tuple[WorkerInfo, Beat, int, datetime, bool]] = {}
        self.watched: dict[UUID, Watched] = {}
        self.reported: Counter[UUID] = Counter()  # the last report of each worker
        self.rollups: list[Rollup] = []
        self.beside_suspects: set[UUID] = set()  # dead workers on which suspects and others ran together
        self.gone: dict[UUID, GoneWorker] = {}  # records of workers that are gone
        self.mass_deaths: set[UUID] = set()  # workers that died at the same time as others
        self.settings: dict[str, Setting] = {}
        self.profiles: dict[tuple[str, str], Profile] = {}
        self.staked: dict[str, set[tuple[str, str]]] = {}  # of which profiles each customer has live jobs, or had
        self.leases: dict[str, DutyLease] = {}
        self.usage = Usage()
        self.pruned: Counter[Status] = Counter()
        self.own_pruned: Counter[Status] = Counter()  # of those, headrace's own
        self.seq = self.settings_rev = self.profiles_rev = 0
        self.audit: deque[Audited] = deque(maxlen=MAX_AUDIT_ENTRIES)

    # -- what several verbs need

    def alive(self, worker: UUID | None) -> bool:
        """Whether the worker is known and not buried."""
        return worker in self.workers and self.workers[worker][4]

    def die(self, worker: UUID) -> None:
        """The worker is dead, and has no duties any more."""
        if worker in self.workers:
            self.workers[worker] = (*self.workers[worker][:4], False)
        self.leases = {name: given_back(lease, worker) for name, lease in self.leases.items()}

    def record(self, worker: UUID, departure: Departure | None) -> None:
        """The worker is gone from now on, and that is on record."""
        if departure is not None and self.alive(worker):
            held = self.held_by(worker)
            self.gone[worker] = GoneWorker.of(WorkerRow(*self.workers[worker], len(held)), departure, held)

    def held_by(self, worker: UUID) -> list[Job]:
        """The jobs of one worker, in order."""
        return [job for job in self.jobs.values() if job.worker == worker]

    @property
    def limits(self) -> Limits:
        """What the settings say of queues, tasks and rates."""
        return limits_of((one.key, one.value) for one in self.settings.values())

    def used(self) -> Usage:
        """What is held now, and what was spent before."""
        held = Counter[Bound]()
        for job in self.jobs.values():
            if job.worker is not None:
                held.update(counted_by(group_of(job)))
        return Usage(dict(held), dict(self.usage.spent), dict(self.usage.last))

    def profile(self, job: Job) -> Profile:
        """The profile of a job, made if need be."""
        key = _profile_key(job)
        if key not in self.profiles:
            self.profiles_rev += 1
            self.profiles[key] = Profile(self.profiles_rev, job.task, requirements_of(job))
        return self.profiles[key]

    def want_of_profile(self, job: Job) -> HeadraceError | None:
        """Why a job that is new, or comes back, can have none: its customer or the store has live jobs of too many."""
        whose, key = staked_by(job.spec), _profile_key(job)
        if whose:
            has = self.staked.setdefault(whose, set())
            keys = [one.value for name, one in self.settings.items() if name.startswith("key:")]
            most = allowed(whose, keys, job.updated_at)
            if excess(has, [key], most):
                live = [one for one in self.jobs.values() if one.status in LIVE]
                has &= {_profile_key(one) for one in live if staked_by(one.spec) == whose}
                if excess(has, [key], most):
                    return profiles.refusal(whose, most)
            has.add(key)
        room = room_for(whose)
        if key not in self.profiles and room is not None and len(self.profiles) >= room:
            needed = {_profile_key(one) for one in self.jobs.values() if one.status in LIVE}
            self.profiles = {key: one for key, one in self.profiles.items() if key in needed}
            customers = set[tuple[str, str]]().union(*self.staked.values()) if whose is None else set[tuple[str, str]]()
            if len(self.profiles.keys() - customers) >= room:
                return no_room(whose)
        return None

    def holder(self, job: Job) -> Job | None:
        """The other job that has this one's dedup key."""
        id = None if job.spec.dedup is None else self.keys.get(_key(job), job.id)
        return None if id in (None, job.id) else self.jobs[id]

    def first(self, job: Job) -> Job | None:
        """The job that was made when this request came for the first time; gone when that is pruned."""
        request = request_of(job)
        return next((one for one in self.jobs.values() if request_of(one) == request), None) if request else None

    def refusal(self, job: Job) -> HeadraceError | None:
        """Why a new job cannot be what it says it is to others."""
        spec = job.spec
        parent = self.jobs.get(spec.parent) if spec.parent else None
        batch = self.batches.get(spec.batch) if spec.batch else None
        missing = [id for id in spec.after if id not in self.jobs]
        return (
            (parent and family.refusal(parent.id, parent.status, parent.cancel_requested_at is not None, job))
            or (batch and batches.refusal_of_member(batch.id, batch.cancelled_at is not None, job))
            or (family.unknown_parent(missing[0]) if missing else None)
        )

    def insert(self, job: Job, *, limited: bool = True) -> InsertAnswer:
        """Store one new job; ``limited``: unless there are too many profiles."""
        if job.id in self.jobs:
            return Inserted(self.jobs[job.id])
        if job.id in self.merged:
            return Duplicated(self.jobs[self.merged[job.id]], replaced=True)
        if (first := self.first(job)) is not None:
            return Duplicated(first) if is_repeat(job, first) else Refused(KeyReused(first))
        if not job.ended and (holder := self.holder(job)) is not None:
            return Duplicated(holder)
        if (why := self.refusal(job)) is not None:
            return Refused(why)
        if limited and (why := self.want_of_profile(job)) is not None:
            return Refused(why)
        self.profile(job)
        self.seq += 1
        stored = self.jobs[job.id] = replace(job, seq=self.seq)
        if job.spec.dedup is not None and not job.ended:
            self.keys[_key(job)] = job.id
        self.waited_for.update(job.spec.after)
        self.notes.extend((note, job.id, 0) for note in family.note_of_new(job))
        if (batch := self.batches.get(job.spec.batch or job.id)) is not None:
            touched = max(batch.touched_at, job.updated_at)
            self.batches[batch.id] = replace(batch, tally=batch.tally.plus(tally_of_new(job)), touched_at=touched)
        return Inserted(stored)

    def undo(self) -> Callable[[], None]:
        """A function that takes back what is inserted from now on."""
        kept = dict(self.jobs), dict(self.batches), set(self.waited_for), self.notes.copy(), self.seq, dict(self.keys)

        def back() -> None:
            self.jobs, self.batches, self.waited_for, self.notes, self.seq, self.keys = kept

        return back

    def judge(self, change: Change) -> Verdict | None:
        """The verdict on a change, or None if it can be applied."""
        job, id = change.job, change.job.id
        holder = self.holder(job) if change.key is KeyEffect.TAKE else None
        closed = None if change.attempt is None else self.attempts.get(id, {}).get(change.attempt.number)
        verdict = judge(change, self.last_change.get(id), self.jobs.get(id), holder, closed)
        if verdict is None and change.verb is Verb.RETRY and staked_by(job.spec):
            why = self.want_of_profile(job)
            return None if why is None else Conflict(self.jobs[id], too_many=str(why))
        return verdict

    def apply(self, change: Change) -> Verdict:
        """Write one change whole, if it can be applied."""
        job, id = change.job, change.job.id
        if (verdict := self.judge(change)) is not None:
            return verdict
        before = self.jobs[id]
        if (before.worker, before.epoch) != (job.worker, job.epoch):
            del self.unnamed[id]
        self.jobs[id] = replace(job, seq=before.seq)
        if change.verb is not Verb.PROGRESS or change.inserts:
            self.last_change[id] = change.id
        if change.attempt is not None:
            records, number = self.attempts.setdefault(id, {}), change.attempt.number
            records[number] = records[number].fold(change.attempt) if number in records else change.attempt
        if change.key is KeyEffect.TAKE:
            self.keys[_key(job)] = id
        elif change.key is KeyEffect.RELEASE and self.keys.get(_key(job)) == id:
            del self.keys[_key(job)]
        if change.merges is not None:
            self.merged[change.merges] = id
        if change.event is not None:
            self.events.setdefault(id, []).append(change.event)
        notes = [note for note in change.notes if note is not Note.ENDED or id in self.waited_for]
        self.notes.extend((note, id, 0) for note in notes)
        if change.tally is not None and (batch := self.batches.get(job.spec.batch or id)) is not None:
            self.batches[batch.id] = replace(batch, tally=batch.tally.plus(change.tally))
        if job.status in LIVE:
            self.profile(job)
        left_out = tuple(one for new in change.inserts for one in self.insert_of_change(new))
        for one in left_out:
            self.events.setdefault(id, []).append(one.event(job.updated_at))
        return Applied(change.job, Note.ENDED in notes, left_out)

    def insert_of_change(self, job: Job) -> list[LeftOut]:
        """Store what a change inserts; what is left out all the same."""
        answer = self.insert(job, limited=False)
        if isinstance(answer, Refused) and (alone := unchained(job)) is not None:
            answer = self.insert(alone, limited=False)
        return [LeftOut.of(job, answer.error)] if isinstance(answer, Refused) else []

    def promote(self, now: datetime, limit: int | None) -> int:
        """Queue what is due, the longest due first."""
        due = [job for job in self.jobs.values() if job.status in DEFERRED and job.available_at <= now]
        due.sort(key=lambda job: (job.available_at, job.seq))
        for job in due[:limit]:
            self.jobs[job.id] = promoted(job, now)
        return len(due[:limit])


def _key(job: Job) -> tuple[str, str | None]:
    return job.task, dedup_of(job.spec)


def _profile_key(job: Job) -> tuple[str, str]:
    return job.task, json.dumps(requirements_of(job), sort_keys=True)


class Role:
    """What all roles have: a way to the store, for one verb at a time."""

    def __init__(self, engine: TinyEngine) -> None:
        self._engine = engine

    @contextmanager
    def store(self) -> Iterator[Store]:
        """The store, locked.

        :raises NotOpen: the session is not open.
        """
        if not self._engine.is_open:
            raise NotOpen("this session of the tiny engine is not open")
        with self._engine.store.lock:
            yield self._engine.store


class Jobs(Role):
    """The verbs that move jobs."""

    async def insert(
        self,
        jobs: Sequence[Job],
        now: datetime,
        batch: Batch | None = None,
        *,
        whole: bool = False,
        companions: Companions | None = None,
    ) -> list[InsertAnswer]:
        others = companions or {}
        refuse_jobs([one for job in jobs for one in (job, *others.get(job.id, ()))], documents=True)
        with self.store() as store:
            undo = store.undo()
            if batch is not None:
                store.batches.setdefault(batch.id, batch)
            answers = [self._insert(store, job, others.get(job.id, ())) for job in jobs]
            refused = [answer for answer in answers if isinstance(answer, Refused)]
            if refused and (whole or batch is not None):
                undo()
                return [refused[0]] * len(jobs)
            return answers

    @staticmethod
    def _insert(store: Store, job: Job, companions: Sequence[Job]) -> InsertAnswer:
        """Store a job with its companions, all or none."""
        undo, is_new = store.undo(), job.id not in store.jobs
        answer = store.insert(job)
        if is_new and isinstance(answer, Inserted):
            for one in companions:
                if isinstance(refused := store.insert(one), Refused):
                    undo()
                    return refused
        return answer

    async def claim(self, worker: UUID, ask: ClaimRequest, request: int, now: datetime) -> Claimed | Dead:
        with self.store() as store:
            if (why := refusal(ask, store.limits)) is not None:
                raise why
            if not store.alive(worker):
                return Dead()
            store.promote(now, None)
            limits, given, dealt = store.limits, grant(worker, ask, request, now, store.rules), None
            before = [job for job in store.held_by(worker) if job.claim == request]
            again = [job for job in before if job.status in (Status.ASSIGNED, Status.ACCEPTED)]
            again.sort(key=lambda job: order(job, limits.queue(job.queue).priority))
            if not before:
                lines, held_of = self._lines(store, ask, limits, now), [job.customer for job in store.held_by(worker)]
                dealt = select_jobs(lines, ask, now, store.rules, limits, store.used(), held_of)
                spent = store.usage.spent | dealt.spent
                store.usage.spent = {bound: one for bound, one in spent.items() if lapses(one) > now}
                store.usage.last |= dict.fromkeys(dealt.turned, micros(now))
                by_seq = {job.seq: job for job in store.jobs.values()}
                again = [given.on(by_seq[entry.seq]) for entry in dealt.taken]
                store.jobs |= {job.id: job for job in again}
            due = [job.available_at for job in store.jobs.values() if job.status in DEFERRED]
            due += [dealt.next_permit] if dealt is not None and dealt.next_permit is not None else []
            full = dealt is not None and bool(dealt.full)
            paced, soon = limits.spending(again), min(due, default=None)
            over = bool(before) and not again
            return Claimed(tuple(again), store.profiles_rev, store.settings_rev, soon, full, paced, over)

    @staticmethod
    def _lines(store: Store, ask: ClaimRequest, limits: Limits, now: datetime) -> list[tuple[Group, Iterable[InLine]]]:
        """What is in line of what is asked for: jobs by queue, profile, key and customer, each in order."""
        lines: dict[tuple[str, int, str | None, str | None], list[Job]] = {}
        for job in sorted(
            (one for one in store.jobs.values() if one.status is Status.QUEUED), key=lambda j: order(j, 0)
        ):
            profile = store.profile(job)
            asked = ask.queues is None or job.queue in ask.queues
            if profile.id in ask.profiles and asked and not limits.paused(job.queue, job.task):
                customer = job.customer if limits.queue(job.queue).by_customer else None
                lines.setdefault((job.queue, profile.id, turn_of(job.spec), customer), []).append(job)
        return [
            (
                Group(queue, jobs[0].task, key, customer),
                [
                    InLine(job.seq, -job.priority, micros(job.arrived_at), job.unstarted_losses, expired(job, now))
                    for job in jobs
                ],
            )
            for (queue, _, key, customer), jobs in lines.items()
        ]

    async def apply(self, changes: Sequence[Change], now: datetime) -> list[Verdict]:
        refuse_changes(changes)
        with self.store() as store:
            return [store.apply(change) for change in changes]

    async def promote(self, now: datetime, limit: int = MAX_BATCH) -> int:
        with self.store() as store:
            return store.promote(now, limit)

    async def realign(self, limit: int = MAX_BATCH) -> int:
        return 0  # lines are made anew for each claim

    async def overdue(self, now: datetime, limit: int = MAX_BATCH) -> OverdueJobs:
        with self.store() as store:
            found = []
            for job in store.jobs.values():
                late = job.act_by is not None and job.act_by <= now
                if job.worker is None:
                    found += [Overdue(job)] if late else []
                elif late or not store.alive(job.worker) or store.unnamed[job.id] >= 2:
                    row = store.workers.get(job.worker)
                    heard_at = None if row is None else row[3]
                    burial = job.worker in store.beside_suspects, job.worker in store.mass_deaths
                    found.append(Overdue(job, store.alive(job.worker), store.unnamed[job.id], heard_at, *burial))
            coming = (job.act_by for job in store.jobs.values() if job.act_by is not None and job.act_by > now)
            return OverdueJobs(tuple(found[:limit]), min(coming, default=None))

    async def delete(
        self,
        before: Mapping[Status, datetime],
        limit: int = MAX_BATCH,
        *,
        now: datetime | None = None,
        since: Mapping[Status, datetime] | None = None,
    ) -> int:
        with self.store() as store:
            if not before:
                return 0
            earliest = min(before.values())
            gone = list(islice((job for job in store.jobs.values() if self._is_old(store, job, before, now)), limit))
            latest = latest_end(before, gone)
            for job in gone:
                for kept in (store.jobs, store.last_change, store.attempts, store.events, store.entries):
                    kept.pop(job.id, None)
                store.keys = {key: id for key, id in store.keys.items() if id != job.id}
                store.merged = {id: one for id, one in store.merged.items() if one != job.id}
            store.pruned.update(job.status for job in gone)
            store.own_pruned.update(job.status for job in gone if is_own(job.task))
            in_line = {(job.task, turn_of(job.spec)) for job in store.jobs.values() if job.status is Status.QUEUED}
            turns = {(job.task, key) for job in gone if (key := turn_of(job.spec)) is not None}
            for turn in turns & store.usage.last.keys():
                if forgets(store.usage.last[turn], latest, in_line=turn in in_line):
                    del store.usage.last[turn]
            over = [one.id for one in store.batches.values() if one.settled and (one.ended_at or earliest) <= earliest]
            for id in over:
                del store.batches[id]
            return len(gone)

    @staticmethod
    def _is_old(store: Store, job: Job, before: Mapping[Status, datetime], now: datetime | None) -> bool:
        if job.finished_at is None or not is_past(job, before, now):
            return False
        if any(job.id in one.spec.after for one in store.jobs.values() if one.status in LIVE):
            return False
        moment = up_to(job, before, now)
        if moment is not None and job.id in store.keys.values() and not has_lapsed(job, moment):
            return False
        parent = store.jobs.get(job.spec.parent) if job.spec.parent else None
        looked_for = job.spec.parent is not None and family.may_be_looked_for(parent.status if parent else None)
        return job.finished_at <= min(before.values()) or not looked_for

    async def get(self, ids: Sequence[UUID]) -> list[Job | None]:
        with self.store() as store:
            return [store.jobs.get(id) for id in ids]


def _by_kind(counts: Counter[Status]) -> tuple[int, int, int]:
    return counts[Status.COMPLETED], counts[Status.FAILED], counts[Status.CANCELLED]


class Records(Role):
    """Questions about jobs."""

    async def find(self, filter: Filter, now: datetime, limit: int = 50, cursor: str | None = None) -> Page[Job]:
        with self.store() as store:
            below = cursor_of(cursor)
            newest = (job for job in reversed(store.jobs.values()) if below is None or job.seq < below)
            found = list(islice((as_seen(job, now) for job in newest if matches(job, filter, now)), limit + 1))
            more = len(found) > limit
            return Page(tuple(found[:limit]), (str(found[limit - 1].seq) if limit else cursor) if more else None)

    async def count_matching(self, filter: Filter, now: datetime, most: int | None = None) -> int:
        with self.store() as store:
            return sum(1 for _ in islice((job for job in store.jobs.values() if matches(job, filter, now)), most))

    async def failures(
        self, filter: Filter, now: datetime, limit: int = 50, among: int | None = None
    ) -> list[FailureGroup]:
        with self.store() as store:
            return grouped((job for job in store.jobs.values() if matches(job, filter, now)), limit, among)

    async def count(self, now: datetime, *, history: bool = True) -> list[Count]:
        with self.store() as store:
            groups: dict[tuple[str, Status, bool], list[Job]] = {}
            for job in (as_seen(one, now) for one in store.jobs.values() if history or one.status not in HISTORY):
                groups.setdefault((job.queue, job.status, is_own(job.task)), []).append(job)
            return [
                Count(
                    queue, status, len(jobs), min(job.arrived_at for job in jobs) if status in LIVE else None, own=own
                )
                for (queue, status, own), jobs in sorted(groups.items())
            ]

    async def history(self, id: UUID) -> History:
        with self.store() as store:
            attempts = store.attempts.get(id, {})
            return History(tuple(attempts[number] for number in sorted(attempts)), tuple(store.events.get(id, ())))

    async def ledger(self, *, users: bool = False) -> Ledger:
        with self.store() as store:
            there, own = Counter[Status](), Counter[Status]()
            for job in store.jobs.values():
                (own if users and is_own(job.task) else there)[job.status] += 1
            gone = store.pruned - store.own_pruned if users else store.pruned
            live, kept = sum(there[status] for status in LIVE), _by_kind(there)
            accepted = store.seq - (own.total() + store.own_pruned.total() if users else 0)
            return Ledger.of(accepted, live, kept, gone.total(), _by_kind(gone))

    async def verify(self, book: str, now: datetime | None = None) -> Invariant:
        if book == "ledger":
            return ledger_book(await self.ledger())
        if book == "messages" and now is not None:
            with self.store() as store:
                found = [Mismatch(what, str(job.id)) for job, what in missing(store.jobs.values(), now)]
                return Invariant.of(book, len(store.jobs), found)
        return Invariant.of(book, 0)  # it has no indexes that could differ from the jobs

    async def usage(self, rates: Sequence[Bound] = ()) -> Usage:
        with self.store() as store:
            return store.used()

    async def position(
        self, job: Job, now: datetime, window: float = PACE_WINDOW_SECONDS, most: int = MAX_COUNTED_JOBS
    ) -> Position:
        with self.store() as store:
            place = order(as_seen(job, now), 0)
            due = sum(one.status in DEFERRED and one.available_at <= now for one in store.jobs.values())
            line = [as_seen(one, now) for one in store.jobs.values() if one.queue == job.queue]
            before = [one for one in line if one.status is Status.QUEUED and order(one, 0) < place]
            ahead = [one for one in before if not expired(one, now)]
            since = now - timedelta(seconds=window)
            recent = sorted(
                ((one.finished_at, one) for one in store.jobs.values() if one.finished_at and one.status in BY_WORK),
                key=lambda pair: (pair[0], pair[1].seq),
                reverse=True,
            )
            recent = [(at, one) for at, one in recent if at > since][: most + 1]
            if len(recent) > most:
                since = max(since, recent[-1][0])
            done = [one.assigned_at for at, one in recent if one.queue == job.queue and one.assigned_at and at > since]
            return Position(
                ahead=min(len(ahead), most),
                keyed=sum(one.concurrency_key is not None for one in ahead[:most]),
                more=max(len(before), due) > most,
                ended=len(done),
                since=since,
                first_claimed_at=min(done, default=None),
            )

    async def load(
        self, now: datetime, minutes: int = LOAD_MINUTES, most: int = MAX_LOAD_JOBS, recent: int = MAX_COUNTED_JOBS
    ) -> Loads:
        with self.store() as store:
            return loads_of(store.jobs.values(), now, minutes)


class Entries(Role):
    """What runs add to their jobs."""

    async def append(self, appends: Sequence[Append], now: datetime) -> list[Kept]:
        refuse_entries(appends)
        with self.store() as store:
            return [self._append(store, one) for one in appends]

    @staticmethod
    def _append(store: Store, append: Append) -> Kept:
        job = store.jobs.get(append.job)
        if job is None or job.status is not Status.RUNNING or (job.worker, job.epoch) != (append.worker, append.epoch):
            return "stale"
        kept = store.entries.setdefault(append.job, {})
        for entry in append.entries:
            kept.setdefault((entry.kind, entry.cursor), entry)
        return "kept"

    async def tail(
        self, job: UUID, kind: Kind, after: Cursor = BEGIN, limit: int = MAX_BATCH, *, newest: bool = False
    ) -> list[Entry]:
        with self.store() as store:
            kept = store.entries.get(job, {})
            behind = [kept[place] for place in sorted(kept) if place[0] is kind and place[1] > after]
            return behind[max(0, len(behind) - limit) :] if newest else behind[:limit]


class Families(Role):
    """Notes for other jobs, and batches."""

    async def process_notes(self, now: datetime, limit: int = MAX_BATCH) -> Processed:
        with self.store() as store:
            changes: list[Change] = []
            while store.notes and limit > 0:
                heard = self._heard(store, limit)
                limit -= max(1, len(heard))
                decided = self._decide(store, heard, now)
                ended = [job.id for job in self._children(store, heard) if family.passes_on(job)]
                for change in decided:
                    store.apply(change)
                store.notes.extend((Note.CANCELLED, id, 0) for id in ended)
                changes += decided
            return Processed(tuple(changes), tuple(self._over(store, now)), bool(store.notes))

    @staticmethod
    def _heard(store: Store, limit: int) -> list[tuple[Note, UUID]]:
        """Whom the first notes concern, up to the limit. A note that concerns more stays, with how far it got: the
        order number of the last, since a count would be wrong once some of them are deleted."""
        heard: list[tuple[Note, UUID]] = []
        while store.notes and len(heard) < limit:
            note, id, done = store.notes.popleft()
            concerned = [one for one in _concerned(store, note, id) if store.jobs[one].seq > done]
            part = concerned[: limit - len(heard)]
            if len(part) < len(concerned):
                store.notes.appendleft((note, id, store.jobs[part[-1]].seq))
            heard += [(note, one) for one in part]
        return heard

    @staticmethod
    def _children(store: Store, heard: Iterable[tuple[Note, UUID]]) -> list[Job]:
        """The jobs that hear that their parent was cancelled."""
        return [store.jobs[id] for id in dict.fromkeys(id for note, id in heard if note is Note.CANCELLED)]

    def _decide(self, store: Store, heard: list[tuple[Note, UUID]], now: datetime) -> list[Change]:
        """What follows for each of them; all is decided before any of it is written."""
        children = {job.id for job in self._children(store, heard)}
        stopped = {id for note, id in heard if note is Note.STOPPED}
        decided: list[Change | None] = []
        for id in dict.fromkeys(id for _, id in heard):
            job = store.jobs[id]
            parents = [store.jobs[one].status if one in store.jobs else None for one in job.spec.after]
            batch = store.batches.get(job.spec.batch) if id in stopped and job.spec.batch is not None else None
            decided.append(family.follow(job, parents, now, store.rules, parent_cancelled=id in children, batch=batch))
        return [change for change in decided if change is not None]

    @staticmethod
    def _over(store: Store, now: datetime) -> list[Batch]:
        over = []
        for batch in [one for one in store.batches.values() if not one.settled]:
            if batches.is_silent(batch, now, store.rules):
                batch = store.batches[batch.id] = replace(batch, sealed=True, abandoned=True)  # noqa: PLW2901
            if batches.is_over(batch):
                store.batches[batch.id] = replace(batch, ended_at=batch.ended_at or now)
                over.append(store.batches[batch.id])
        return over

    async def batches(self, ids: Sequence[UUID]) -> list[Batch | None]:
        with self.store() as store:
            return [store.batches.get(id) for id in ids]

    async def find_batches(
        self, limit: int = 50, cursor: str | None = None, customer: str | None = None
    ) -> Page[Batch]:
        with self.store() as store:
            below = batches.cursor_at(cursor)
            newest = sorted(store.batches.values(), key=lambda one: (micros(one.created_at), one.id), reverse=True)
            wanted = [one for one in newest if customer in (None, one.customer)]
            older = [one for one in wanted if (micros(one.created_at), one.id) < below]
            return batches.newest_first(older[: limit + 1], limit)

    async def seal(self, batch: UUID, now: datetime) -> bool:
        with self.store() as store:
            if batch in store.batches:
                store.batches[batch] = batches.sealed(store.batches[batch], now)
            return batch in store.batches

    async def cancel_batch(self, batch: UUID, now: datetime, by: str | None = None) -> Batch | None:
        with self.store() as store:
            here = store.batches.get(batch)
            if here is not None and (made := batches.cancelled(here, now, by)) is not None:
                store.batches[batch] = made
                store.notes.append((Note.STOPPED, batch, 0))
            return store.batches.get(batch)

    async def settle(self, batch: UUID, now: datetime, jobs: Sequence[Job] = ()) -> Refused | None:
        refuse_jobs(jobs, documents=True)
        with self.store() as store:
            if batch not in store.batches or store.batches[batch].settled:
                return None
            undo = store.undo()
            store.batches[batch] = replace(store.batches[batch], settled=True)
            answers = [store.insert(job, limited=False) for job in jobs]
            refused = [answer for answer in answers if isinstance(answer, Refused)]
            if refused:
                undo()
            return refused[0] if refused else None


def _concerned(store: Store, note: Note, id: UUID) -> list[UUID]:
    """The jobs that a note is for."""
    jobs = store.jobs.values()
    if note is Note.WAITS:
        return [id] if id in store.jobs else []
    if note is Note.ENDED:
        return [job.id for job in jobs if id in job.spec.after]
    if note is Note.STOPPED:
        return [job.id for job in jobs if job.spec.batch == id]
    parent = store.jobs.get(id)
    still = parent is None or family.still_cancelled(parent)
    return [job.id for job in jobs if job.spec.parent == id] if still else []


class Workers(Role):
    """Who is alive."""

    gone_after = 0.0

    async def register(self, info: WorkerInfo, now: datetime) -> None:
        with self.store() as store:
            store.workers.setdefault(info.id, (info, Beat(), 0, now, True))

    async def beat_many(self, beats: Mapping[UUID, Beat], now: datetime) -> dict[UUID, Alive | Dead]:
        with self.store():
            return {worker: await self.beat(worker, beat, now) for worker, beat in beats.items()}

    async def beat(self, worker: UUID, beat: Beat, now: datetime) -> Alive | Dead:
        with self.store() as store:
            if not store.alive(worker):
                return Dead()
            info, _, beats, _, _ = store.workers[worker]
            store.workers[worker] = (info, beat.kept, beats + 1, now, True)
            if beat.finished and beat.report > store.reported[worker]:
                store.reported[worker] = beat.report
                store.rollups += beat.finished
            held, old = store.held_by(worker), now - timedelta(seconds=2 * store.rules.beat)
            known = [job for job in held if job.assigned_at is not None and job.assigned_at <= old]
            for job in known:
                store.unnamed[job.id] = 0 if job.id in beat.held else store.unnamed[job.id] + 1
            cancels = tuple(job.id for job in held if job.cancel_requested_at is not None)
            unknown = tuple(job for job in known if job.id not in beat.held)
            return Alive(beats + 1, cancels, unknown, store.profiles_rev, store.settings_rev)

    async def attend(self, worker: UUID) -> Attended | None:
        return None  # no kernel can tell who of one process is dead: workers are judged by looks

    async def gone(self, rows: Sequence[WorkerRow]) -> Gone:
        return Gone()

    async def watched(self, worker: UUID, watched: Watched) -> None:
        with self.store() as store:
            if store.alive(worker) and store.workers[worker][2] == watched.beats:
                store.watched[worker] = watched

    async def bury(
        self, worker: UUID, beats: int, *, mass_death: bool = False, departure: Departure | None = None
    ) -> bool:
        with self.store() as store:
            if not store.alive(worker) or store.workers[worker][2] != beats:
                return False
            if ran_together(store.held_by(worker)):
                store.beside_suspects.add(worker)
            if mass_death:
                store.mass_deaths.add(worker)
            store.record(worker, departure)
            store.die(worker)
            return True

    async def retire(self, worker: UUID, *, departure: Departure | None = None) -> None:
        with self.store() as store:
            store.record(worker, departure)
            store.die(worker)

    async def find_gone(self, limit: int = 50, cursor: str | None = None) -> Page[GoneWorker]:
        below = cursor_at(cursor)
        with self.store() as store:
            found = sorted(store.gone.values(), key=lambda one: one.place, reverse=True)
            return last_gone_first([one for one in found if one.place < below], limit)

    async def get_gone(self, worker: UUID) -> GoneWorker | None:
        with self.store() as store:
            return store.gone.get(worker)

    async def forget_gone(self, before: datetime, limit: int = MAX_BATCH) -> int:
        with self.store() as store:
            old = [one for one in store.gone.values() if one.departure.at <= before]
            old = sorted(old, key=lambda one: one.place)[:limit]
            for one in old:
                del store.gone[one.row.info.id]
            return len(old)

    async def list(self) -> list[WorkerRow]:
        with self.store() as store:
            holds = Counter(job.worker for job in store.jobs.values() if job.worker is not None)
            store.workers = {id: row for id, row in store.workers.items() if row[4] or holds[id]}
            rows = sorted(store.workers.values(), key=lambda row: row[0].started_at)
            return [WorkerRow(*row, holds[row[0].id], watched=store.watched.get(row[0].id)) for row in rows]


class Rollups(Role):
    """What workers finished, added up."""

    async def read(
        self, since: datetime, until: datetime, task: str | None = None, queue: str | None = None
    ) -> list[Rollup]:
        with self.store() as store:
            return [row for row in store.rollups if concerns(row, since, until, task, queue)]

    async def roll(self, now: datetime, limit: int = MAX_ROLL) -> int:
        with self.store() as store:
            before, store.rollups = store.rollups, regrouped(store.rollups, now)
            return len(before) if store.rollups != before else 0


class Documents(Role):
    """Settings, profiles, leases."""

    async def profiles(self) -> Profiles:
        with self.store() as store:
            return Profiles(store.profiles_rev, tuple(store.profiles.values()))

    async def settings(self, prefix: str = "") -> list[Setting]:
        with self.store() as store:
            return [store.settings[key] for key in sorted(store.settings) if key.startswith(prefix)]

    async def put_setting(self, key: str, value: str | None, expect: int, act: Event | None = None) -> Setting | None:
        refuse_text(key, value)
        with self.store() as store:
            here = store.settings.get(key, Setting(key, "null", 0))
            if here.rev != expect:
                return None
            store.settings_rev += 1
            if act is not None:
                store.audit.appendleft(Audited.of(key, act))
            if value is None:
                store.settings.pop(key, None)
                return here
            store.settings[key] = Setting(key, value, store.settings_rev)
            return store.settings[key]

    async def audit(self, limit: int) -> list[Audited]:
        with self.store() as store:
            return list(islice(store.audit, limit))

    async def lease(
        self, name: str, holder: UUID, seconds: float, now: datetime, longest: float | None = None
    ) -> int | None:
        with self.store() as store:
            lease = taken(store.leases.get(name, FREE), holder, seconds, now, longest)
            if lease is None:
                return None
            store.leases[name] = lease
            return lease.token

    async def unlease(self, name: str, holder: UUID) -> None:
        with self.store() as store:
            store.leases[name] = given_back(store.leases.get(name, FREE), holder)

    async def holder(self, name: str, now: datetime) -> UUID | None:
        with self.store() as store:
            return holder_of(store.leases.get(name, FREE), now)


class TinyBus:
    """Hands each hint to all open sessions of the store, each on its own loop."""

    def __init__(self, store: Store) -> None:
        self._store, self._local = store, LocalBus()
        self.loop: asyncio.AbstractEventLoop | None = None

    def send(self, hint: Hint) -> None:
        with self._store.lock:
            buses = list(self._store.buses)
        for bus in buses:
            if bus.loop is not None:
                with suppress(RuntimeError):  # its loop is closed: nobody is left to listen
                    bus.loop.call_soon_threadsafe(bus._local.deliver, hint)

    def wanted(self, topic: Topic) -> bool:
        with self._store.lock:
            return any(topic in bus._local.topics for bus in self._store.buses)

    def listen(self, topics: frozenset[Topic], listener: Callable[[Hint], None]) -> Callable[[], None]:
        return self._local.listen(topics, listener)


class TinyEngine:
    """A session on a store in memory."""

    name = "tiny"
    direct: Direct | None = None
    transactions: Transactions | None = None

    def __init__(self, rules: Rules, host: Host, store: Store | None = None) -> None:
        self.rules, self.host, self.is_open = rules, host, False
        self.store = store or Store(rules)
        self._bus = TinyBus(self.store)
        self.bus: Bus = self._bus
        self.jobs, self.records, self.entries, self.families = Jobs(self), Records(self), Entries(self), Families(self)
        self.workers, self.documents, self.rollups = Workers(self), Documents(self), Rollups(self)

    async def open(self) -> None:
        self._bus.loop, self.is_open = asyncio.get_running_loop(), True
        with self.store.lock:
            self.store.buses.add(self._bus)

    async def close(self) -> None:
        self.is_open = False
        with self.store.lock:
            self.store.buses.discard(self._bus)

    async def exists(self) -> bool:
        return True

    async def migrate(self, *, plan: bool = False) -> list[str]:
        return []

    async def time(self) -> datetime | None:
        return None

    async def check(self, now: datetime) -> list[Check]:
        return [Check("ledger", "ok" if not (await self.records.ledger()).unaccounted else "fail", "the books balance")]

    def another_session(self) -> Engine:
        return TinyEngine(self.rules, self.host, self.store)


def engine(url: str, rules: Rules, host: Host, *, namespace: str) -> Engine:
    """The engine of a URL: what ``tiny = "tiny_engine:engine"`` names in the entry point group ``headrace.engines``.

    Two namespaces never meet: every engine made here has a store of its own. One that connects to a server must keep
    them apart there (another schema, another prefix) or refuse all but one with ``NotSupported``.
    """
    return TinyEngine(rules, host)
