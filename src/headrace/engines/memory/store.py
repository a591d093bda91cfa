"""The state of a memory store, and each verb of the contract on it; one caller at a time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import islice
from uuid import UUID

from headrace.core.batch import Batch
from headrace.core.change import Applied, Change, Key, Verdict, judge
from headrace.core.claim import Ask, grant, order, promoted
from headrace.core.decide import expired
from headrace.core.entry import Append, Kept
from headrace.core.job import Job
from headrace.core.lease import FREE, Lease, given_back, taken
from headrace.core.limit import Dealt, Entry, Turn, Usage, deal, forgets, lapses
from headrace.core.rate import Spent, micros
from headrace.core.rule import Bound, Limits
from headrace.core.rules import Rules
from headrace.core.status import Status
from headrace.engine import (
    Alive,
    Beat,
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
from headrace.engines.memory.families import Families
from headrace.engines.memory.index import Index
from headrace.engines.memory.jobs import Jobs
from headrace.engines.record import too_many
from headrace.engines.rulebook import Rulebook
from headrace.errors import HeadraceError

__all__ = ["Store"]

_UNSTARTED = frozenset({Status.ASSIGNED, Status.ACCEPTED})
_UNNAMED = 2


class _Worker:
    def __init__(self, info: WorkerInfo, now: datetime) -> None:
        self.info = info
        self.beat = Beat()
        self.beats = 0
        self.beat_at = now
        self.alive = True


class Store:
    """What the sessions of one memory store share. Not locked: a session calls one verb at a time, under its lock."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self.jobs = Jobs()
        self.families = Families(self.jobs.records, rules)
        self.settings_rev = 0
        self._workers: dict[UUID, _Worker] = {}
        self._settings: dict[str, Setting] = {}
        self._leases: dict[str, Lease] = {}
        self._rulebook = Rulebook()
        self._spent: dict[Bound, Spent] = {}
        self._last: dict[Turn, int] = {}

    # -- jobs

    def insert(self, jobs: Sequence[Job], batch: Batch | None, whole: bool) -> list[InsertAnswer]:
        """Store new jobs; with a batch, or ``whole``, all or none."""
        if (whole or batch is not None) and (why := self._refusal(jobs)) is not None:
            return [Refused(why)] * len(jobs)
        if batch is not None:
            self.families.make(batch)
        return [self._insert(job) for job in jobs]

    def _refusal(self, jobs: Sequence[Job]) -> HeadraceError | None:
        """Why one of these is refused, if one is."""
        coming, keys = dict[UUID, Job](), set[tuple[str, str]]()
        for job in jobs:
            key = None if job.spec.dedup is None else (job.spec.task, job.spec.dedup)
            if job.id in self.jobs.records or self.jobs.holder(job) is not None or key in keys:
                continue
            if (why := self.families.refusal(job, coming)) is not None:
                return why
            coming[job.id] = job
            if key is not None and not job.ended:
                keys.add(key)
        return None if self.jobs.has_room_for(coming.values()) else too_many()

    def _insert(self, job: Job) -> InsertAnswer:
        here = self.jobs.records.get(job.id)
        if here is not None:
            return Inserted(here)
        holder = self.jobs.holder(job)
        if holder is not None:
            return Duplicated(holder)
        if (why := self.families.refusal(job)) is not None:
            return Refused(why)
        stored = self.jobs.insert(job)
        if stored is None:
            return Refused(too_many())
        self.families.add(stored)
        return Inserted(stored)

    def claim(self, worker: UUID, ask: Ask, request: int, now: datetime) -> Claimed | Dead:
        """Promote what is due, then give the worker the first jobs in order that it may take."""
        if not self._alive(worker):
            return Dead()
        self.promote(now, None)
        held = (self.jobs.records[id] for id in self.jobs.held.get(worker, ()))
        taken = [job for job in held if job.claim == request and job.status in _UNSTARTED]
        first = self.jobs.deferred.first()
        due: list[datetime] = [] if first is None else [first[0]]
        full = False
        if taken:
            taken.sort(key=lambda job: order(job, self._limits.queue(job.queue).priority))
        else:
            given = grant(worker, ask, request, now, self.rules)
            dealt, taken = self._deal(ask, now)
            full, permit = bool(dealt.full), dealt.next_permit
            taken = [given.on(job) for job in taken]
            for job in taken:
                self.jobs.put(job)
            due += [] if permit is None else [permit]
        return Claimed(tuple(taken), self.jobs.profiles_rev, self.settings_rev, min(due, default=None), full)

    def _deal(self, ask: Ask, now: datetime) -> tuple[Dealt, list[Job]]:
        """Who is given."""
        jobs, limits = self.jobs, self._limits
        found: dict[int, Job] = {}

        def entries(line: Index) -> Iterator[Entry]:
            for _, id in line:
                job = jobs.records[id]
                found[job.seq] = job
                yield Entry(job.seq, -job.priority, micros(job.arrived_at), job.unstarted_losses, expired(job, now))

        lines = [(group, entries(line)) for group, line in jobs.served(ask, limits)]
        dealt = deal(lines, ask, now, self.rules, limits, self.usage())
        self._spent = {bound: one for bound, one in (self._spent | dealt.spent).items() if lapses(one) > now}
        self._last |= dict.fromkeys(dealt.turned, micros(now))
        return dealt, [found[entry.seq] for entry in dealt.taken]

    def usage(self) -> Usage:
        """What is in use."""
        return self.jobs.usage(self._spent, self._last)

    def apply(self, changes: Sequence[Change]) -> list[Verdict]:
        """Apply each change if its rev and owner still hold."""
        return [self._apply(change) for change in changes]

    def _apply(self, change: Change) -> Verdict:
        job = self.jobs.records.get(change.job.id)
        holder = self.jobs.holder(change.job) if change.key is Key.TAKE else None
        verdict = judge(change, self.jobs.last_change.get(change.job.id), job, holder)
        if verdict is not None:
            return verdict
        self.jobs.change(change)
        for new in change.inserts:
            self._insert(new)
        return Applied(change.job, self.families.follow(change))

    def tell(self, now: datetime, limit: int) -> Told:
        """Work off notes."""
        return self.families.tell(now, limit, self._apply)

    def delete(self, before: Mapping[Status, datetime], limit: int) -> int:
        """Forget ended jobs."""
        if not before:
            return 0
        earliest = min(before.values())
        gone = self.jobs.delete(before, limit, lambda id: self.families.needed(id, earliest))
        self.families.forget(gone, earliest)
        self._forget_turns(gone, max(before.values()))
        return len(gone)

    def _forget_turns(self, gone: Sequence[Job], before: datetime) -> None:
        turns = {(job.task, job.concurrency_key) for job in gone if job.concurrency_key is not None}
        if not turns:
            return
        in_line = self.jobs.turns_in_line()
        for turn in turns & self._last.keys():
            if forgets(self._last[turn], before, in_line=turn in in_line):
                del self._last[turn]

    def append(self, appends: Sequence[Append]) -> list[Kept]:
        """Keep the entries of those jobs that are still in the hands they speak for."""
        return [self._append(one) for one in appends]

    def _append(self, append: Append) -> Kept:
        job = self.jobs.records.get(append.job)
        if job is None or job.status is not Status.RUNNING or (job.worker, job.epoch) != (append.worker, append.epoch):
            return "stale"
        self.jobs.entries.add(append.job, append.entries)
        return "kept"

    def promote(self, now: datetime, limit: int | None) -> int:
        """Queue deferred jobs that are due."""
        due = list(islice(self.jobs.deferred.upto(now), limit))
        for id in due:
            self.jobs.put(promoted(self.jobs.records[id], now))
        return len(due)

    def overdue(self, now: datetime, limit: int) -> list[Overdue]:
        """Jobs with a question open."""
        found = dict.fromkeys(self.jobs.watched.upto(now))
        for worker, held in self.jobs.held.items():
            alive = self._alive(worker)
            found |= dict.fromkeys(id for id, unnamed in held.items() if not alive or unnamed >= _UNNAMED)
        return [self._overdue(self.jobs.records[id]) for id in islice(found, limit)]

    def _overdue(self, job: Job) -> Overdue:
        if job.worker is None:
            return Overdue(job)
        row = self._workers.get(job.worker)
        heard_at = None if row is None else row.beat_at
        return Overdue(job, self._alive(job.worker), self.jobs.held[job.worker][job.id], heard_at)

    # -- workers

    def register(self, info: WorkerInfo, now: datetime) -> None:
        """Make the worker known."""
        self._workers.setdefault(info.id, _Worker(info, now))

    def beat(self, worker: UUID, beat: Beat, now: datetime) -> Alive | Dead:
        """Raise the worker's beat number and count what it did not name."""
        if not self._alive(worker):
            return Dead()
        row = self._workers[worker]
        row.beat, row.beats, row.beat_at = beat, row.beats + 1, now
        held, named = self.jobs.held.get(worker, {}), frozenset(beat.held)
        old = now - timedelta(seconds=2 * self.rules.beat)
        jobs = sorted((self.jobs.records[id] for id in held), key=lambda job: job.seq)
        unknown = []
        for job in jobs:
            if job.assigned_at is not None and job.assigned_at <= old:
                held[job.id] = 0 if job.id in named else held[job.id] + 1
                if job.id not in named:
                    unknown.append(job)
        cancels = tuple(job.id for job in jobs if job.cancel_requested_at is not None)
        return Alive(row.beats, cancels, tuple(unknown), self.jobs.profiles_rev, self.settings_rev)

    def bury(self, worker: UUID, beats: int) -> bool:
        """Declare the worker dead if it has not beaten since."""
        row = self._workers.get(worker)
        if row is None or row.beats != beats:
            return False
        row.alive = False
        return True

    def retire(self, worker: UUID) -> None:
        """Let the worker go."""
        if worker in self._workers:
            self._workers[worker].alive = False

    def workers(self) -> list[WorkerRow]:
        """Every known worker, without the dead that no job names."""
        self._workers = {id: row for id, row in self._workers.items() if row.alive or id in self.jobs.held}
        oldest_first = sorted(self._workers.values(), key=lambda row: row.info.started_at)
        return [
            WorkerRow(row.info, row.beat, row.beats, row.beat_at, row.alive, len(self.jobs.held.get(row.info.id, ())))
            for row in oldest_first
        ]

    def _alive(self, worker: UUID) -> bool:
        return worker in self._workers and self._workers[worker].alive

    # -- the rest

    def profiles(self) -> Profiles:
        """Every live profile."""
        return Profiles(self.jobs.profiles_rev, tuple(self.jobs.profiles.values()))

    def settings(self, prefix: str) -> list[Setting]:
        """Settings by key."""
        return [self._settings[key] for key in sorted(self._settings) if key.startswith(prefix)]

    def put_setting(self, key: str, value: str | None, expect: int) -> Setting | None:
        """Compare and set; revs are taken from one counter, so that none comes again after a delete."""
        here = self._settings.get(key)
        if expect != (0 if here is None else here.rev):
            return None
        self.settings_rev += 1
        if value is None:
            return self._settings.pop(key, Setting(key, "null", 0))
        setting = self._settings[key] = Setting(key, value, self.settings_rev)
        return setting

    @property
    def _limits(self) -> Limits:
        if self._rulebook.rev != self.settings_rev:
            self._rulebook.read(self.settings_rev, ((one.key, one.value) for one in self._settings.values()))
        return self._rulebook.limits

    def lease(self, name: str, holder: UUID, seconds: float, now: datetime) -> int | None:
        """Take or renew a duty."""
        lease = taken(self._leases.get(name, FREE), holder, seconds, now)
        if lease is None:
            return None
        self._leases[name] = lease
        return lease.token

    def unlease(self, name: str, holder: UUID) -> None:
        """Give a duty back."""
        self._leases[name] = given_back(self._leases.get(name, FREE), holder)
