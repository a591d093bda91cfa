"""The pages of the dashboard: the table that routes and tests are made from."""

from __future__ import annotations

from headrace.dashboard.asking import View
from headrace.dashboard.views import batches, dead, find, job, jobs, limits, overview, queues, schedules, tasks, workers

__all__ = ["VIEWS"]

VIEWS: tuple[View, ...] = (
    *overview.VIEWS,
    *jobs.VIEWS,
    *job.VIEWS,
    *dead.VIEWS,
    *queues.VIEWS,
    *limits.VIEWS,
    *tasks.VIEWS,
    *schedules.VIEWS,
    *batches.VIEWS,
    *workers.VIEWS,
    *find.VIEWS,
)
"""Every page."""
