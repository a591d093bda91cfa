"""Messages between workers and a hub: their types, the same over HTTP and over a socket.

The words are those of the EmProps page, so that a worker written from it is understood.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

import msgspec
from msgspec import UNSET, Meta, UnsetType

from headrace.core.defaults import MAX_COUNT, MAX_MESSAGE_LINES
from headrace.core.defaults import MAX_LONG_POLL_SECONDS as LONGEST_WAIT
from headrace.core.status import Reason, Status
from headrace.hub.api.vocabulary import Key, Moment, Name, Span, SubmitBody

__all__ = [
    "AcceptJob",
    "CancelJob",
    "ChildSubmitted",
    "ClaimJob",
    "CompleteJob",
    "FailJob",
    "Heartbeat",
    "HeartbeatAcknowledged",
    "ItemsAcknowledged",
    "JobAccepted",
    "JobAssigned",
    "JobAvailable",
    "JobCompleted",
    "JobFailed",
    "JobItems",
    "JobLog",
    "JobReleased",
    "JobSnoozed",
    "JobStarted",
    "JobStep",
    "LogAcknowledged",
    "LogLineBody",
    "NoJob",
    "OfJob",
    "PrepareJob",
    "ProgressAcknowledged",
    "RegisterWorker",
    "ReleaseJob",
    "SnoozeJob",
    "StaleJob",
    "StartJob",
    "StepResult",
    "SubmitChild",
    "UpdateJobProgress",
    "WorkerRegistered",
]

Names = Annotated[tuple[Name, ...], Meta(min_length=1, max_length=100)]
Slots = Annotated[int, Meta(ge=1, le=10_000)]
Load = Annotated[float, Meta(ge=0, le=MAX_COUNT)]
Signed = Annotated[str, Meta(min_length=1, max_length=256)]


class _Said(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A message of a worker. Fields that it does not have are ignored, with a warning in the reply."""


class _Replied(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type"):
    """A reply to a message of a worker."""

    warnings: tuple[str, ...] = ()
    """What was ignored in the message."""


# -- the worker itself


class RegisterWorker(_Said, frozen=True, kw_only=True):
    """Registers a worker with its capabilities."""

    type: Literal["register_worker"] | UnsetType = UNSET
    worker_id: Name
    """Its own name. Its identity in the store is new with each registration."""
    capabilities: dict[str, Any] = {}
    max_concurrent_jobs: Slots = 1
    tasks: Names | UnsetType = UNSET
    """The tasks that it runs. A worker that names none is offered only jobs that require a service."""
    queues: Names | UnsetType = UNSET
    """The queues that it serves; all, if it names none."""
    token: Signed | UnsetType = UNSET
    """Of an earlier registration: the worker goes on with what it holds."""


class ClaimJob(_Said, frozen=True, kw_only=True):
    """Claims a job. A worker that has not registered does so by this."""

    type: Literal["claim_job"] | UnsetType = UNSET
    worker_id: Name
    capabilities: dict[str, Any] | UnsetType = UNSET
    max_concurrent_jobs: Slots | UnsetType = UNSET
    current_load: Load | UnsetType = UNSET
    tasks: Names | UnsetType = UNSET
    queues: Names | UnsetType = UNSET
    request: Key | UnsetType = UNSET
    """A name for this claim: a repeat under the same name gets the same job, as long as that has not been started."""
    wait: Annotated[float, Meta(ge=0, le=LONGEST_WAIT)] = 0.0
    """Seconds to wait for a job."""
    token: Signed | UnsetType = UNSET


class Heartbeat(_Said, frozen=True, kw_only=True):
    """A sign of life."""

    type: Literal["heartbeat"] | UnsetType = UNSET
    worker_id: Name | UnsetType = UNSET
    token: Signed | UnsetType = UNSET
    held: Annotated[tuple[UUID, ...], Meta(max_length=10_000)] | UnsetType = UNSET
    """All jobs that it has; one that two heartbeats omit is given to another worker. Left out: all that it was
    given."""
    load: Load | UnsetType = UNSET
    state: Literal["running", "draining"] | UnsetType = UNSET


# -- one job


class OfJob(_Said, frozen=True, kw_only=True):
    """The job: by its lease, or, over the socket that was given the job, by its id."""

    job_id: Annotated[str, Meta(min_length=1, max_length=64)] | UnsetType = UNSET
    lease: Signed | UnsetType = UNSET
    worker_id: Name | UnsetType = UNSET


class AcceptJob(OfJob, frozen=True, kw_only=True):
    """The worker takes the job."""

    type: Literal["accept_job"] | UnsetType = UNSET


class PrepareJob(OfJob, frozen=True, kw_only=True):
    """The worker prepares for the job, for example loads a model."""

    type: Literal["prepare_job"] | UnsetType = UNSET


class StartJob(OfJob, frozen=True, kw_only=True):
    """The worker begins."""

    type: Literal["start_job"] | UnsetType = UNSET


class UpdateJobProgress(OfJob, frozen=True, kw_only=True):
    """The progress of the job."""

    type: Literal["update_job_progress"] | UnsetType = UNSET
    progress: Annotated[float, Meta(ge=0, le=100)]
    status: Literal["in_progress", "running"] = "in_progress"
    message: str | UnsetType | None = UNSET
    current_step: str | UnsetType | None = UNSET
    estimated_completion: Moment | UnsetType | None = UNSET
    connector_details: dict[str, Any] | UnsetType | None = UNSET
    """Any other details, up to 16 KiB as JSON."""


class LogLineBody(_Said, frozen=True, kw_only=True):
    """One line."""

    message: str
    level: Literal["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"] = "INFO"
    logger: Name = "worker"


class JobLog(OfJob, frozen=True, kw_only=True):
    """Lines of the log of this attempt."""

    type: Literal["job_log"] | UnsetType = UNSET
    first: Annotated[int, Meta(ge=1, le=MAX_COUNT)]
    """The number of the first line, from 1: what was sent before is not kept twice."""
    lines: Annotated[tuple[LogLineBody, ...], Meta(min_length=1, max_length=MAX_MESSAGE_LINES)]


class JobItems(OfJob, frozen=True, kw_only=True):
    """Items of the stream of the job."""

    type: Literal["job_items"] | UnsetType = UNSET
    first: Annotated[int, Meta(ge=1, le=MAX_COUNT)]
    """The number of the first item. Items of earlier attempts are kept if it goes on behind them (``items`` of the
    assignment, plus 1), and replaced if it begins again at 1."""
    items: Annotated[tuple[Any, ...], Meta(min_length=1, max_length=MAX_MESSAGE_LINES)]


class JobStep(OfJob, frozen=True, kw_only=True):
    """A durable step: requested, or, with a result, kept."""

    type: Literal["job_step"] | UnsetType = UNSET
    name: Key
    result: Any | UnsetType = UNSET


class SubmitChild(OfJob, frozen=True, kw_only=True):
    """A job that this one submits."""

    type: Literal["submit_child"] | UnsetType = UNSET
    child: SubmitBody
    number: Annotated[int, Meta(ge=0, le=MAX_COUNT)] = 0
    """Its number among equal children, from 0: a repeat of the same number submits no second child."""


class CompleteJob(OfJob, frozen=True, kw_only=True):
    """The job is done."""

    type: Literal["complete_job"] | UnsetType = UNSET
    result: Any = None
    status: Literal["completed"] = "completed"
    processing_time: Span | UnsetType | None = UNSET
    """Seconds that it took."""


class FailJob(OfJob, frozen=True, kw_only=True):
    """The job did not work."""

    type: Literal["fail_job"] | UnsetType = UNSET
    error: str
    retry: bool = True
    """False: another attempt is not worth making."""
    error_details: dict[str, Any] | UnsetType | None = UNSET
    """``error_type`` is the type of the error, which retry policies go by."""
    processing_time: Span | UnsetType | None = UNSET


class SnoozeJob(OfJob, frozen=True, kw_only=True):
    """The worker gives the job back, to be run later."""

    type: Literal["snooze_job"] | UnsetType = UNSET
    delay: Span


class ReleaseJob(OfJob, frozen=True, kw_only=True):
    """The worker gives the job back."""

    type: Literal["release_job"] | UnsetType = UNSET


# -- what it hears


class WorkerRegistered(_Replied, frozen=True, kw_only=True, tag="worker_registered"):
    """The identity of the worker from now on."""

    worker_id: str
    worker: UUID
    """Its identity in the store, under which people see it."""
    heartbeat_seconds: float
    """Seconds between heartbeats; a worker that is silent for ``lease_seconds`` counts as dead."""
    lease_seconds: float
    token: str
    """Any hub knows the worker by it."""


class JobAssigned(_Replied, frozen=True, kw_only=True, tag="job_assigned"):
    """A job that the worker is offered, and must accept in time."""

    job_id: UUID
    job_type: str
    priority: int
    payload: dict[str, Any]
    requirements: dict[str, Any]
    claim_timeout: int
    """Milliseconds within which it must be accepted."""
    estimated_processing_time: float | None
    """Seconds that it usually takes; null: not known."""
    attempt: int
    """The number of the attempt."""
    lease: str
    """Every message about the job carries it."""
    queue: str
    customer_id: str | None
    timeout: float | None
    """Seconds that the attempt may take; null: no limit."""
    heartbeat: float | None
    """Seconds within which the worker must say something of the job, such as its progress; null: it need not."""
    items: int = 0
    """Items that earlier attempts have left."""
    token: str | None = None
    """The token of the worker, if it registered by this claim."""


class NoJob(_Replied, frozen=True, kw_only=True, tag="no_job"):
    """There is nothing for the worker now."""

    retry_after: float
    """Seconds after which it is worth another try."""
    token: str | None = None


class JobAvailable(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="job_available"):
    """There may be a job for the worker: it should claim."""

    queues: tuple[str, ...]


class JobAccepted(_Replied, frozen=True, kw_only=True, tag="job_accepted"):
    """The worker has the job."""

    job_id: UUID
    start_by: datetime | None
    """Until when it must start, or report that it prepares; null: it has started."""


class JobStarted(_Replied, frozen=True, kw_only=True, tag="job_started"):
    """The start is on record."""

    job_id: UUID
    attempt: int
    timeout_at: datetime | None


class ProgressAcknowledged(_Replied, frozen=True, kw_only=True, tag="progress_acknowledged"):
    """The progress is on record."""

    job_id: UUID
    cancel: bool
    """Whether it must stop."""
    reason: Literal["cancelled", "timeout"] | None


class LogAcknowledged(_Replied, frozen=True, kw_only=True, tag="log_acknowledged"):
    """The lines are kept."""

    job_id: UUID
    next: int
    """The number of the next line."""
    dropped: int
    """How many were not kept: the log of an attempt is full."""


class ItemsAcknowledged(_Replied, frozen=True, kw_only=True, tag="items_acknowledged"):
    """The items are kept."""

    job_id: UUID
    next: int
    """The number of the next item."""


class StepResult(_Replied, frozen=True, kw_only=True, tag="step_result"):
    """The result of a step."""

    job_id: UUID
    name: str
    found: bool
    """Whether it has been done, now or in an earlier attempt."""
    result: Any


class ChildSubmitted(_Replied, frozen=True, kw_only=True, tag="child_submitted"):
    """The child is accepted, now or before."""

    job_id: UUID
    """Of the job that submitted it."""
    child_id: UUID
    status: Status
    duplicate: bool
    """Whether it existed before."""


class JobCompleted(_Replied, frozen=True, kw_only=True, tag="job_completed"):
    """The result is kept."""

    job_id: UUID
    status: Status


class JobFailed(_Replied, frozen=True, kw_only=True, tag="job_failed"):
    """The failure is on record."""

    job_id: UUID
    status: Status
    retry_at: datetime | None
    """When the next attempt is due; null: there will be none."""
    reason: Reason | None
    """Why it failed or was cancelled; null: it has not ended."""


class JobSnoozed(_Replied, frozen=True, kw_only=True, tag="job_snoozed"):
    """The job waits for its time."""

    job_id: UUID
    status: Status
    available_at: datetime | None


class JobReleased(_Replied, frozen=True, kw_only=True, tag="job_released"):
    """The job is queued again."""

    job_id: UUID
    status: Status
    reason: Reason | None
    """Why it was cancelled instead; null: it was not."""


class HeartbeatAcknowledged(_Replied, frozen=True, kw_only=True, tag="heartbeat_acknowledged"):
    """The store knows that the worker lives."""

    next_heartbeat_expected: datetime
    cancel: tuple[UUID, ...]
    """Jobs that it must stop."""
    lost: tuple[UUID, ...]
    """Jobs that it names and that are no longer its own."""
    registered: bool
    """False: it was silent for so long that it counts as dead. It must drop what it has, and register anew."""


class CancelJob(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="cancel_job"):
    """The worker must stop a job, and report how that ended."""

    job_id: UUID
    reason: Literal["cancelled", "timeout", "lost"]


class StaleJob(msgspec.Struct, frozen=True, kw_only=True, tag_field="type", tag="stale_job"):
    """The job is no longer the worker's: it must drop it."""

    job_id: UUID
    detail: str
