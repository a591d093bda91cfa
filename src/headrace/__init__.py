"""A durable job system: one lifecycle, any engine."""

from headrace.app import App
from headrace.core.job import Job
from headrace.core.retry import Retry
from headrace.core.schedule import Cron, Every
from headrace.core.status import Status
from headrace.draft import Draft
from headrace.errors import (
    Duplicate,
    GiveUp,
    HeadraceError,
    InvalidPayload,
    JobCancelled,
    JobFailed,
    ResultTimeout,
    RetryLater,
    Snooze,
)
from headrace.handle import JobHandle
from headrace.options import JobOptions
from headrace.task import Task
from headrace.tasks import Tasks
from headrace.worker.context import Context

__all__ = [
    "App",
    "Context",
    "Cron",
    "Draft",
    "Duplicate",
    "Every",
    "GiveUp",
    "HeadraceError",
    "InvalidPayload",
    "Job",
    "JobCancelled",
    "JobFailed",
    "JobHandle",
    "JobOptions",
    "ResultTimeout",
    "Retry",
    "RetryLater",
    "Snooze",
    "Status",
    "Task",
    "Tasks",
]
