"""Messages of workers about their jobs while they hold them: accepting, preparing, starting, progress."""

from __future__ import annotations

from datetime import datetime

from headrace.core.attempt import Progress
from headrace.core.change import Change
from headrace.core.codec.value import progress_details
from headrace.core.job import Job
from headrace.core.lifecycle.execution import accept, prepare
from headrace.core.status import Status
from headrace.core.validation import checked_moment
from headrace.hub.remote_workers.messages import (
    AcceptJob,
    JobAccepted,
    JobStarted,
    PrepareJob,
    ProgressAcknowledged,
    StartJob,
    UpdateJobProgress,
)
from headrace.hub.remote_workers.peers import Peer

__all__ = ["accept_job", "prepare_job", "progress_of", "start_job", "update_job_progress"]


async def accept_job(peer: Peer, given: AcceptJob) -> JobAccepted:
    """Take an offered job; a repeat gets the same reply."""
    held = await peer.held(given)
    rules = held.writer.engine.rules

    def decide(job: Job, now: datetime) -> Change | None:
        return accept(job, now, rules) if job.status is Status.ASSIGNED else None

    return _accepted(await held.write(decide))


async def prepare_job(peer: Peer, given: PrepareJob) -> JobAccepted:
    """Take a job, and have more time to start it."""
    held = await peer.held(given)
    rules = held.writer.engine.rules
    return _accepted(await held.write(lambda job, now: prepare(job, now, rules)))


def _accepted(job: Job) -> JobAccepted:
    return JobAccepted(job_id=job.id, start_by=job.act_by if job.status is Status.ACCEPTED else None)


async def start_job(peer: Peer, given: StartJob) -> JobStarted:
    """Record the start."""
    held = await peer.held(given)
    async with held.lock:
        job = await held.started()
    return JobStarted(job_id=job.id, attempt=job.attempt, timeout_at=job.timeout_at)


async def update_job_progress(peer: Peer, given: UpdateJobProgress) -> ProgressAcknowledged:
    """Record the progress of the job, and return whether it must stop."""
    report = progress_of(given)
    held = await peer.held(given)
    await held.report(report)
    why = held.must_stop
    return ProgressAcknowledged(job_id=held.job.id, cancel=why is not None, reason=why)


def progress_of(given: UpdateJobProgress) -> Progress:
    """Return the report in a message, checked like that of a handler.

    :raises ConfigError: the details are too large, or have a number that is
    """
    details = given.connector_details or None
    report = Progress(
        given.progress,
        given.message or None,
        given.current_step or None,
        checked_moment(given.estimated_completion or None, "estimated_completion"),
        None if details is None else progress_details(details, "connector_details"),
    )
    return report.cut()
