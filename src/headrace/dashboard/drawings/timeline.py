"""The attempts of a job on a time axis, to scale: waiting, assigned, running, backing off."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from headrace.core.attempt import Attempt, ErrorInfo, History
from headrace.core.job import Job
from headrace.core.status import ENDED, Status

__all__ = ["Lane", "Part", "Timeline", "timeline"]

WIDE, LEFT, LANE, TOP = 960.0, 4.0, 22.0, 6.0
MIN_PART_WIDTH = 1.5
"""The width of the shortest part, so that every part is visible."""
MAX_ATTEMPTS = 30
"""Maximum attempts that are drawn: the last ones."""


@dataclass(frozen=True)
class Part:
    """A span of time in one state."""

    kind: str
    since: datetime
    until: datetime
    x: float
    width: float

    @property
    def seconds(self) -> float:
        """Its duration."""
        return (self.until - self.since).total_seconds()


Cut = Callable[[str, datetime | None, datetime | None], list[Part]]
"""Makes the part of a kind between two moments; empty, if one of them is unknown."""


@dataclass(frozen=True)
class Lane:
    """One attempt, or the wait for the first."""

    number: int
    y: float
    parts: tuple[Part, ...]
    outcome: str
    worker: object
    epoch: int
    error: ErrorInfo | None
    started_at: datetime | None
    finished_at: datetime | None
    retry_at: datetime | None
    cause: str | None
    count: int


@dataclass(frozen=True)
class Timeline:
    """All attempts of a job."""

    since: datetime
    until: datetime
    lanes: tuple[Lane, ...]
    hidden: int
    width: float = WIDE

    @property
    def height(self) -> float:
        """The height of the drawing."""
        return TOP + LANE * len(self.lanes) + 4


def timeline(job: Job, history: History, now: datetime) -> Timeline:
    """Return the timeline of a job; ``now`` is the end of what is not over."""
    attempts = history.attempts[-MAX_ATTEMPTS:]
    hidden = len(history.attempts) - len(attempts)
    since = job.created_at if not hidden else (attempts[0].assigned_at or attempts[0].started_at or job.created_at)
    until = job.finished_at if job.status in ENDED and job.finished_at else now
    until = max(until, since + timedelta(milliseconds=1))
    scale = (WIDE - 2 * LEFT) / (until - since).total_seconds()

    def part(kind: str, begin: datetime | None, end: datetime | None) -> list[Part]:
        if begin is None or end is None or end < begin:
            return []
        begin, end = min(max(begin, since), until), min(max(end, since), until)
        x = LEFT + (begin - since).total_seconds() * scale
        width = max(MIN_PART_WIDTH, (end - begin).total_seconds() * scale)
        return [Part(kind, begin, end, round(min(x, WIDE - LEFT - MIN_PART_WIDTH), 2), round(width, 2))]

    lanes, free = list[Lane](), since
    for index, one in enumerate(attempts):
        given, began = one.assigned_at or one.started_at or one.finished_at, one.started_at
        parts = part("waiting", free, given)
        parts += part("assigned", one.assigned_at, began or one.finished_at)
        parts += part("running" if one.outcome == "completed" else f"ended-{one.outcome}", began, one.finished_at)
        coming = _next(attempts, index, job, until)
        due = one.retry_at if one.retry_at is not None else None
        if due is not None:
            parts += part("backoff", one.finished_at, min(due, coming))
        free = min(due, coming) if due is not None else one.finished_at
        lanes.append(_lane(len(lanes), one, parts))
    if job.status not in ENDED:
        lanes.append(_now(len(lanes), job, part, free, until))
    elif not attempts:
        lanes.append(_now(0, job, part, free, until, over=True))
    return Timeline(since, until, tuple(lanes), hidden)


def _next(attempts: Sequence[Attempt], index: int, job: Job, until: datetime) -> datetime:
    """Return when the next part began after this attempt."""
    if index + 1 < len(attempts):
        later = attempts[index + 1]
        return later.assigned_at or later.started_at or later.finished_at
    return job.assigned_at if job.held and job.assigned_at else until


def _lane(index: int, one: Attempt, parts: list[Part]) -> Lane:
    return Lane(
        one.number,
        TOP + LANE * index,
        tuple(parts),
        str(one.outcome),
        one.worker,
        one.epoch,
        one.error,
        one.started_at,
        one.finished_at,
        one.retry_at,
        one.cause,
        one.count,
    )


def _now(index: int, job: Job, part: Cut, free: datetime, until: datetime, *, over: bool = False) -> Lane:
    """Return the current part, or, of a job that ended before a worker claimed it, how long it waited."""
    parts = list[Part]()
    if over or not job.held:
        parts += part("waiting", free, until)
    else:
        parts += part("waiting", free, job.assigned_at or job.started_at or until)
        parts += part("assigned", job.assigned_at, job.started_at or until)
        parts += part("running", job.started_at, until)
    number = job.attempt if job.status is Status.RUNNING else job.attempt + 1
    shown = str(job.status)
    return Lane(
        number,
        TOP + LANE * index,
        tuple(parts),
        shown,
        job.worker,
        job.epoch,
        None,
        job.started_at,
        None,
        None,
        None,
        1,
    )
