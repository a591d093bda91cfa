"""A durable job system: one lifecycle, any engine.

This module names what users import, and loads each name when it is used. Begin with ``app``. ``core`` decides,
``engines`` store, ``worker`` runs; ``docs/architecture.md`` says how they work together.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headrace.app import App
    from headrace.client.draft import Draft
    from headrace.client.handle import JobHandle
    from headrace.client.options import JobOptions
    from headrace.client.task import Task
    from headrace.client.task_registry import Tasks
    from headrace.core.job import Job
    from headrace.core.lifecycle.retry import Retry
    from headrace.core.limits.rate import Rate
    from headrace.core.schedule.rules import Continuous, Cron, Every
    from headrace.core.status import Status
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
    from headrace.runtime.watch.stream import Stream
    from headrace.worker.execution.context import Context

__all__ = [
    "App",
    "Context",
    "Continuous",
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
    "Rate",
    "ResultTimeout",
    "Retry",
    "RetryLater",
    "Snooze",
    "Status",
    "Stream",
    "Task",
    "Tasks",
]

_ELSEWHERE = {
    "App": "app",
    "Context": "worker.execution.context",
    "Continuous": "core.schedule.rules",
    "Cron": "core.schedule.rules",
    "Draft": "client.draft",
    "Every": "core.schedule.rules",
    "Job": "core.job",
    "JobHandle": "client.handle",
    "JobOptions": "client.options",
    "Rate": "core.limits.rate",
    "Retry": "core.lifecycle.retry",
    "Status": "core.status",
    "Stream": "runtime.watch.stream",
    "Task": "client.task",
    "Tasks": "client.task_registry",
}
"""Where an export lives, if not among the errors."""


if not TYPE_CHECKING:  # to a checker a module with __getattr__ has every name, also those that are not there

    def __getattr__(name: str) -> object:
        # Importing any part of headrace imports this module: eager exports would make `headrace --help` and every child
        # process of a worker pay for all of it.
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        found = getattr(import_module(f"{__name__}.{_ELSEWHERE.get(name, 'errors')}"), name)
        globals()[name] = found
        return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
