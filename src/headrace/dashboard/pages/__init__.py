"""The pages of the dashboard: the table that routes and tests are made from."""

from __future__ import annotations

from headrace.dashboard.page import PageView
from headrace.dashboard.pages import (
    batches,
    dead_letters,
    job,
    jobs,
    limits,
    overview,
    queues,
    schedules,
    search,
    tasks,
    workers,
)

__all__ = ["VIEWS"]

VIEWS: tuple[PageView, ...] = (
    *overview.VIEWS,
    *jobs.VIEWS,
    *job.VIEWS,
    *dead_letters.VIEWS,
    *queues.VIEWS,
    *limits.VIEWS,
    *tasks.VIEWS,
    *schedules.VIEWS,
    *batches.VIEWS,
    *workers.VIEWS,
    *search.VIEWS,
)
"""Every page."""
