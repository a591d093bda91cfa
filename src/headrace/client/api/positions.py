"""The position of a queued job, and when it may start: for one caller, and for readers that follow many jobs.

Of many jobs of one queue, few are read.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import datetime
from itertools import pairwise
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from headrace.client.api.stats import running_times
from headrace.client.api.workers import workers
from headrace.core.codec.record import Record
from headrace.core.explain.explanation import Fact
from headrace.core.explain.queued import explain_queued
from headrace.core.job import Job
from headrace.core.lifecycle.claim import order
from headrace.core.lifecycle.decision import expired
from headrace.core.limits.selection import Usage
from headrace.core.limits.settings import group_of, limits_of
from headrace.core.query import seen_status
from headrace.core.status import Status
from headrace.core.updates import Place

if TYPE_CHECKING:
    from headrace.client.session import Session

__all__ = ["QueuePosition", "places", "position"]


class QueuePosition(msgspec.Struct, Record, frozen=True):
    """The place of a job in its queue, and when it may start, by how fast the queue goes."""

    position: int | None
    """1 is the next; None: too many are before it to count them, or it stands in no line with others."""
    estimated_start: datetime | None
    """None: nothing tells, for instance because no worker may take it, or its queue is paused."""


async def position(session: Session, job: Job) -> QueuePosition | None:
    """The position of the job; None: it is not queued, since it runs, waits for its time, or is over."""
    engine, now = session.engine, session.host.clock.now()
    if seen_status(job, now) is not Status.QUEUED or expired(job, now):
        return None
    limits, usage = limits_of((one.key, one.value) for one in await engine.documents.settings()), Usage()
    if limits.bounded(job.queue, job.task):
        usage = await engine.records.usage(list(limits.paced(group_of(job))))
    place = await engine.records.position(job, now)
    takes = (await running_times(session, queue=job.queue)).quantiles()
    facts = explain_queued(job, now, await workers(session), limits, usage, (), place, takes=takes)
    found = _estimate(facts, now)
    return QueuePosition(found.position, found.estimated_start)


def _estimate(facts: Iterable[Fact], now: datetime) -> Place:
    """The position and the expected start in these facts; None for what is unknown, or known only as a minimum."""
    found = {fact.code: fact.data for fact in facts}
    place, start = found.get("position"), found.get("estimate")
    estimated = now if "ready" in found else None if start is None or start["at_least"] else start["at"]
    if place is None or place["at_least"]:
        return Place(None, estimated)
    return Place(place["position"], estimated, approximate=place["approximate"])


MAX_COUNTED_JOBS = 2000
"""Maximum number of jobs before one that are counted: further behind, the exact number does not matter."""
MAX_QUEUE_READS = 20
"""Reads for one queue at a time."""

Asking = Callable[[Job], Awaitable[Place]]


async def places(
    session: Session, jobs: Sequence[Job], most: int = MAX_COUNTED_JOBS, *, all_of_them: bool = False
) -> list[Place | None]:
    """The positions of these jobs of one queue; None: it was not read this time. ``most``: jobs before one that are
    counted. ``all_of_them``: what is not read is estimated from the positions before and behind it."""
    engine, now = session.engine, session.host.clock.now()
    limits, usage = limits_of((one.key, one.value) for one in await engine.documents.settings()), Usage()
    groups = {group_of(job) for job in jobs if limits.bounded(job.queue, job.task)}
    if groups:
        usage = await engine.records.usage(list({bound for group in groups for bound in limits.paced(group)}))
    rows = await workers(session)
    takes = (await running_times(session, queue=jobs[0].queue)).quantiles()

    async def ask(job: Job) -> Place:
        if expired(job, now):
            return Place(None)
        found = await engine.records.position(job, now, most=most)
        return _estimate(explain_queued(job, now, rows, limits, usage, (), found, takes=takes), now)

    ordered = sorted(range(len(jobs)), key=lambda index: order(jobs[index]))
    placed = await _between([jobs[index] for index in ordered], ask, session.host.dice.chance)
    if all_of_them:
        _estimate_rest(placed)
    found: list[Place | None] = [None] * len(jobs)
    for index, place in zip(ordered, placed, strict=True):
        found[index] = place
    return found


async def _between(line: Sequence[Job], ask: Asking, chance: Callable[[], float]) -> list[Place | None]:
    """The positions of queued jobs, in their order, by reading those of a few.

    If two positions are as far apart as the known jobs in between, then these are all there are. Where others are
    between them, those in front are read first, and of the rest now one, now another.
    """
    first = await ask(line[0])
    if first.position is None:
        return [first] * len(line)  # no job behind it is counted either
    found: list[Place | None] = [first, *[None] * (len(line) - 1)]
    last = len(line) - 1
    found[last] = await ask(line[last])
    gaps, asked = [(0, last)], 2
    while gaps and asked < MAX_QUEUE_READS // 2:
        low, high = gaps.pop(0)
        if high - low > 1 and not _filled(found, low, high):
            middle = (low + high) // 2
            found[middle] = await ask(line[middle])
            asked += 1
            gaps[:0] = [(low, middle), (middle, high)]
    unknown = [index for low, high in gaps if not _filled(found, low, high) for index in range(low + 1, high)]
    while unknown and asked < MAX_QUEUE_READS:
        index = unknown.pop(int(chance() * len(unknown)))
        found[index] = await ask(line[index])
        asked += 1
    return found


def _estimate_rest(found: list[Place | None]) -> None:
    """Set the unknown positions, in equal steps from the known one before to the known one behind."""
    known = [index for index, place in enumerate(found) if place is not None]
    for low, high in pairwise(known):
        first, last = found[low], found[high]
        for index in range(low + 1, high):
            part = (index - low) / (high - low)
            found[index] = replace(_part(first, last, part), approximate=True) if first and last else None


def _part(first: Place, last: Place, part: float) -> Place:
    """Return what is this part of the way from one position to another; unknown if one of them is."""
    if first.position is None or last.position is None:
        return Place(None)
    begin, end = first.estimated_start, last.estimated_start
    start = None if begin is None or end is None else begin + (end - begin) * part
    approximate = first.approximate or last.approximate
    return Place(first.position + round((last.position - first.position) * part), start, approximate=approximate)


def _filled(found: list[Place | None], low: int, high: int) -> bool:
    """Compute the positions between two that are known; whether that can be done."""
    first, last = found[low], found[high]
    assert first is not None
    assert last is not None
    if first.position is None:
        found[low:high] = [first] * (high - low)
        return True
    if last.position is None or last.position - first.position != high - low:
        return False
    for index in range(low + 1, high):
        found[index] = _part(first, last, (index - low) / (high - low))
    return True
