"""Submits that were merged into the job that held their dedup key: a job is labelled with their ids, so that it is
found by each of them, and forgotten with it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from uuid import UUID

from headrace.core.change import Change
from headrace.core.job import Job
from headrace.core.uniqueness import replaces
from headrace.engine import Duplicated, InsertAnswer
from headrace.engines.sql.record import encode

__all__ = ["asked_for", "replaced", "row_of_merge"]


def asked_for(jobs: Iterable[Job]) -> list[UUID]:
    """The ids of those jobs that may have been merged into another; most calls have none."""
    return [job.id for job in jobs if job.spec.dedup is not None and replaces(job.spec)]


def replaced(jobs: Sequence[Job], answers: Sequence[InsertAnswer], merged: Mapping[UUID, Job]) -> list[InsertAnswer]:
    """The answers, with what is said of submits that were merged before."""
    if not merged:
        return list(answers)
    pairs = zip(jobs, answers, strict=True)
    return [Duplicated(merged[job.id], replaced=True) if job.id in merged else answer for job, answer in pairs]


def row_of_merge(change: Change) -> str:
    """What ``merge.sql`` takes: the order number and the id of the job, its payload, and its new label."""
    job = change.job
    return encode((job.seq, job.id, job.payload_text, f"m{change.merges}"))
