"""Jobs as results of ``django.tasks``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headrace.core.job import Attempt, ErrorInfo, Job
from headrace.core.status import HELD, Status
from headrace.handler import Described

__all__ = ["MARK", "described", "errors_of", "status_of", "workers_of"]

MARK = "django.tasks"
"""What is kept with a job of the task that was enqueued, in its metadata."""


def described(error: BaseException) -> Described:
    """What is kept of an error: where its class is, which Django wants to find again."""
    kind = type(error)
    return Described({"class": f"{kind.__module__}.{kind.__qualname__}"})


def status_of(job: Job) -> str:
    """The status by the name that Django gives it."""
    if job.status is Status.COMPLETED:
        return "SUCCESSFUL"
    if job.ended:
        return "FAILED"
    return "RUNNING" if job.status in HELD else "READY"


def errors_of(job: Job, attempts: Sequence[Attempt]) -> list[Any]:
    """The errors of a job, oldest first; without its attempts, only the last one is known."""
    from django.tasks.base import TaskError

    found = [one.error for one in attempts if one.error is not None] or ([job.error] if job.error else [])
    return [TaskError(exception_class_path=_path(one), traceback=one.traceback or one.message) for one in found]


def _path(error: ErrorInfo) -> str:
    kept = (error.details or {}).get("class")
    return kept if isinstance(kept, str) else f"builtins.{error.type}"


def workers_of(job: Job, attempts: Sequence[Attempt]) -> list[str]:
    """The worker of every attempt, that of the one that runs last."""
    found = [str(one.worker) for one in attempts for _ in range(one.count)]
    return [*found, str(job.worker)] if job.status in HELD else found
