"""Suspects: jobs with a stored start that ran when their worker died. One of them may have killed it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from headrace.core.status import Status

if TYPE_CHECKING:
    from headrace.core.job import Job

__all__ = ["QUARANTINE", "REQUIREMENT", "in_quarantine", "is_spared", "ran_together", "requirements_of", "told_suspect"]

REQUIREMENT = "headrace.suspect"
"""What the subqueue of jobs in quarantine requires of a worker, so that only one that runs none takes one."""

QUARANTINE = {REQUIREMENT: True}
"""The requirement, and the offer of a worker that runs no job in quarantine."""

MAX_SPARED_LOSSES = 2
"""How often a job is lost uncharged: a job that kills may do so twice beside one in quarantine before it is in it."""


def in_quarantine(job: Job) -> bool:
    """Return whether the job runs beside no other job in quarantine: after a second loss, or on its last attempt."""
    return job.suspect > 1 or (job.suspect == 1 and job.charged + 1 >= job.spec.retry.max_attempts)


def requirements_of(job: Job) -> dict[str, Any]:
    """Return what a worker must offer to be given the job: what was requested, and what quarantine also requires."""
    return job.spec.requires | QUARANTINE if in_quarantine(job) else job.spec.requires


def told_suspect(job: Job) -> str:
    """Return why a job is suspect and what follows, in words that follow its name; empty for a job that is not."""
    if not job.suspect:
        return ""
    times = "its worker died" if job.suspect == 1 else f"its workers died, {job.suspect} times"
    spared = f", {'once' if job.spared == 1 else 'twice'} uncharged" if job.spared else ""
    now = "; it is in quarantine: it runs beside no other such job" if in_quarantine(job) and not job.ended else ""
    return f"ran when {times}{spared}{now}"


def ran_together(held: Iterable[Job]) -> bool:
    """Return whether a worker held a running suspect and another running job: what its burial records."""
    losses = [job.suspect for job in held if job.status is Status.RUNNING]
    return len(losses) > 1 and any(losses)


def is_spared(job: Job, *, beside_suspect: bool) -> bool:
    """Return whether the loss of a started job is not charged.

    A job with a single attempt is always charged: its submitter does not want it to be called twice.

    ``beside_suspect``: a suspect and another job ran together on the worker that died. Then the first loss of a job is
    not charged, because a suspect is more likely to have killed the worker. Nor is that of the last attempt of one in
    quarantine, twice: the job that kills may have been lost less often, and not be in quarantine yet.
    """
    most = job.spec.retry.max_attempts
    if not beside_suspect or most == 1:
        return False
    return not job.suspect or (job.charged + 1 >= most and job.spared < MAX_SPARED_LOSSES)
