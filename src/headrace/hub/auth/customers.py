"""Ownership: what a caller with a customer may see, find and make; another customer's is as good as missing."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import suppress
from uuid import UUID

from headrace.client.api.filters import Filters
from headrace.core.job import Job
from headrace.errors import JobNotFound
from headrace.http.problems import Fault, Problem, absent, id_of
from headrace.hub.server.operation import OperationRequest

__all__ = ["customer_of", "filters_of", "job_of", "jobs_of", "location_of", "may_submit", "not_ours"]

OURS = "headrace."
"""Tasks and queues with this prefix are reserved: what runs there is trusted."""


def is_own(ask: OperationRequest, job: Job) -> bool:
    """Return whether the caller may know of this job."""
    return ask.caller.customer is None or job.customer == ask.caller.customer


def location_of(ask: OperationRequest, job: Job) -> dict[str, str]:
    """Return the header with the URL of the job."""
    return {"Location": f"{ask.request.scope.get('root_path', '')}/api/jobs/{job.id}"}


async def job_of(ask: OperationRequest, text: str) -> Job:
    """Return the job with this id, as it is now.

    :raises Problem: 404 or 410, both for a missing job and for another customer's
    """
    return (await jobs_of(ask, [id_of(text)]))[0]


async def jobs_of(ask: OperationRequest, ids: Sequence[UUID]) -> list[Job]:
    """Return the jobs with these ids, in this order, such as the dependencies of another job.

    :raises Problem: 404 or 410 of the first that is missing, or belongs to another customer
    """
    found = list[Job]()
    for id, job in zip(ids, await ask.hub.app.jobs.get_many(ids), strict=True):
        if job is None or not is_own(ask, job):
            if job is None and ask.caller.customer is None:
                with suppress(JobNotFound):  # it may exist and be unreadable: the operator gets that error
                    await ask.hub.app.jobs.get(id)
            raise absent(id, ask.hub.app)
        found.append(job)
    return found


def filters_of(ask: OperationRequest, given: Filters) -> Filters:
    """Return these filters, limited to the caller's customer.

    :raises Problem: 403, they name another customer
    """
    own = ask.caller.customer
    if own is None:
        return given
    named = given.get("customer")
    names: Collection[str] = [named] if isinstance(named, str) else named or ()
    for name in names:
        customer_of(ask, name)
    return {**given, "customer": own}


def customer_of(ask: OperationRequest, named: str | None) -> str | None:
    """Return the customer of a new job, given the one that the request names: the caller's own, if it has one.

    :raises Problem: 403, the request names another
    """
    own = ask.caller.customer
    if own is None or named is None or named == own:
        return named if own is None else own
    message = f"this key is for the customer {own!r} alone"
    raise Problem(403, "forbidden", "This is not for this key", message, faults=[Fault("customer", message)])


def may_submit(ask: OperationRequest, task: str | None, queue: str) -> None:
    """Check that the caller's key may submit this; :raises Problem: 403, it is bound to other tasks or queues

    ``task``: None where the job keeps its task.
    """
    for field, name, bound in (("task", task, ask.caller.tasks), ("queue", queue, ask.caller.queues)):
        if bound is not None and name is not None and name not in bound:
            message = f"this key may use the {field}s {', '.join(sorted(bound))} alone, not {name!r}"
            raise Problem(403, "forbidden", "This is not for this key", message, faults=[Fault(field, message)])


def not_ours(task: str, queue: str) -> None:
    """Check that task and queue are not headrace's own, so that no caller forges a delivery; :raises Problem: 403"""
    for field, name in (("task", task), ("queue", queue)):
        if name.startswith(OURS):
            message = f"{field}s named {OURS}… are headrace's own"
            raise Problem(403, "forbidden", "This is not for submits", message, faults=[Fault(field, message)])
