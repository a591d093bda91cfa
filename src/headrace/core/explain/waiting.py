"""Other jobs in an explanation: those that a job waits for, and the one that ended it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from headrace.core.explain.explanation import Fact, many
from headrace.core.job import Job
from headrace.core.query import seen_status
from headrace.core.status import ENDED, Reason, Status

__all__ = ["Relatives", "blame", "explain_waiting", "relatives"]

_MAX_NAMED_JOBS = 5
"""Maximum jobs that are named."""


def relatives(job: Job) -> tuple[UUID, ...]:
    """Return the jobs that an explanation of this job must know of."""
    if job.status is not Status.WAITING and job.reason is not Reason.PARENT:
        return ()
    return job.after if job.parent is None else (*job.after, job.parent)


class Relatives:
    """The relatives of a job that still exist, and their names."""

    def __init__(self, jobs: Iterable[Job], now: datetime, to: str | None = None) -> None:
        """``to``: a customer who reads it; it learns of another's jobs only that its own wait for them."""
        self._jobs, self._now, self._to = {job.id: job for job in jobs}, now, to

    def __contains__(self, id: UUID) -> bool:
        """Return whether it still exists."""
        return id in self._jobs

    def get(self, id: UUID) -> Job | None:
        """Return the relative, if it still exists."""
        return self._jobs.get(id)

    def live(self, ids: Iterable[UUID]) -> list[UUID]:
        """Return those that have not ended."""
        return [id for id in ids if id in self._jobs and self._jobs[id].status not in ENDED]

    def named(self, ids: Sequence[UUID]) -> str:
        """Return the first few in words."""
        names = ", ".join(map(self.name, ids[:_MAX_NAMED_JOBS]))
        return f"{names} and {len(ids) - _MAX_NAMED_JOBS:,} more" if len(ids) > _MAX_NAMED_JOBS else names

    def name(self, id: UUID) -> str:
        """Return one of them in words."""
        job = self.get(id)
        if job is None:
            return f"{id} (gone)"
        return f"{job.task} {id} ({seen_status(job, self._now)})" if self._is_shown(job) else "a job of somebody else"

    def data(self, ids: Sequence[UUID]) -> list[dict[str, Any]]:
        """Return all of them as data."""
        return [self._datum(id) for id in ids]

    def _datum(self, id: UUID) -> dict[str, Any]:
        job = self.get(id)
        if job is None or not self._is_shown(job):
            return {"id": id, "task": None, "status": None}
        return {"id": id, "task": job.task, "status": seen_status(job, self._now)}

    def _is_shown(self, job: Job) -> bool:
        return self._to is None or job.customer == self._to


def explain_waiting(job: Job, relatives: Relatives) -> Iterator[Fact]:
    """Yield the jobs that it waits for, as far as they are known."""
    if not job.after:
        yield Fact("waiting", f"It waits for {many(job.waits, 'other job')} to end.", {"jobs": job.waits})
        return
    live = relatives.live(job.after)
    data = {"jobs": len(live), "of": len(job.after), "waits_for": relatives.data(live)}
    if bad := _not_as_asked(job, relatives):
        what = "be cancelled" if job.spec.on_parent_failure == "cancel" else "fail"
        yield Fact("waiting", f"It is about to {what}: {relatives.named(bad)} did not succeed.", data)
    elif not live:
        yield Fact("waiting", f"{_all(job)} it waited for ended as asked: it is about to go on.", data)
    else:
        count = many(len(job.after), "job") if len(job.after) == 1 else f"{len(live):,} of {len(job.after):,} jobs"
        yield Fact("waiting", f"It waits for {count}: {relatives.named(live)}; {_then(job)}.", data)


def blame(job: Job, relatives: Relatives) -> Iterator[Fact]:
    """Yield the job that ended it."""
    if job.reason is not Reason.PARENT:
        return
    submitter = None if job.parent is None else relatives.get(job.parent)
    if submitter is not None and (submitter.status is Status.CANCELLED or submitter.cancel_requested_at is not None):
        # First: what it waited for may be children of the same job, and cancelled for the same reason.
        text = f"The job that submitted it, {relatives.name(submitter.id)}, was cancelled, and its children with it."
        yield Fact("parent", text, {"parents": relatives.data([submitter.id])})
        return
    asked = _not_as_asked(job, relatives)
    if bad := [id for id in asked if id in relatives] or asked:  # one that is gone may have succeeded
        text = f"It waited for {relatives.named(bad)}, which did not succeed."
        yield Fact("parent", text, {"parents": relatives.data(bad)})


def _not_as_asked(job: Job, relatives: Relatives) -> list[UUID]:
    """Return the jobs it waits for that did not end as requested; one that is gone is not known to have."""
    if job.spec.after_when == "ended":
        return []
    bad = ENDED - {Status.COMPLETED}
    return [id for id in job.after if (one := relatives.get(id)) is None or one.status in bad]


def _then(job: Job) -> str:
    one = len(job.after) == 1
    if job.spec.after_when == "ended":
        return f"it goes on when {'that has' if one else 'all have'} ended, however"
    otherwise = "is cancelled" if job.spec.on_parent_failure == "cancel" else "fails"
    what = "that has succeeded" if one else "all have succeeded"
    return f"it goes on when {what}, and {otherwise} if {'it does' if one else 'one does'} not"


def _all(job: Job) -> str:
    return "The job" if len(job.after) == 1 else f"All {len(job.after):,} jobs"
