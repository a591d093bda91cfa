"""Continuous tasks: each instance is a chain of jobs, of which the dedup key lets one be live at a time."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from headrace.core.job import Job
from headrace.core.schedule.rules import Continuous
from headrace.core.status import Status

__all__ = ["Instance", "instance_key", "instance_of", "resumes_at"]

_PREFIX = "continuous:"


class Instance(NamedTuple):
    """One of the parallel runs of a continuous schedule, counted from 0."""

    schedule: str
    number: int


def instance_key(instance: Instance) -> str:
    """Return the dedup key of its jobs."""
    return f"{_PREFIX}{instance.schedule}:{instance.number}"


def instance_of(job: Job) -> Instance | None:
    """Return the instance that this job is a run of; None if it is something else."""
    name, key = job.spec.schedule, job.spec.dedup
    if name is None or key is None or not key.startswith(f"{_PREFIX}{name}:"):
        return None
    number = key.removeprefix(f"{_PREFIX}{name}:")
    return Instance(name, int(number)) if number.isdecimal() else None


def resumes_at(rule: Continuous, ended: Job | None, now: datetime) -> datetime:
    """Return when the next run may begin: at once, or after the cool-down if the last one failed."""
    if ended is None or ended.status is not Status.FAILED or ended.finished_at is None:
        return now
    return max(now, ended.finished_at + rule.rest)
