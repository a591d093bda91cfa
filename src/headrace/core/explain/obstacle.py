"""What keeps a worker from taking a job, for the explanations of both."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from headrace.core.explain.explanation import Fact, many
from headrace.core.job import Job
from headrace.core.limits.settings import Limits
from headrace.core.matching.shortfall import Lack, distance, lacks, told_lacks

if TYPE_CHECKING:
    from headrace.engine import WorkerRow

__all__ = ["Obstacle", "nobody_may", "obstacle"]

_CODES = ("no_task", "queue_not_served", "requirements_unmet", "queue_not_by_customer", "customer_not_taken")
"""The later, the nearer the worker is to taking the job."""


class Obstacle(msgspec.Struct, frozen=True):
    """Why a worker does not take a job, as long as neither changes."""

    code: str
    lacks: tuple[Lack, ...] = ()
    """The requirements that it does not meet, if that is the reason."""

    @property
    def _far(self) -> tuple[int, tuple[int, float]]:
        return -_CODES.index(self.code), distance(self.lacks)


def obstacle(job: Job, row: WorkerRow, limits: Limits) -> Obstacle | None:
    """Return what keeps this worker from ever taking this job; None: nothing does."""
    info = row.info
    if not info.runs(job.task, job.requires):
        return Obstacle("no_task")
    if info.queues is not None and job.queue not in info.queues:
        return Obstacle("queue_not_served")
    if lacking := lacks(job.requires, info.offers):
        return Obstacle("requirements_unmet", lacking)
    if info.customers is not None:
        if not limits.queue(job.queue).by_customer:
            return Obstacle("queue_not_by_customer")
        if not info.customers.admits(job.customer):
            return Obstacle("customer_not_taken")
    return None


def nobody_may(job: Job, able: Sequence[WorkerRow], limits: Limits, to: str | None = None) -> Fact | None:
    """Return why none of the workers that take jobs may ever take this one, and which is nearest; None: one may.

    ``to``: a customer who reads it, and must not learn the names of workers.
    """
    found: list[tuple[Obstacle, WorkerRow]] = []
    for row in able:
        one = obstacle(job, row, limits)
        if one is None:
            return None
        found.append((one, row))
    nearest, row = min(found, key=lambda pair: (pair[0]._far, pair[1].info.shown))
    alike = sum(one.code == nearest.code for one, _ in found)
    data: dict[str, Any] = {"task": job.task, "queue": job.queue}
    match nearest.code:
        case "no_task":
            text = f"No live worker has the task {job.task!r}."
        case "queue_not_served":
            text = f"No live worker with its task serves queue {job.queue!r}."
        case "requirements_unmet":
            needs, offers = told_lacks(nearest.lacks, discreet=to is not None)
            text = f"It needs {needs}; the nearest worker{_named(row, to)} offers {offers}."
            unmet = [Lack(one.name, one.need) for one in nearest.lacks] if to is not None else nearest.lacks
            data["unmet"] = [msgspec.to_builtins(one) for one in unmet]
            if to is None:
                data |= {"nearest": row.info.id, "nearest_name": row.info.name}
        case "queue_not_by_customer":
            who = f"{many(alike, 'live worker')} that might take it {'chooses' if alike == 1 else 'choose'} customers"
            text = f"{who}, and in queue {job.queue!r} the jobs of all stand in one line"
            text += "." if to is not None else f": headrace queues set {job.queue} --by-customer."
        case _:
            whose = "without a customer" if job.customer is None else f"of customer {job.customer!r}"
            text = f"No live worker takes jobs {whose}: {many(alike, 'worker')} could run it, but"
            text += f" {'is' if alike == 1 else 'are'} kept for others."
    return Fact(nearest.code, text, data)


def _named(row: WorkerRow, to: str | None) -> str:
    """Return the worker's name for a sentence; empty where it must not be named."""
    if to is not None:
        return ""
    where = f" on {row.info.host}" if row.info.host and row.info.name is None else ""
    return f", {row.info.shown}{where},"
