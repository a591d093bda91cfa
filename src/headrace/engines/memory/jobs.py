"""Jobs of a memory store: insert, claim, apply, promote, overdue, delete, get."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from itertools import islice
from uuid import UUID

from headrace.core.batch import Batch
from headrace.core.change import Change, Verdict
from headrace.core.job import Job
from headrace.core.lifecycle.claim import ClaimRequest, grant, order, promoted
from headrace.core.lifecycle.decision import expired
from headrace.core.lifecycle.retention import latest_end
from headrace.core.limits.rate import micros
from headrace.core.limits.selection import Dealt, QueuedEntry, forgets, lapses, refusal, select_jobs
from headrace.core.matching.customers import turn_of
from headrace.core.status import Status
from headrace.engine import MAX_BATCH, Claimed, Companions, Dead, InsertAnswer, Overdue, OverdueJobs, Refused
from headrace.engines.memory.job_table import Index
from headrace.engines.memory.state import Role, State
from headrace.engines.validation import refuse_changes, refuse_jobs

__all__ = ["Jobs"]

_UNSTARTED = frozenset({Status.ASSIGNED, Status.ACCEPTED})
_UNNAMED = 2


class Jobs(Role):
    """The role ``jobs`` of one session."""

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
        joined = [one for job in jobs for one in (job, *others.get(job.id, ()))]
        refuse_jobs(joined, documents=True)
        with self._state() as state:
            if (whole or batch is not None) and (why := state.refusal(joined, now)) is not None:
                return [Refused(why)] * len(jobs)
            if batch is not None:
                state.relations.make(batch)
            return [_insert(state, job, others.get(job.id, ()), now) for job in jobs]

    async def claim(self, worker: UUID, ask: ClaimRequest, request: int, now: datetime) -> Claimed | Dead:
        with self._state() as state:
            table = state.table
            if (why := refusal(ask, state.limits)) is not None:
                raise why
            if not state.is_alive(worker):
                return Dead()
            _promote(state, now, None)
            held = (table.records[id] for id in table.held.get(worker, ()))
            given = [job for job in held if job.claim == request]
            first = table.deferred.first()
            due: list[datetime] = [] if first is None else [first[0]]
            full = False
            if given:
                taken = [job for job in given if job.status in _UNSTARTED]
                taken.sort(key=lambda job: order(job, state.limits.queue(job.queue).priority))
            else:
                granted = grant(worker, ask, request, now, state.rules)
                dealt, found = _deal(state, worker, ask, now)
                full, permit = bool(dealt.full), dealt.next_permit
                taken = [granted.on(job) for job in found]
                for job in taken:
                    table.put(job)
                due += [] if permit is None else [permit]
            paced, soon = state.limits.spending(taken), min(due, default=None)
            over = bool(given) and not taken
            return Claimed(tuple(taken), table.profiles_rev, state.settings_rev, soon, full, paced, over)

    async def apply(self, changes: Sequence[Change], now: datetime) -> list[Verdict]:
        refuse_changes(changes)
        with self._state() as state:
            return [state.apply(change, now) for change in changes]

    async def promote(self, now: datetime, limit: int = MAX_BATCH) -> int:
        with self._state() as state:
            return _promote(state, now, limit)

    async def realign(self, limit: int = MAX_BATCH) -> int:
        with self._state() as state:
            return state.table.realign(limit)

    async def overdue(self, now: datetime, limit: int = MAX_BATCH) -> OverdueJobs:
        with self._state() as state:
            table = state.table
            found = dict.fromkeys(table.watched.upto(now))
            for worker, held in table.held.items():
                alive = state.is_alive(worker)
                found |= dict.fromkeys(id for id, unnamed in held.items() if not alive or unnamed >= _UNNAMED)
            jobs = tuple(_overdue(state, table.records[id]) for id in islice(found, limit))
            following = table.watched.after(now)
            return OverdueJobs(jobs, None if following is None else following[0])

    async def delete(
        self,
        before: Mapping[Status, datetime],
        limit: int = MAX_BATCH,
        *,
        now: datetime | None = None,
        since: Mapping[Status, datetime] | None = None,
    ) -> int:
        with self._state() as state:
            if not before:
                return 0
            earliest = min(before.values())
            gone = state.table.delete(before, now, limit, lambda id: state.relations.needed(id, earliest))
            state.relations.forget(gone, earliest)
            _forget_turns(state, gone, latest_end(before, gone))
            return len(gone)

    async def get(self, ids: Sequence[UUID]) -> list[Job | None]:
        with self._state() as state:
            return [state.table.records.get(id) for id in ids]


def _insert(state: State, job: Job, companions: Sequence[Job], now: datetime) -> InsertAnswer:
    """Store a job with its companions, all or none."""
    known = job.id in state.table.records or job.id in state.table.merged
    is_new = not known and state.table.first(job) is state.table.holder(job) is None
    if not companions or not is_new:
        return state.insert(job, now)
    if (why := state.refusal([job, *companions], now)) is not None:
        return Refused(why)
    answer = state.insert(job, now)
    for one in companions:
        state.insert(one, now)
    return answer


def _promote(state: State, now: datetime, limit: int | None) -> int:
    due = list(islice(state.table.deferred.upto(now), limit))
    for id in due:
        state.table.put(promoted(state.table.records[id], now))
    return len(due)


def _deal(state: State, worker: UUID, ask: ClaimRequest, now: datetime) -> tuple[Dealt, list[Job]]:
    """Select jobs within the limits, and remember what was spent and which keys took their turn."""
    table, limits = state.table, state.limits
    found: dict[int, Job] = {}

    def entries(line: Index) -> Iterator[QueuedEntry]:
        for _, id in line:
            job = table.records[id]
            found[job.seq] = job
            yield QueuedEntry(job.seq, -job.priority, micros(job.arrived_at), job.unstarted_losses, expired(job, now))

    lines = [(group, entries(line)) for group, line in table.served(ask, limits)]
    dealt = select_jobs(lines, ask, now, state.rules, limits, state.usage, table.held_of(worker))
    state.spent = {bound: one for bound, one in (state.spent | dealt.spent).items() if lapses(one) > now}
    state.turns |= dict.fromkeys(dealt.turned, micros(now))
    return dealt, [found[entry.seq] for entry in dealt.taken]


def _forget_turns(state: State, gone: Sequence[Job], before: datetime) -> None:
    turns = {(job.task, key) for job in gone if (key := turn_of(job.spec)) is not None}
    if not turns:
        return
    in_line = state.table.turns_in_line()
    for turn in turns & state.turns.keys():
        if forgets(state.turns[turn], before, in_line=turn in in_line):
            del state.turns[turn]


def _overdue(state: State, job: Job) -> Overdue:
    if job.worker is None:
        return Overdue(job)
    row = state.workers.get(job.worker)
    alive, unnamed = state.is_alive(job.worker), state.table.held[job.worker][job.id]
    if row is None:
        return Overdue(job, alive, unnamed)
    return Overdue(job, alive, unnamed, row.beat_at, row.beside_suspect, row.mass_death)
