"""Suspects: jobs with a stored start that ran when their worker died. One of them may have killed it."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Any

from headrace.core.status import Status

if TYPE_CHECKING:
    from headrace.core.job import Job

__all__ = [
    "ALONE",
    "AMONG",
    "REQUIREMENT",
    "is_spared",
    "level_of",
    "most_at_once",
    "open_to",
    "ran_together",
    "requirements_of",
    "told_suspect",
]

REQUIREMENT = "headrace.suspect"
"""What the subqueue of a suspect requires of a worker, so that only workers that keep suspects apart take it."""

AMONG, ALONE = 1, 2
"""The levels of suspects: may run among some others; runs with no other suspect on the same worker."""


def level_of(job: Job) -> int:
    """Return 0 for a job that is not suspect, else ``AMONG`` or ``ALONE``.

    After a second loss, or on its last attempt, a suspect runs without other suspects, but beside ordinary jobs.
    """
    if not job.suspect:
        return 0
    return ALONE if job.suspect > 1 or job.charged + 1 >= job.spec.retry.max_attempts else AMONG


def requirements_of(job: Job) -> dict[str, Any]:
    """Return what a worker must offer to be given the job: what was requested, and what a suspect also requires."""
    return job.spec.requires if not job.suspect else job.spec.requires | {REQUIREMENT: level_of(job)}


def most_at_once(concurrency: int) -> int:
    """Return how many suspects a worker may run at a time."""
    return max(1, concurrency // 4)


def told_suspect(job: Job) -> str:
    """Return why a job is suspect and what follows, in words that follow its name; empty for a job that is not."""
    if not job.suspect:
        return ""
    times = "its worker died" if job.suspect == 1 else f"its workers died, {job.suspect} times"
    spared = ", once uncharged" if job.spared else ""
    now = {AMONG: "runs beside few other suspects", ALONE: "runs beside no other suspect"}[level_of(job)]
    return f"ran when {times}{spared}" if job.ended else f"ran when {times}{spared}; it {now}"


def open_to(held: Collection[int], concurrency: int) -> tuple[int, frozenset[int]]:
    """Return how many suspects a worker may take that runs suspects of these levels, and the levels they may have.

    Which comes first, one that runs alone or one that does not, is not known: so the very first is requested by itself.
    """
    if not held:
        return 1, frozenset({AMONG, ALONE})
    free = 0 if ALONE in held else most_at_once(concurrency) - len(held)
    return (free, frozenset({AMONG})) if free > 0 else (0, frozenset())


def ran_together(held: Iterable[Job]) -> bool:
    """Return whether a worker held both running suspects and other running jobs: what its burial records."""
    return len({job.suspect > 0 for job in held if job.status is Status.RUNNING}) == 2


def is_spared(job: Job, *, beside_suspect: bool) -> bool:
    """Return whether the loss of a started job is not charged; once, until the job completes or is retried by a person.

    A job with a single attempt is always charged: its submitter does not want it to be called twice.

    ``beside_suspect``: suspects and ordinary jobs ran together on the worker that died. Then an ordinary job is spared,
    because a suspect is more likely to have killed the worker. A suspect is charged, but not for its last attempt: the
    first start of a job may not be stored, so a job that kills may not be suspect when it kills a second time.
    """
    most = job.spec.retry.max_attempts
    if job.spared or not beside_suspect or most == 1:
        return False
    return not job.suspect or job.charged + 1 >= most
