"""Claims with limits.

One transaction locks the gates, reads what is queued and what is in use, lets the core select, and writes the result.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from enum import Enum, auto
from functools import partial
from typing import Any
from uuid import UUID

from headrace.core.defaults import Rules
from headrace.core.job import Job
from headrace.core.lifecycle.claim import ClaimRequest, Grant, order
from headrace.core.limits.selection import Dealt, select_jobs
from headrace.core.limits.settings import Limits
from headrace.engine import MAX_BATCH, Claimed, Dead
from headrace.engines.postgres.jobs.key_rotation import NOWHERE, Table, Window, arrive, read, stand, stands, stays
from headrace.engines.postgres.jobs.rows import Reader
from headrace.engines.postgres.jobs.subqueues import Serving
from headrace.engines.postgres.store.arrays import literal
from headrace.engines.postgres.store.connection import Connection, lock_number, sql
from headrace.engines.postgres.store.pool import Pool
from headrace.engines.sql.encoding import encode, micros, moment, rows_of_spent, usage_of

__all__ = ["Limiting", "give"]

_TASK = "task:"

_MAX_ROUNDS = 5
"""How often a claim selects again without the jobs that others have locked, before it accepts fewer jobs."""
_LOCKED_RETRY_DELAY = timedelta(seconds=0.1)
"""How soon to claim again for a job that another transaction had locked."""


class _More(Enum):
    """Why a claim must begin again in a new transaction."""

    CAME = auto()


class _Taken(Exception):
    """Others have locked or taken some of the selected jobs; raised to roll the transaction back."""

    def __init__(self, seqs: set[int]) -> None:
        self.seqs = seqs


def give(schema: str) -> str:
    """Return the statement that gives jobs to a worker, and writes the heads of concurrency keys."""
    return sql("give", schema, stand=stand(schema, 8, "$5"))


class Limiting:
    """The claims with limits of one session."""

    def __init__(self, hot: Pool, schema: str, rules: Rules) -> None:
        self._hot, self._schema, self._rules = hot, schema, rules
        self._head, self._gift, self._stand = sql("limited_head", schema), give(schema), stand(schema)

    async def claim(self, given: Grant, ask: ClaimRequest, serving: Serving, now: datetime) -> Claimed | Dead | None:
        """Claim jobs for this request; None if the subqueues or the settings have changed since they were read."""
        names = _gates(serving)
        # Limited tasks need their gates in any case; only for the others must the statement search for jobs with keys.
        others = [at for at, group in enumerate(serving.groups) if not serving.limits.task(group.task).limited]
        where = [serving.subqueues[at] for at in others], [serving.groups[at].task for at in others]
        passed, rounds = set[int](), _MAX_ROUNDS
        while True:
            missing = list[str]()
            try:
                async with self._hot.transaction() as connection:
                    if ask.customers is not None and ask.customers.strict:
                        # What the worker holds must not change between the read and the write.
                        await connection.execute("SELECT pg_advisory_xact_lock($1)", self._lock_of(given.worker))
                    gates = await connection.fetch(sql("gates", self._schema), names, *where)
                    missing = [name for name, there in gates if not there]
                    if not missing:
                        held = {name.removeprefix(_TASK) for name, _ in gates if name.startswith(_TASK)}
                        answer = await self._claim(connection, given, ask, serving, held, now, passed, last=not rounds)
                        if answer is not _More.CAME:
                            return answer
            except _Taken as taken:
                # Select as if these jobs were not queued, so that the jobs behind them get what they would have used.
                passed, rounds = passed | taken.seqs, rounds - 1
            if missing:
                await self._hot.fetch(sql("add_gates", self._schema), sorted(missing))

    def _lock_of(self, worker: UUID) -> int:
        return lock_number(self._schema, "claims", str(worker))

    async def _claim(
        self,
        connection: Connection,
        given: Grant,
        ask: ClaimRequest,
        serving: Serving,
        tasks: set[str],
        now: datetime,
        passed: set[int],
        *,
        last: bool,
    ) -> Claimed | Dead | _More | None:
        # Each statement sees what was committed before it began. The gates are locked by now, so this one sees all that
        # their earlier holders wrote.
        head: Any = await connection.fetchrow(self._head, given.worker, given.claim, serving.subqueues)
        if (head["subqueues_rev"], head["settings_rev"]) != (serving.subqueues_rev, serving.settings_rev):
            return None
        if not head["alive"]:
            return Dead()
        due = head["next_due"]
        # Begin again after promoting: a promoted job may be of a task with a gate that is not locked here. What another
        # claim promotes is left to that claim.
        late = due is not None and due <= micros(now)
        if late and await connection.fetchval(sql("promote", self._schema), micros(now), MAX_BATCH):
            return _More.CAME
        if head["again"]:
            rows: list[Any] = await connection.fetch(sql("claimed", self._schema), given.worker, given.claim)
            again = Reader().jobs(rows)
            again.sort(key=lambda job: order(job, serving.priorities.get(job.queue, 0)))
            return self._claimed(head, again, due, serving, over=not again)
        # After a long time without workers there are too many arrivals for one transaction.
        if head["came"] and not await arrive(connection, self._schema, serving, tasks):
            return _More.CAME
        held = list(zip(head["queues"] or (), head["tasks"] or (), head["keys"] or (), head["jobs"] or (), strict=True))
        held_of: list[str | None] = []
        if ask.customers is not None and ask.customers.strict:
            held_of = [of for (of,) in await connection.fetch(sql("held_of", self._schema), given.worker)]
            serving = serving.among(partial(ask.customers.admits, held=held_of)) if held_of else serving
        dealt, table = await self._deal(connection, ask, serving, tasks, held, now, passed, held_of)
        places = {entry.seq: place for place, entry in enumerate(dealt.taken)}
        jobs = Reader().claimed(await self._give(connection, given, dealt, table), given)
        if len(jobs) < len(places) and not last:
            raise _Taken(await self._taken_of(connection, table, {job.seq for job in jobs}, {*places}))
        jobs.sort(key=lambda job: places[job.seq])
        await self._spend(connection, dealt, now)
        soon: list[int] = [] if due is None else [due]
        if dealt.next_permit is not None:
            soon.append(micros(dealt.next_permit))
        if passed and len(jobs) < ask.n:
            soon.append(micros(now + _LOCKED_RETRY_DELAY))
        left = stays(table, places.keys() - {job.seq for job in jobs}) if len(jobs) < len(places) else None
        if left is not None:  # others have locked these jobs, which stay queued
            await connection.execute(self._stand, micros(now), *left)
        return self._claimed(head, jobs, min(soon, default=None), serving, full=bool(dealt.full))

    async def _deal(
        self,
        connection: Connection,
        ask: ClaimRequest,
        serving: Serving,
        tasks: set[str],
        held: Sequence[Any],
        now: datetime,
        passed: set[int],
        held_of: Sequence[str | None],
    ) -> tuple[Dealt, Table]:
        limits, window = serving.limits, Window.of(ask, serving, tasks)
        while True:
            table, wider = await read(connection, self._schema, serving, window, now, passed), window.wider
            bounds = limits.paces(group for group, _ in table.groups) if limits.rates else ()
            paced = [encode(bound) for bound in bounds]
            spent: list[Any] = await connection.fetch(sql("spent", self._schema), paced) if paced else []
            usage = usage_of(held, spent)
            usage.last = table.last
            # Jobs beyond the widest window are never read. They must not keep the jobs of other groups waiting.
            groups = table.groups if wider is not None else table.all_read
            dealt = select_jobs(groups, ask, now, self._rules, limits, usage, held_of)
            if wider is None or not dealt.cut:
                return dealt, table
            window = wider

    async def _taken_of(self, connection: Connection, table: Table, given: set[int], wanted: set[int]) -> set[int]:
        """Return the jobs of those read that others have locked or taken: in one query, for there may be many."""
        seqs = [entry.seq for _, entries in table.groups for entry in entries if entry.seq not in given]
        free = {seq for (seq,) in await connection.fetch(sql("unlocked", self._schema), seqs)}
        return {*seqs} - free | (wanted - given)

    async def _give(self, connection: Connection, given: Grant, dealt: Dealt, table: Table) -> list[Any]:
        found, at = stands(table, dealt), micros(given.assigned_at)
        if not dealt.taken:
            if found is not None:
                await connection.execute(self._stand, at, *found)
            return []
        accepted = None if given.accepted_at is None else micros(given.accepted_at)
        terms = (given.worker, given.claim, given.status.value, at, accepted, micros(given.act_by), *(found or NOWHERE))
        seqs = [entry.seq for entry in dealt.taken]
        subqueues = [table.subqueues[seq] for seq in seqs]
        return await connection.fetch(self._gift, literal(seqs), *terms, literal(subqueues))

    async def _spend(self, connection: Connection, dealt: Dealt, now: datetime) -> None:
        if dealt.spent:
            names, data, until = map(list, zip(*rows_of_spent(dealt.spent), strict=True))
            await connection.execute(sql("spend", self._schema), names, data, until, micros(now))

    @staticmethod
    def _claimed(
        head: Any, jobs: list[Job], due: int | None, serving: Serving, *, full: bool = False, over: bool = False
    ) -> Claimed:
        soon, paced = None if due is None else moment(due), serving.limits.spending(jobs)
        return Claimed(tuple(jobs), head["profiles_rev"], head["settings_rev"], soon, full, paced, over)


def _gates(serving: Serving) -> list[str]:
    """Return the names of the gates to lock for this request: one for each limited task and queue, and each rate."""
    names: set[str] = set()
    limits: Limits = serving.limits
    for group in serving.groups:
        if limits.task(group.task).limited:
            names.add(_TASK + group.task)
        if limits.queue(group.queue).limited:
            names.add(f"queue:{group.queue}")
        names |= {f"rate:{name}" for name in (*limits.queue(group.queue).rates, *limits.task(group.task).rates)}
    return sorted(names)
