"""Jobs in every status, brought there by the verbs alone."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from headrace.core.attempt import Completed, Ending, ErrorInfo, Failed
from headrace.core.change import Change
from headrace.core.defaults import Rules
from headrace.core.job import Job, Spec
from headrace.core.lifecycle import actions, execution, submission
from headrace.core.lifecycle.claim import ClaimRequest, grant
from headrace.core.status import Reason, Status

NOW = datetime(2030, 5, 6, 7, 8, 9, 123456, tzinfo=UTC)
RULES = Rules()
ID = UUID("01890000-0000-7000-8000-000000000001")
OTHER = UUID("01890000-0000-7000-8000-000000000002")
WORKER = UUID("01890000-0000-7000-8000-00000000000a")
OOPS = ErrorInfo("Oops", "it broke")


def at(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def submitted(
    *, delay: float = 0, not_after: float | None = None, waits: int = 0, pending: bool = False, **spec: Any
) -> Job:
    """A new job; times in seconds from NOW."""
    fields: dict[str, Any] = {"task": "work", "created_at": NOW}
    return submission.submit(
        ID,
        Spec(**fields | spec),
        '{"n":1}',
        NOW,
        available_at=at(delay),
        not_after=None if not_after is None else at(not_after),
        waits=waits,
        pending=pending,
    )


def given(job: Job, *, accept: bool = True, now: datetime = NOW) -> Job:
    """The job in a worker's hands."""
    ask = ClaimRequest(n=1, free=1, profiles=frozenset(), accept=accept)
    return grant(WORKER, ask, 7, now, RULES).on(job)


def started(job: Job, now: datetime = NOW) -> Job:
    return execution.start(job, now, RULES).job


def running(**options: Any) -> Job:
    return started(given(submitted(**options)))


def end(job: Job, ending: Ending, *, chance: float = 0.0, now: datetime = NOW, **options: Any) -> Change:
    return execution.finish(job, ending, now, chance, RULES, **options)


def asked(job: Job, now: datetime = NOW) -> Job:
    """The job with a cancel requested."""
    change = actions.cancel(job, now, RULES)
    assert change is not None
    assert change.job.cancel_requested_at == now
    return change.job


def stand(status: Status, **options: Any) -> Job:
    """A job in this status."""
    match status:
        case Status.PENDING:
            return submitted(pending=True, **options)
        case Status.WAITING:
            return submitted(waits=1, **options)
        case Status.SCHEDULED:
            return submitted(delay=60, **options)
        case Status.QUEUED:
            return submitted(**options)
        case Status.ASSIGNED:
            return given(submitted(**options), accept=False)
        case Status.ACCEPTED:
            return given(submitted(**options))
        case Status.RUNNING:
            return running(**options)
        case Status.RETRYING:
            return end(running(**options), Failed(error=OOPS)).job
        case Status.COMPLETED:
            return end(running(**options), Completed('"r"')).job
        case Status.FAILED:
            return end(running(**options), Failed(error=OOPS, reason=Reason.NON_RETRYABLE)).job
        case Status.CANCELLED:
            change = actions.cancel(submitted(**options), NOW, RULES)
            assert change is not None
            return change.job
