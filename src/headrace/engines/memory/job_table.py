"""The jobs of a memory store: the records, their sorted indexes, and the entries that runs added to them."""

from __future__ import annotations

import json
from bisect import bisect_left, bisect_right, insort
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from heapq import merge
from itertools import chain, islice, takewhile
from typing import Any
from uuid import UUID

from msgspec.structs import replace

from headrace.core.attempt import Attempt, Event
from headrace.core.change import Change, KeyEffect
from headrace.core.entry import Cursor, Entry, Kind
from headrace.core.explain.position import BY_WORK
from headrace.core.job import Job
from headrace.core.lifecycle.claim import ClaimRequest, order
from headrace.core.lifecycle.deduplication import has_lapsed, request_of
from headrace.core.lifecycle.retention import is_past, up_to
from headrace.core.lifecycle.suspects import requirements_of
from headrace.core.limits.profiles import Pair, excess, no_room, refusal, room_for, staked_by
from headrace.core.limits.rate import Spent
from headrace.core.limits.selection import Turn, Usage
from headrace.core.limits.settings import Bound, Group, Limits, counted_by, group_of
from headrace.core.matching.customers import dedup_of, turn_of
from headrace.core.matching.match import Profile
from headrace.core.stats.own_tasks import is_own
from headrace.core.status import DEFERRED, ENDED, LIVE, Status, Verb
from headrace.errors import HeadraceError

__all__ = ["Index", "JobTable", "KeptEntries", "Sort"]


Sort = tuple[Any, ...]
"""The sort key of an index; ends in the order number, so no two entries are equal before their ids are compared."""


class Index:
    """Job ids in the order of their sort keys, each key once."""

    def __init__(self) -> None:
        self._entries: list[tuple[Sort, UUID]] = []
        # Entries before this one were removed. Subqueues are emptied from the front, and moving a long list for every
        # job taken would make draining it quadratic.
        self._front = 0

    def __len__(self) -> int:
        return len(self._entries) - self._front

    def __iter__(self) -> Iterator[tuple[Sort, UUID]]:
        for at in range(self._front, len(self._entries)):
            yield self._entries[at]

    def add(self, sort: Sort, id: UUID) -> None:
        """Insert an id in order."""
        insort(self._entries, (sort, id), lo=self._front)

    def remove(self, sort: Sort, id: UUID) -> None:
        """Remove an id that was added with this key."""
        at = bisect_left(self._entries, (sort, id), lo=self._front)
        if at > self._front:
            del self._entries[at]
            return
        self._front += 1
        if self._front * 2 > len(self._entries):
            del self._entries[: self._front]
            self._front = 0

    def first(self) -> Sort | None:
        """Return the smallest key."""
        return self._entries[self._front][0] if self else None

    def before(self, sort: Sort) -> Iterator[UUID]:
        """Yield the ids with a smaller key, in order."""
        for at in range(self._front, bisect_left(self._entries, sort, lo=self._front, key=lambda entry: entry[0])):
            yield self._entries[at][1]

    def after(self, bound: Any) -> Sort | None:
        """Return the smallest key that begins with something greater than the bound."""
        at = bisect_right(self._entries, bound, lo=self._front, key=lambda entry: entry[0][0])
        return self._entries[at][0] if at < len(self._entries) else None

    def last(self) -> Iterator[tuple[Sort, UUID]]:
        """Yield all from the greatest key down."""
        for at in range(len(self._entries) - 1, self._front - 1, -1):
            yield self._entries[at]

    def upto(self, bound: Any) -> Iterator[UUID]:
        """Yield the ids with keys that begin with something no greater than the bound, in order."""
        for sort, id in self:
            if sort[0] > bound:
                return
            yield id


def _cursor(entry: Entry) -> Cursor:
    return entry.cursor


class KeptEntries:
    """Entries by job and kind, in order of attempt and number."""

    def __init__(self) -> None:
        self._kept: dict[UUID, dict[Kind, list[Entry]]] = {}

    def add(self, job: UUID, entries: Iterable[Entry]) -> None:
        """Store the entries that are not stored yet."""
        for entry in entries:
            kept = self._kept.setdefault(job, {}).setdefault(entry.kind, [])
            place = bisect_left(kept, entry.cursor, key=_cursor)
            if place == len(kept) or kept[place].cursor != entry.cursor:
                kept.insert(place, entry)

    def tail(self, job: UUID, kind: Kind, after: Cursor, limit: int, newest: bool) -> list[Entry]:
        """Return the first, or the last, behind the cursor."""
        kept = self._kept.get(job, {}).get(kind, [])
        behind = kept[bisect_right(kept, after, key=_cursor) :]
        return behind[max(0, len(behind) - limit) :] if newest else behind[:limit]

    def forget(self, job: UUID) -> None:
        """Forget the entries of a job that is gone."""
        self._kept.pop(job, None)


Line = tuple[str, int, str | None, tuple[str | None, ...]]
"""Queue, profile, concurrency key and, where the queue is ``by_customer``, customer: its jobs differ in position."""


class JobTable:
    """Every job, indexed for the verbs; an index follows from the record and is never set by itself."""

    def __init__(self) -> None:
        self.records: dict[UUID, Job] = {}
        """In order of their order numbers."""
        self.keys: dict[tuple[str, str], UUID] = {}
        """The job that holds a dedup key of a task."""
        self.merged: dict[UUID, UUID] = {}
        """The job that took over what was submitted under an id, by that id."""
        self._merged_into: dict[UUID, list[UUID]] = {}
        self.requests: dict[tuple[str, str], UUID] = {}
        """The job that was made for a request, by ``core.lifecycle.deduplication.request_of``."""
        self.held: dict[UUID, dict[UUID, int]] = {}
        """What each worker holds, and how many beats in a row did not name it."""
        self.lines: dict[Line, Index] = {}
        self._line_of: dict[UUID, Line] = {}
        """The subqueue of each queued job."""
        self.by_customer: frozenset[str] = frozenset()
        """The queues in which customers have subqueues of their own, from the next queued job on."""
        self.deferred = Index()
        self.watched = Index()
        """Those with an ``act_by``."""
        self.entries = KeptEntries()
        self.profiles: dict[tuple[str, str], Profile] = {}
        self.profiles_rev = 0
        self._users: Counter[int] = Counter()
        self._staked: dict[str, Counter[Pair]] = {}
        """The live jobs of each pair of task and requirements, by customer."""
        self.ended = {status: Index() for status in ENDED}
        self.outlived = Index()
        """Ended jobs with a retention of their own, by its end."""
        self.last_change: dict[UUID, int] = {}
        self.attempts: dict[UUID, dict[int, Attempt]] = {}
        self.events: dict[UUID, list[Event]] = {}
        self.accepted = 0
        self.pruned = 0
        self.pruned_as: Counter[Status] = Counter()
        self.own_pruned_as: Counter[Status] = Counter()
        """The same of headrace's own jobs."""

    # -- writing

    def insert(self, job: Job) -> Job:
        """Give a new job its order number and store it."""
        self.accepted += 1
        job = replace(job, seq=self.accepted)
        if (dedup := dedup_of(job.spec)) is not None and not job.ended:
            self.keys[job.spec.task, dedup] = job.id
        if (request := request_of(job)) is not None:
            self.requests[request] = job.id
        self.put(job)
        return job

    def put(self, job: Job) -> None:
        """Store this as the record of the job."""
        old = self.records.get(job.id)
        unnamed = self._displace(old) if old is not None else 0
        self.records[job.id] = job
        for index, sort in self._places(job):
            index.add(sort, job.id)
        if job.status in LIVE:
            self._use(job, 1)
        if job.worker is not None:
            same_owner = old is not None and old.worker == job.worker and old.epoch == job.epoch
            self.held.setdefault(job.worker, {})[job.id] = unnamed if same_owner else 0

    def holder(self, job: Job) -> Job | None:
        """Return the other job that holds the dedup key of this one."""
        dedup = dedup_of(job.spec)
        id = None if dedup is None else self.keys.get((job.spec.task, dedup))
        return None if id is None or id == job.id else self.records[id]

    def attempt(self, id: UUID, number: int) -> Attempt | None:
        """Return the stored attempt of a job."""
        return self.attempts.get(id, {}).get(number)

    def first(self, job: Job) -> Job | None:
        """Return the job that this request made the first time."""
        request = request_of(job)
        id = None if request is None else self.requests.get(request)
        return None if id is None else self.records[id]

    def change(self, change: Change) -> None:
        """Apply the change, with all that goes with it."""
        job = change.job
        self.put(job)
        if change.verb is not Verb.PROGRESS or change.inserts:  # else a repeat does not matter
            self.last_change[job.id] = change.id
        if (dedup := dedup_of(job.spec)) is not None and change.key is not KeyEffect.KEEP:
            if change.key is KeyEffect.TAKE:
                self.keys[job.spec.task, dedup] = job.id
            elif self._has_key(job):
                del self.keys[job.spec.task, dedup]
        if change.attempt is not None:
            records = self.attempts.setdefault(job.id, {})
            kept = records.get(change.attempt.number)
            records[change.attempt.number] = change.attempt if kept is None else kept.fold(change.attempt)
        if change.merges is not None:
            self.merged[change.merges] = job.id
            self._merged_into.setdefault(job.id, []).append(change.merges)
        if change.event is not None:
            self.events.setdefault(job.id, []).append(change.event)

    def delete(
        self,
        before: Mapping[Status, datetime],
        now: datetime | None,
        limit: int,
        needed: Callable[[UUID], bool],
    ) -> list[Job]:
        """Remove up to ``limit`` ended jobs that are past their retention and not needed, and count them as pruned."""
        ended = (id for status, moment in before.items() for id in self.ended[status].upto(moment))
        past = (id for id in ended if is_past(self.records[id], before, None))
        own = () if now is None else self.outlived.upto(now)
        found = (self.records[id] for id in chain(past, own) if not needed(id))
        old = list(islice((job for job in found if not self._keeps_key(job, up_to(job, before, now))), limit))
        for job in old:
            self._displace(self.records.pop(job.id))
            self.entries.forget(job.id)
            if (request := request_of(job)) is not None:
                del self.requests[request]
            if self._has_key(job):
                del self.keys[job.spec.task, dedup_of(job.spec) or ""]
            for id in self._merged_into.pop(job.id, ()):
                del self.merged[id]
            for kept in (self.last_change, self.attempts, self.events):
                kept.pop(job.id, None)
        self.pruned += len(old)
        self.pruned_as.update(job.status for job in old)
        self.own_pruned_as.update(job.status for job in old if is_own(job.task))
        return old

    def _keeps_key(self, job: Job, moment: datetime | None) -> bool:
        """Return whether an ended job holds its dedup key for a period that was not over by then."""
        return moment is not None and self._has_key(job) and not has_lapsed(job, moment)

    def _has_key(self, job: Job) -> bool:
        """Return whether the job holds its dedup key."""
        dedup = dedup_of(job.spec)
        return dedup is not None and self.keys.get((job.spec.task, dedup)) == job.id

    # -- reading

    def served(self, ask: ClaimRequest, limits: Limits) -> Iterator[tuple[Group, Index]]:
        """Yield the subqueues of this request, and what limits them; those of paused queues and tasks are left
        out."""
        tasks = {profile.id: profile.task for profile in self.profiles.values()}
        for (queue, profile, key, whose), line in self.lines.items():
            asked = profile in ask.profiles and (ask.queues is None or queue in ask.queues)
            if ask.customers is not None and not (whose and ask.customers.admits(whose[0])):
                continue
            if asked and not limits.paused(queue, tasks[profile]):
                yield Group(queue, tasks[profile], key, whose[0] if whose else None), line

    def turns_in_line(self) -> set[Turn]:
        """Return the keys with a queued job."""
        tasks = {profile.id: profile.task for profile in self.profiles.values()}
        return {(tasks[profile], key) for _, profile, key, _ in self.lines if key is not None}

    def usage(self, spent: Mapping[Bound, Spent], last: Mapping[Turn, int]) -> Usage:
        """Return what is in use now."""
        usage = Usage(spent=dict(spent), last=dict(last))
        for worker in self.held.values():
            for id in worker:
                job = self.records[id]
                for bound in counted_by(group_of(job)):
                    usage.held[bound] = usage.held.get(bound, 0) + 1
        return usage

    def recent(self, since: datetime) -> Iterator[Job]:
        """Yield the jobs that were done after this, the last first."""
        places = merge(*(self.ended[status].last() for status in BY_WORK), reverse=True)
        for _, id in takewhile(lambda place: place[0][0] > since, places):
            yield self.records[id]

    # -- positions of jobs

    def _places(self, job: Job) -> Iterator[tuple[Index, Sort]]:
        if job.status is Status.QUEUED:
            yield self.lines.setdefault(self._line_of.setdefault(job.id, self._line(job)), Index()), order(job, 0)
        elif job.status in DEFERRED:
            yield self.deferred, (job.available_at, job.seq)
        elif job.status in ENDED:
            yield self.ended[job.status], (job.finished_at, job.seq)
            own = None if job.spec.retention is None else job.spec.retention.of(job.status)
            if own is not None and job.finished_at is not None:
                yield self.outlived, (job.finished_at + own, job.seq)
        if job.act_by is not None:
            yield self.watched, (job.act_by, job.seq)

    def _line(self, job: Job) -> Line:
        whose = (job.customer,) if job.queue in self.by_customer else ()
        return job.queue, self._profile(job), turn_of(job.spec), whose

    def realign(self, limit: int) -> int:
        """Move queued jobs into the subqueues that they would have if they came now; return how many."""
        wrong = [line for line in self.lines if bool(line[3]) is not (line[0] in self.by_customer)]
        found = list(islice((id for line in wrong for _, id in self.lines[line]), limit))
        for id in found:
            self.put(self.records[id])
        return len(found)

    def held_of(self, worker: UUID) -> set[str | None]:
        """Return the customers of the jobs that a worker holds."""
        return {self.records[id].customer for id in self.held.get(worker, ())}

    def _displace(self, job: Job) -> int:
        """Remove the job from every index; return how many beats did not name it."""
        for index, sort in self._places(job):
            index.remove(sort, job.id)
        if job.status in LIVE:
            self._use(job, -1)
        if job.status is Status.QUEUED:
            line = self._line_of.pop(job.id)
            if not self.lines[line]:
                del self.lines[line]
        if job.worker is None:
            return 0
        unnamed = self.held[job.worker].pop(job.id)
        if not self.held[job.worker]:
            del self.held[job.worker]
        return unnamed

    # -- profiles

    def want_of_room(self, jobs: Iterable[Job], allowed: Callable[[str], int]) -> dict[UUID, HeadraceError]:
        """Return which new jobs need a profile too many, and why; ``allowed``: how many a customer may have."""
        spots = {job.id: (staked_by(job.spec), _profile_key(job)) for job in jobs}
        refused = dict[UUID, HeadraceError]()
        for customer in {whose for whose, _ in spots.values() if whose}:
            wanted = {id: pair for id, (whose, pair) in spots.items() if whose == customer}
            most = allowed(customer)
            out = excess(self._staked.get(customer, {}), wanted.values(), most)
            refused |= {id: refusal(customer, most) for id, pair in wanted.items() if pair in out}
        rest = {id: spot for id, spot in spots.items() if id not in refused}
        return refused | self._without_room(rest)

    def _without_room(self, spots: Mapping[UUID, tuple[str | None, Pair]]) -> dict[UUID, HeadraceError]:
        refused = dict[UUID, HeadraceError]()
        fresh = {pair for _, pair in spots.values() if pair not in self.profiles}
        least = min((room for whose, _ in spots.values() if (room := room_for(whose)) is not None), default=0)
        if fresh and len(self.profiles) + len(fresh) > least:
            self.profiles = {key: one for key, one in self.profiles.items() if self._users[one.id] > 0}
            taken = set(self.profiles)
            own = len(taken.difference(*self._staked.values()))
            for id, (whose, pair) in spots.items():
                room = room_for(whose)
                if pair not in taken and room is not None and (own if whose is None else len(taken)) >= room:
                    refused[id] = no_room(whose)
                elif pair not in taken:
                    taken.add(pair)
                    own += whose is None
        return refused

    def _use(self, job: Job, by: int) -> None:
        """Count a live job of its profile, or one less."""
        self._users[self._profile(job)] += by
        if whose := staked_by(job.spec):
            staked, pair = self._staked.setdefault(whose, Counter()), _profile_key(job)
            staked[pair] += by
            if not staked[pair]:
                del staked[pair]
            if not staked:
                del self._staked[whose]

    def _add_profile(self, key: Pair, job: Job) -> Profile:
        self.profiles_rev += 1
        profile = self.profiles[key] = Profile(self.profiles_rev, job.task, requirements_of(job))
        return profile

    def _profile(self, job: Job) -> int:
        key = _profile_key(job)
        # An ended job's profile may have been collected; it needs one again when it is retried.
        return (self.profiles.get(key) or self._add_profile(key, job)).id


def _profile_key(job: Job) -> tuple[str, str]:
    requires = requirements_of(job)
    return job.task, json.dumps(requires, sort_keys=True) if requires else ""
