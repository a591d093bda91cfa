"""The last messages of workers about a job: completed, failed, snoozed, released; and the reply to a repeat."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, TypeVar

from msgspec import UNSET, UnsetType

from headrace.core.attempt import Attempt, Completed, Ending, ErrorInfo, Failed, Released, Snoozed
from headrace.core.auth.tokens import JobLease
from headrace.core.codec.json import Codec
from headrace.core.codec.value import encode_value
from headrace.core.job import Job
from headrace.core.lifecycle.loss import SAID, reported
from headrace.core.status import Outcome, Reason, Status
from headrace.hub.remote_workers.fleet import Fleet
from headrace.hub.remote_workers.held_job import LeaseLost
from headrace.hub.remote_workers.messages import (
    CompleteJob,
    FailJob,
    JobCompleted,
    JobFailed,
    JobReleased,
    JobSnoozed,
    OfJob,
    ReleaseJob,
    SnoozeJob,
)
from headrace.hub.remote_workers.peers import Peer
from headrace.runtime.totals import MEASURED
from headrace.runtime.writes.load import size_at_most
from headrace.worker.tally import log_failure

__all__ = ["complete_job", "fail_job", "release_job", "snooze_job"]

ANY = Codec(Any)

T = TypeVar("T")
Answer = Callable[[Job, Attempt | None], T]
"""Makes the reply about a job that an attempt has left as it is."""


async def complete_job(peer: Peer, given: CompleteJob) -> JobCompleted:
    """Keep the result, and complete the job."""
    result = encode_value(ANY, given.result, "result")
    ends = Completed(result)
    with peer.fleet.session.writer.load.taking(size_at_most(result)):
        return await _finished(
            peer, given, lambda job, now: ends, given.processing_time, _completed, {Outcome.COMPLETED}
        )


def _completed(job: Job, attempt: Attempt | None) -> JobCompleted:
    return JobCompleted(job_id=job.id, status=Status.COMPLETED)


async def fail_job(peer: Peer, given: FailJob) -> JobFailed:
    """Keep the error, and retry the job as its policy says, unless the worker rules it out."""
    details = given.error_details or {}
    type = details.get("error_type")
    name = type if isinstance(type, str) and type else "Error"
    rules = peer.fleet.session.engine.rules
    trace = details.get("traceback")
    kept = {key: value for key, value in details.items() if key != "traceback"} if isinstance(trace, str) else details
    error = ErrorInfo(name, given.error, trace if isinstance(trace, str) else None, dict(kept) or None)
    reason = None if given.retry else Reason.NON_RETRYABLE
    failed = Failed(error=error.cut(rules.error_limit), names=(name,), reason=reason)

    def ends(job: Job, now: datetime) -> Ending:
        return reported(job, failed, now, rules)

    outcomes = {Outcome.FAILED, Outcome.TIMED_OUT}
    with peer.fleet.session.writer.load.taking(size_at_most(given.error) + size_at_most(error.traceback)):
        return await _finished(peer, given, ends, given.processing_time, _failed, outcomes)


def _failed(job: Job, attempt: Attempt | None) -> JobFailed:
    retry_at = None if attempt is None else attempt.retry_at
    status = Status.RETRYING if retry_at is not None else Status.FAILED
    if retry_at is None and job.status is Status.CANCELLED:
        status = Status.CANCELLED
    reason = job.reason if job.status is status else None
    return JobFailed(job_id=job.id, status=status, retry_at=retry_at, reason=reason)


async def snooze_job(peer: Peer, given: SnoozeJob) -> JobSnoozed:
    """Have the job wait, uncharged."""
    ends = Snoozed(given.delay)
    outcomes = {Outcome.SNOOZED, Outcome.CANCELLED}
    return await _finished(peer, given, lambda job, now: ends, UNSET, _snoozed, outcomes)


def _snoozed(job: Job, attempt: Attempt | None) -> JobSnoozed:
    due = job.available_at if job.status is Status.SCHEDULED else None
    return JobSnoozed(job_id=job.id, status=job.status, available_at=due)


async def release_job(peer: Peer, given: ReleaseJob) -> JobReleased:
    """Give the job back, uncharged."""
    ends = Released()
    outcomes = {Outcome.RELEASED, Outcome.CANCELLED}
    return await _finished(peer, given, lambda job, now: ends, UNSET, _released, outcomes, starts=False)


def _released(job: Job, attempt: Attempt | None) -> JobReleased:
    return JobReleased(job_id=job.id, status=job.status, reason=job.reason)


async def _finished(
    peer: Peer,
    given: OfJob,
    ends: Callable[[Job, datetime], Ending],
    took: float | UnsetType | None,
    answer: Answer[T],
    outcomes: set[Outcome],
    *,
    starts: bool = True,
) -> T:
    """End the attempt of a message; one that it has ended before gets the same reply again."""
    fleet, lease = peer.fleet, await peer.lease(given)
    message = type(given).__name__
    try:
        worker, held = await fleet.holding(peer, lease)
        job, attempt = await held.finish(ends, None if took is UNSET else took, starts=starts)
    except LeaseLost as stale:
        worker_known = fleet.workers.get(lease.worker)
        said: T | None = None if worker_known is None else worker_known.answer_to(lease.job, lease.epoch, message)
        if said is None:
            said = await _on_record(fleet, lease, answer, outcomes)
        if said is None:
            raise LeaseLost(stale.job, stale.detail) from None
        return said
    fleet.drop(worker, held)
    if attempt is not None:
        worker.done += attempt.outcome is not Outcome.RELEASED
        worker.failed += attempt.outcome in MEASURED
        fleet.sums.taken(attempt, job)
        if attempt.outcome is Outcome.COMPLETED:
            fleet.estimates.finished(job.task, attempt.timed().processing_time)
        if attempt.outcome in MEASURED and job.status is Status.RETRYING:
            fleet.claims.failures.note(worker, job)
        if attempt.outcome in MEASURED and attempt.started_at is not None:
            log_failure(job, attempt.outcome, attempt.finished_at, attempt.worker)
    said = answer(job, attempt)
    worker.answered(held, message, said)
    return said


async def _on_record(fleet: Fleet, lease: JobLease, answer: Answer[T], outcomes: set[Outcome]) -> T | None:
    """Return the reply to a message that ended an attempt before, at any hub; None: it did not."""
    engine = fleet.session.engine
    attempt = (await engine.records.history(lease.job)).attempt_of(lease.worker, lease.epoch)
    if attempt is None or attempt.outcome not in outcomes:
        return None
    if attempt.outcome is Outcome.TIMED_OUT and SAID not in ((attempt.error and attempt.error.details) or {}):
        return None  # the sweeper ended it
    [job] = await engine.jobs.get([lease.job])
    return None if job is None else answer(job, attempt)
