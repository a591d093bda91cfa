"""Claim and promote: who gets what."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from msgspec.structs import replace

from headrace.core.claim import Ask, Grant, grant, order
from headrace.core.defaults import Rules
from headrace.core.job import Job
from headrace.engine import MAX_BATCH, Claimed, Dead
from headrace.engines.postgres.connection import sql
from headrace.engines.postgres.limiting import Limiting
from headrace.engines.postgres.lines import Served, Serving
from headrace.engines.postgres.pool import Pool
from headrace.engines.postgres.rows import Reader
from headrace.engines.record import micros, moment

__all__ = ["Claiming"]

_FEW = 2000
"""Jobs that are read at most in one go."""
_GROWTH = 4
"""How many times as many are read of each line that is still ahead, the next time."""

_SPARE = 50
_FAR = 100_000
"""No claim looks further."""

_ALIVE, _AGAIN, _LINES_REV, _PROFILES_REV, _SETTINGS_REV, _NEXT_DUE, _SEEN, _KEYED, _HEAD = range(9)

_KEYED_IN = "EXISTS (SELECT 1 FROM {schema}.jobs WHERE stage = -1 AND line = {lines})"


def _head(schema: str, lines: str) -> str:
    return sql("claim_head", schema, keyed=_KEYED_IN.format(schema=schema, lines=lines))


def one_line(schema: str) -> str:
    """The statement for an ask that serves one line."""
    return _head(schema, "$14") + sql("claim_line", schema) + sql("claim_give", schema)


def few_lines(schema: str) -> str:
    """The statement for an ask that serves so few lines that all that could be wanted of each is read at once."""
    return many_lines(schema, ())


def many_lines(schema: str, levels: Sequence[str] = ("$17", "$18", "$19")) -> str:
    """The statement for an ask that serves many."""
    parts = [_head(schema, "ANY ($14)"), sql("claim_lines", schema)]
    sizes = [*levels, "(SELECT n FROM reach)"]
    for level, size in enumerate(sizes, 1):
        sofar = "" if level == 1 else f"SELECT * FROM read_{level - 1} UNION ALL "
        parts.append(sql("claim_level", schema, level=str(level), before=str(level - 1), size=size, sofar=sofar))
    parts += [sql("claim_merged", schema, level=str(len(sizes))), sql("claim_give", schema)]
    return "".join(parts)


class Claiming:
    """The claims of one session, with the lines it serves."""

    def __init__(self, hot: Pool, schema: str, rules: Rules) -> None:
        self._hot, self._schema, self._rules = hot, schema, rules
        self._limiting = Limiting(hot, schema, rules)
        self._one, self._few, self._many = one_line(schema), few_lines(schema), many_lines(schema)
        self.forget()

    def forget(self) -> None:
        """Forget what an earlier session learned of the store."""
        self._served = Served(self._hot, self._schema)
        self._spare = _SPARE
        """How many jobs to look at beyond those that are wanted; more, where others are often in the way."""

    async def claim(self, worker: UUID, ask: Ask, request: int, now: datetime) -> Claimed | Dead:
        """The verb ``Jobs.claim``."""
        given = grant(worker, ask, request, now, self._rules)
        serving, promoted, reach = await self._served.of(ask), False, ask.n + self._spare
        while True:
            if serving.bounded:
                answer = await self._limiting.claim(given, ask, serving, now)
                if answer is not None:
                    return answer
                serving = await self._served.of(ask, anew=True)
                continue
            rows = await self._ask(given, ask, serving, promoted, reach)
            head = rows[0]
            if not head[_ALIVE]:
                return Dead()
            due = head[_NEXT_DUE]
            if not promoted and due is not None and due <= micros(now):
                # What another claim is promoting just now is left to that one.
                while await self.promote(now) == MAX_BATCH:
                    pass
                promoted = True
            elif (head[_LINES_REV], head[_SETTINGS_REV]) != (serving.lines_rev, serving.settings_rev):
                serving = await self._served.of(ask, anew=True)
            elif head[_AGAIN]:
                rows = await self._hot.fetch(sql("claimed", self._schema), worker, request)
                return self._claimed(head, Reader().jobs(rows), serving)
            elif head[_KEYED]:
                answer = await self._limiting.claim(given, ask, serving, now)
                if answer is not None:
                    return answer
                serving = await self._served.of(ask, anew=True)
            elif len(rows) == 1 and ask.n > 0 and reach <= head[_SEEN] and reach < _FAR:
                reach *= 8  # others are just taking all that we looked at: look further
            else:
                reader = Reader()
                jobs = [reader.claimed(row[_HEAD:], given) for row in rows[1:]]
                more = len(jobs) < ask.n and reach <= head[_SEEN]
                self._spare = min(self._spare * 4, _FAR) if more else max(self._spare // 2, _SPARE)
                claimed = self._claimed(head, jobs, serving)
                # Others took some of what was looked at, and there is more behind it: worth asking again at once.
                return replace(claimed, next_due=now) if more else claimed

    async def _ask(self, given: Grant, ask: Ask, serving: Serving, promoted: bool, reach: int) -> Sequence[Any]:
        terms = (
            given.worker,
            given.claim,
            serving.lines_rev,
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
        if len(serving.lines) == 1:
            return await self._hot.fetch(self._one, *terms, serving.lines[0])
        if reach * len(serving.lines) <= _FEW:
            return await self._hot.fetch(self._few, *terms, serving.lines, serving.places, reach)
        first = reach // max(len(serving.lines), 1) + 1
        sizes = (first, first * _GROWTH, first * _GROWTH**2)
        return await self._hot.fetch(self._many, *terms, serving.lines, serving.places, reach, *sizes)

    def _claimed(self, head: Sequence[Any], jobs: list[Job], serving: Serving) -> Claimed:
        due, priorities = head[_NEXT_DUE], serving.priorities
        jobs.sort(key=lambda job: order(job, priorities.get(job.spec.queue, 0)))
        return Claimed(tuple(jobs), head[_PROFILES_REV], head[_SETTINGS_REV], None if due is None else moment(due))

    async def promote(self, now: datetime, limit: int = MAX_BATCH) -> int:
        """The verb ``Jobs.promote``."""
        rows = await self._hot.fetch(sql("promote", self._schema), micros(now), limit)
        count: int = rows[0][0]
        return count
