"""Claims without limits, and promoting; claims with limits are in ``limited_claim``."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from msgspec.structs import replace

from headrace.core.defaults import Rules
from headrace.core.job import Job
from headrace.core.lifecycle.claim import ClaimRequest, Grant, grant, order
from headrace.core.limits.selection import refusal
from headrace.engine import MAX_BATCH, Claimed, Dead
from headrace.engines.postgres.jobs.limited_claim import Limiting
from headrace.engines.postgres.jobs.rows import Reader
from headrace.engines.postgres.jobs.subqueues import Served, Serving
from headrace.engines.postgres.store.connection import sql
from headrace.engines.postgres.store.pool import Pool
from headrace.engines.sql.encoding import micros, moment

__all__ = ["Claiming"]

_FLAT_CLAIM_JOBS = 2000
"""Up to this many jobs, a claim reads at once all that it could want of each subqueue."""
_DEPTH_FACTOR = 4
"""By what factor each level of a claim of many subqueues reads deeper than the level before."""

_SPARE_JOBS = 50
_MAX_READ_JOBS = 100_000
"""Maximum jobs that a claim reads."""

_ALIVE, _AGAIN, _SUBQUEUES_REV, _PROFILES_REV, _SETTINGS_REV, _NEXT_DUE, _SEEN, _KEYED, _HEAD = range(9)

_KEYED_IN = "EXISTS (SELECT 1 FROM {schema}.jobs WHERE stage = -1 AND subqueue = {subqueues})"


def _head(schema: str, subqueues: str) -> str:
    return sql("claim_head", schema, keyed=_KEYED_IN.format(schema=schema, subqueues=subqueues))


def one_subqueue(schema: str) -> str:
    """Return the statement for a request that serves one subqueue."""
    return _head(schema, "$14") + sql("claim_subqueue", schema) + sql("claim_give", schema)


def few_subqueues(schema: str) -> str:
    """Return the statement for a request of a few subqueues: it reads all that could be wanted of each at once."""
    return many_subqueues(schema, ())


def many_subqueues(schema: str, levels: Sequence[str] = ("$17", "$18", "$19")) -> str:
    """Return the statement for a request of many subqueues: it reads a few jobs of each, then more where needed."""
    parts = [_head(schema, "ANY ($14)"), sql("claim_subqueues", schema)]
    sizes = [*levels, "(SELECT n FROM reach)"]
    for level, size in enumerate(sizes, 1):
        sofar = "" if level == 1 else f"SELECT * FROM read_{level - 1} UNION ALL "
        parts.append(sql("claim_level", schema, level=str(level), before=str(level - 1), size=size, sofar=sofar))
    parts += [sql("claim_merged", schema, level=str(len(sizes))), sql("claim_give", schema)]
    return "".join(parts)


class Claiming:
    """The claims of one session, with the subqueues it serves."""

    def __init__(self, hot: Pool, schema: str, rules: Rules) -> None:
        self._hot, self._schema, self._rules = hot, schema, rules
        self._limiting = Limiting(hot, schema, rules)
        self._one, self._few, self._many = one_subqueue(schema), few_subqueues(schema), many_subqueues(schema)
        self.forget()

    def forget(self) -> None:
        """Forget what an earlier session learned of the store."""
        self._served = Served(self._hot, self._schema)
        self._spare = _SPARE_JOBS
        """How many jobs to read beyond those that are wanted; grows where other claims take many of them."""

    async def claim(self, worker: UUID, ask: ClaimRequest, request: int, now: datetime) -> Claimed | Dead:
        """The verb ``Jobs.claim``."""
        given = grant(worker, ask, request, now, self._rules)
        serving, promoted, reach = await self._serving(ask), False, ask.n + self._spare
        while True:
            if serving.bounded:
                answer = await self._limiting.claim(given, ask, serving, now)
                if answer is not None:
                    return answer
                serving = await self._serving(ask, anew=True)
                continue
            rows = await self._ask(given, ask, serving, promoted, reach)
            head = rows[0]
            stale = (head[_SUBQUEUES_REV], head[_SETTINGS_REV]) != (serving.subqueues_rev, serving.settings_rev)
            if not head[_ALIVE]:
                return await self._dead(ask, stale)
            due = head[_NEXT_DUE]
            if not promoted and due is not None and due <= micros(now):
                # Once only: jobs that another claim is promoting at this moment stay due, and are left to that claim.
                while await self.promote(now) == MAX_BATCH:
                    pass
                promoted = True
            elif stale:
                serving = await self._serving(ask, anew=True)
            elif head[_AGAIN]:
                rows = await self._hot.fetch(sql("claimed", self._schema), worker, request)
                return self._claimed(head, Reader().jobs(rows), serving, over=not rows)
            elif head[_KEYED]:
                answer = await self._limiting.claim(given, ask, serving, now)
                if answer is not None:
                    return answer
                serving = await self._serving(ask, anew=True)
            elif len(rows) == 1 and ask.n > 0 and reach <= head[_SEEN] and reach < _MAX_READ_JOBS:
                reach *= 8  # other claims are taking all the jobs that this one read
            else:
                jobs = Reader().claimed((row[_HEAD:] for row in rows[1:]), given)
                more = len(jobs) < ask.n and reach <= head[_SEEN]
                self._spare = min(self._spare * 4, _MAX_READ_JOBS) if more else max(self._spare // 2, _SPARE_JOBS)
                claimed = self._claimed(head, jobs, serving)
                # Other claims took some of the jobs, and there are more behind them: the worker claims again at once.
                return replace(claimed, next_due=now) if more else claimed

    async def _dead(self, ask: ClaimRequest, stale: bool) -> Dead:
        """Return that the worker is dead, unless the present settings refuse the request: that comes first."""
        if stale:
            await self._serving(ask, anew=True)
        return Dead()

    async def _serving(self, ask: ClaimRequest, *, anew: bool = False) -> Serving:
        """Return the subqueues of the request; :raises ConfigError: it selects customers in other queues"""
        serving = await self._served.of(ask, anew=anew)
        if refusal(ask, serving.limits) is not None and not anew:
            serving = await self._served.of(ask, anew=True)
        if (why := refusal(ask, serving.limits)) is not None:
            raise why
        return serving

    async def _ask(
        self, given: Grant, ask: ClaimRequest, serving: Serving, promoted: bool, reach: int
    ) -> Sequence[Any]:
        terms = (
            given.worker,
            given.claim,
            serving.subqueues_rev,
            serving.settings_rev,
            micros(given.assigned_at),
            promoted,
            ask.n,
            ask.free,
            self._rules.fragile_after,
            given.status.value,
            micros(given.assigned_at),
            None if given.accepted_at is None else micros(given.accepted_at),
            micros(given.act_by),
        )
        if len(serving.subqueues) == 1:
            return await self._hot.fetch(self._one, *terms, serving.subqueues[0])
        if reach * len(serving.subqueues) <= _FLAT_CLAIM_JOBS:
            return await self._hot.fetch(self._few, *terms, serving.subqueues, serving.places, reach)
        first = reach // max(len(serving.subqueues), 1) + 1
        sizes = (first, first * _DEPTH_FACTOR, first * _DEPTH_FACTOR**2)
        return await self._hot.fetch(self._many, *terms, serving.subqueues, serving.places, reach, *sizes)

    def _claimed(self, head: Sequence[Any], jobs: list[Job], serving: Serving, *, over: bool = False) -> Claimed:
        due, priorities = head[_NEXT_DUE], serving.priorities
        jobs.sort(key=(lambda job: order(job, priorities.get(job.queue, 0))) if any(priorities.values()) else order)
        soon = None if due is None else moment(due)
        return Claimed(tuple(jobs), head[_PROFILES_REV], head[_SETTINGS_REV], soon, over=over)

    async def promote(self, now: datetime, limit: int = MAX_BATCH) -> int:
        """The verb ``Jobs.promote``."""
        rows = await self._hot.fetch(sql("promote", self._schema), micros(now), limit)
        count: int = rows[0][0]
        return count
