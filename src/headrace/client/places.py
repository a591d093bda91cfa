"""Where queued jobs stand, for those who follow them: of many jobs of one queue, few are asked about."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from headrace.client.charts import running_times
from headrace.core.claim import order
from headrace.core.decide import expired
from headrace.core.explain.queued import explain_queued
from headrace.core.job import Job
from headrace.core.limits.limit import Usage
from headrace.core.limits.rule import group_of, limits_of
from headrace.core.news import Place

if TYPE_CHECKING:
    from headrace.client.session import Session

__all__ = ["places"]

COUNTED = 2000
"""How many jobs before one are counted: who stands further behind need not know exactly."""
ASKED = 20
"""Questions about one queue at a time."""

Asking = Callable[[Job], Awaitable[Place]]


async def places(session: Session, jobs: Sequence[Job]) -> list[Place | None]:
    """Where these jobs of one queue stand; None: it was not asked about this time."""
    engine, now = session.engine, session.host.clock.now()
    limits, usage = limits_of((one.key, one.value) for one in await engine.documents.settings()), Usage()
    groups = {group_of(job) for job in jobs if limits.bounded(job.queue, job.task)}
    if groups:
        usage = await engine.records.usage(list({bound for group in groups for bound in limits.paced(group)}))
    workers = [row.as_heard(now, engine.rules) for row in await engine.workers.list()]
    takes = (await running_times(session, queue=jobs[0].queue)).quantiles()

    async def ask(job: Job) -> Place:
        if expired(job, now):
            return Place(None)
        found = await engine.records.position(job, now, most=COUNTED)
        facts: dict[str, dict[str, Any]] = {
            fact.code: fact.data for fact in explain_queued(job, now, workers, limits, usage, (), found, takes=takes)
        }
        told, start = facts.get("position"), facts.get("estimate")  # as ``client.positions`` has it
        estimated = now if "ready" in facts else None if start is None or start["at_least"] else start["at"]
        return Place(None if told is None or told["at_least"] else told["position"], estimated)

    ordered = sorted(range(len(jobs)), key=lambda index: order(jobs[index]))
    told = await _between([jobs[index] for index in ordered], ask, session.host.dice.chance)
    found: list[Place | None] = [None] * len(jobs)
    for index, place in zip(ordered, told, strict=True):
        found[index] = place
    return found


async def _between(line: Sequence[Job], ask: Asking, chance: Callable[[], float]) -> list[Place | None]:
    """Where the jobs of a line stand, by asking about a few.

    If as many stand from one job to another as are known in between, then these are all there are. Where others stand
    between them, those in front are asked about first, and of the rest now one, now another.
    """
    first = await ask(line[0])
    if first.position is None:
        return [first] * len(line)  # nobody behind it is counted either
    found: list[Place | None] = [first, *[None] * (len(line) - 1)]
    last = len(line) - 1
    found[last] = await ask(line[last])
    gaps, asked = [(0, last)], 2
    while gaps and asked < ASKED // 2:
        low, high = gaps.pop(0)
        if high - low > 1 and not _filled(found, low, high):
            middle = (low + high) // 2
            found[middle] = await ask(line[middle])
            asked += 1
            gaps[:0] = [(low, middle), (middle, high)]
    unknown = [index for low, high in gaps if not _filled(found, low, high) for index in range(low + 1, high)]
    while unknown and asked < ASKED:
        index = unknown.pop(int(chance() * len(unknown)))
        found[index] = await ask(line[index])
        asked += 1
    return found


def _filled(found: list[Place | None], low: int, high: int) -> bool:
    """Tell the places between two that are known, if that can be done."""
    first, last = found[low], found[high]
    assert first is not None
    assert last is not None
    if first.position is None:
        found[low:high] = [first] * (high - low)
        return True
    if last.position is None or last.position - first.position != high - low:
        return False
    for index in range(low + 1, high):
        part = (index - low) / (high - low)
        start = _moment_between(first.estimated_start, last.estimated_start, part)
        found[index] = Place(first.position + index - low, start)
    return True


def _moment_between(first: datetime | None, last: datetime | None, part: float) -> datetime | None:
    return None if first is None or last is None else first + (last - first) * part
