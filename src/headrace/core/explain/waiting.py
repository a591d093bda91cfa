"""Whom a job waits for, and whose end became its own: what an explanation says of other jobs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from headrace.core.explain.explanation import Fact, many
from headrace.core.job import Job
from headrace.core.query import seen_status
from headrace.core.status import ENDED, Reason, Status

__all__ = ["blame", "explain_waiting", "relatives"]

_NAMED = 5
"""Jobs are named up to this many."""


def relatives(job: Job) -> tuple[UUID, ...]:
    """Whom an explanation of this job must know of."""
    if job.status is not Status.WAITING and job.reason is not Reason.PARENT:
        return ()
    return job.after if job.parent is None else (*job.after, job.parent)


def explain_waiting(job: Job, parents: Mapping[UUID, Job], now: datetime) -> Iterator[Fact]:
    """Whom it waits for, as far as they are known."""
    if not job.after:
        yield Fact("waiting", f"It waits for {many(job.waits, 'other job')} to end.", {"jobs": job.waits})
        return
    live = [id for id in job.after if id in parents and parents[id].status not in ENDED]
    data = {"jobs": len(live), "of": len(job.after), "waits_for": _data(live, parents, now)}
    if bad := _not_as_asked(job, parents):
        what = "be cancelled" if job.spec.on_parent_failure == "cancel" else "fail"
        yield Fact("waiting", f"It is about to {what}: {_named(bad, parents, now)} did not succeed.", data)
    elif not live:
        yield Fact("waiting", f"{_all(job)} it waited for ended as asked: it is about to go on.", data)
    else:
        count = many(len(job.after), "job") if len(job.after) == 1 else f"{len(live):,} of {len(job.after):,} jobs"
        yield Fact("waiting", f"It waits for {count}: {_named(live, parents, now)}; {_then(job)}.", data)


def blame(job: Job, parents: Mapping[UUID, Job], now: datetime) -> Iterator[Fact]:
    """Which job's end became its own."""
    if job.reason is not Reason.PARENT:
        return
    submitter = None if job.parent is None else parents.get(job.parent)
    if submitter is not None and (submitter.status is Status.CANCELLED or submitter.cancel_requested_at is not None):
        # First: what it waited for may be children of the same job, and cancelled for the same reason.
        who = _name(submitter.id, parents, now)
        text = f"The job that submitted it, {who}, was cancelled, and its children with it."
        yield Fact("parent", text, {"parents": _data([submitter.id], parents, now)})
        return
    asked = _not_as_asked(job, parents)
    if bad := [id for id in asked if id in parents] or asked:  # one that is gone may well have succeeded
        text = f"It waited for {_named(bad, parents, now)}, which did not succeed."
        yield Fact("parent", text, {"parents": _data(bad, parents, now)})


def _not_as_asked(job: Job, parents: Mapping[UUID, Job]) -> list[UUID]:
    """Those it waits for that did not end as it asks; one that is gone is not known to have."""
    if job.spec.after_when == "ended":
        return []
    bad = ENDED - {Status.COMPLETED}
    return [id for id in job.after if id not in parents or parents[id].status in bad]


def _then(job: Job) -> str:
    one = len(job.after) == 1
    if job.spec.after_when == "ended":
        return f"it goes on when {'that has' if one else 'all have'} ended, however"
    otherwise = "is cancelled" if job.spec.on_parent_failure == "cancel" else "fails"
    what = "that has succeeded" if one else "all have succeeded"
    return f"it goes on when {what}, and {otherwise} if {'it does' if one else 'one does'} not"


def _all(job: Job) -> str:
    return "The job" if len(job.after) == 1 else f"All {len(job.after):,} jobs"


def _named(ids: Sequence[UUID], parents: Mapping[UUID, Job], now: datetime) -> str:
    names = ", ".join(_name(id, parents, now) for id in ids[:_NAMED])
    return f"{names} and {len(ids) - _NAMED:,} more" if len(ids) > _NAMED else names


def _name(id: UUID, parents: Mapping[UUID, Job], now: datetime) -> str:
    job = parents.get(id)
    return f"{id} (gone)" if job is None else f"{job.task} {id} ({seen_status(job, now)})"


def _data(ids: Sequence[UUID], parents: Mapping[UUID, Job], now: datetime) -> list[dict[str, Any]]:
    return [
        {"id": id, "task": None, "status": None}
        if (job := parents.get(id)) is None
        else {"id": id, "task": job.task, "status": seen_status(job, now)}
        for id in ids
    ]
