"""The state of a memory store, which all its sessions share, and how a session accesses it."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from uuid import UUID

from headrace.core.audit import Audited
from headrace.core.change import Applied, Change, Conflict, KeyEffect, LeftOut, Verdict, judge
from headrace.core.defaults import MAX_AUDIT_ENTRIES, Rules
from headrace.core.job import Job
from headrace.core.lifecycle.deduplication import is_repeat, request_of
from headrace.core.lifecycle.duty import DutyLease, given_back
from headrace.core.limits.profiles import allowed, staked_by
from headrace.core.limits.rate import Spent
from headrace.core.limits.selection import Turn, Usage
from headrace.core.limits.settings import Bound, Limits
from headrace.core.matching.customers import dedup_of
from headrace.core.stats.rollup import Rollup
from headrace.core.status import Verb
from headrace.core.webhooks.delivery import unchained
from headrace.engine import Beat, Duplicated, GoneWorker, InsertAnswer, Inserted, Refused, Setting, Watched, WorkerInfo
from headrace.engines.limits_cache import LimitsCache
from headrace.engines.memory.job_table import JobTable
from headrace.engines.memory.relations import Relations
from headrace.errors import HeadraceError, KeyReused, NotOpen

__all__ = ["Role", "Session", "State", "Worker"]


class Worker:
    """A worker as the store keeps it."""

    def __init__(self, info: WorkerInfo, now: datetime) -> None:
        self.info = info
        self.beat = Beat()
        self.beats = 0
        self.beat_at = now
        self.alive = True
        self.reported = 0
        self.watched: Watched | None = None
        self.beside_suspect = self.mass_death = False


class State:
    """Everything that is stored, and the writes that more than one role makes."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self.table = JobTable()
        self.relations = Relations(self.table.records, rules)
        self.workers: dict[UUID, Worker] = {}
        self.gone: dict[UUID, GoneWorker] = {}
        self.settings: dict[str, Setting] = {}
        self.settings_rev = 0
        self.audit: deque[Audited] = deque(maxlen=MAX_AUDIT_ENTRIES)
        """The newest first."""
        self.leases: dict[str, DutyLease] = {}
        self.spent: dict[Bound, Spent] = {}
        """What was used of rates."""
        self.rollups: list[Rollup] = []
        """What workers have reported."""
        self.turns: dict[Turn, int] = {}
        """When each concurrency key was last given a job."""
        self._limits_cache = LimitsCache()

    def is_alive(self, worker: UUID) -> bool:
        """Return whether the worker is known and not buried."""
        return worker in self.workers and self.workers[worker].alive

    def die(self, worker: UUID) -> None:
        """Mark the worker as dead, and free its duties."""
        if worker in self.workers:
            self.workers[worker].alive = False
        self.leases = {name: given_back(lease, worker) for name, lease in self.leases.items()}

    @property
    def limits(self) -> Limits:
        """Return the limits of the settings."""
        if self._limits_cache.rev != self.settings_rev:
            self._limits_cache.read(self.settings_rev, ((one.key, one.value) for one in self.settings.values()))
        return self._limits_cache.limits

    @property
    def usage(self) -> Usage:
        """Return what is in use."""
        return self.table.usage(self.spent, self.turns)

    def insert(self, job: Job, now: datetime | None = None) -> InsertAnswer:
        """Store one new job; ``now``: unless it would need a profile too many by the keys that are valid then."""
        here = self.table.records.get(job.id)
        if here is not None:
            return Inserted(here)
        if (merged := self.table.merged.get(job.id)) is not None:
            return Duplicated(self.table.records[merged], replaced=True)
        first = self.table.first(job)
        if first is not None:
            return Duplicated(first) if is_repeat(job, first) else Refused(KeyReused(first))
        holder = self.table.holder(job)
        if holder is not None:
            return Duplicated(holder)
        if (why := self.relations.refusal(job)) is not None:
            return Refused(why)
        if now is not None and (out := self.table.want_of_room([job], self._allowed(now))):
            return Refused(out[job.id])
        stored = self.table.insert(job)
        self.relations.add(stored)
        return Inserted(stored)

    def refusal(self, jobs: Sequence[Job], now: datetime | None = None) -> HeadraceError | None:
        """Return why one of these jobs is refused, None if none is; ``now``: as for ``insert``."""
        coming, keys = dict[UUID, Job](), set[tuple[str, str]]()
        requests = dict[tuple[str, str] | None, Job]()
        for job in jobs:
            request = request_of(job)
            if job.id in self.table.merged:
                continue
            if (
                job.id not in self.table.records
                and (first := self.table.first(job) or requests.get(request)) is not None
            ):
                if not is_repeat(job, first):
                    return KeyReused(first)
                continue
            key = None if (dedup := dedup_of(job.spec)) is None else (job.spec.task, dedup)
            if job.id in self.table.records or self.table.holder(job) is not None or key in keys:
                continue
            if (why := self.relations.refusal(job, coming)) is not None:
                return why
            coming[job.id] = job
            if request is not None:
                requests[request] = job
            if key is not None and not job.ended:
                keys.add(key)
        out = {} if now is None else self.table.want_of_room(coming.values(), self._allowed(now))
        return next(iter(out.values()), None)

    def _allowed(self, now: datetime) -> Callable[[str], int]:
        """Return a function for how many pairs of task and requirements a customer may have live jobs now."""
        keys = [one.value for key, one in self.settings.items() if key.startswith("key:")]
        return lambda customer: allowed(customer, keys, now)

    def apply(self, change: Change, now: datetime) -> Verdict:
        """Apply one change as a whole, if possible; return the verdict."""
        job = self.table.records.get(change.job.id)
        holder = self.table.holder(change.job) if change.key is KeyEffect.TAKE else None
        closed = None if change.attempt is None else self.table.attempt(change.job.id, change.attempt.number)
        verdict = judge(change, self.table.last_change.get(change.job.id), job, holder, closed)
        if verdict is not None:
            return verdict
        if job is not None and change.verb is Verb.RETRY and staked_by(change.job.spec):
            out = self.table.want_of_room([change.job], self._allowed(now))
            if out:
                return Conflict(job, too_many=str(out[job.id]))
        self.table.change(change)
        lost = tuple(one for new in change.inserts if (one := self._insert_of_change(new)) is not None)
        for one in lost:
            self.table.events.setdefault(change.job.id, []).append(one.event(change.job.updated_at))
        return Applied(change.job, self.relations.follow(change), lost)

    def _insert_of_change(self, job: Job) -> LeftOut | None:
        """Store what a change inserts; return what is left out, if anything is."""
        answer = self.insert(job)
        if isinstance(answer, Refused) and (alone := unchained(job)) is not None:
            answer = self.insert(alone)
        return LeftOut.of(job, answer.error) if isinstance(answer, Refused) else None


class Session:
    """One session's access to the state: open or not, and one verb at a time over all sessions."""

    def __init__(self, state: State, lock: threading.Lock) -> None:
        self.is_open = False
        self._state, self._lock = state, lock

    @contextmanager
    def state(self) -> Iterator[State]:
        """Give the state to one verb; :raises NotOpen: the session is closed."""
        if not self.is_open:
            raise NotOpen("this session of the memory engine is not open")
        with self._lock:
            yield self._state


class Role:
    """A role of one session."""

    def __init__(self, session: Session) -> None:
        self._state = session.state
