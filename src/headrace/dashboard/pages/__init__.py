"""The pages of the dashboard, a module per noun; routes and tests are made from the table here.

Begin with ``queues``, which is short. May import ``dashboard`` and what that may.
"""

from __future__ import annotations

from headrace.dashboard.page import PageView
from headrace.dashboard.pages import (
    audit,
    batches,
    dead_letters,
    errors,
    job,
    jobs,
    keys,
    limits,
    overview,
    queues,
    schedules,
    search,
    tasks,
    webhooks,
    workers,
)

__all__ = ["VIEWS"]

VIEWS: tuple[PageView, ...] = (
    *overview.VIEWS,
    *jobs.VIEWS,
    *job.VIEWS,
    *dead_letters.VIEWS,
    *errors.VIEWS,
    *queues.VIEWS,
    *limits.VIEWS,
    *tasks.VIEWS,
    *schedules.VIEWS,
    *batches.VIEWS,
    *workers.VIEWS,
    *webhooks.VIEWS,
    *keys.VIEWS,
    *audit.VIEWS,
    *search.VIEWS,
)
"""Every page."""
