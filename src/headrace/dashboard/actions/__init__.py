"""The table of acts: what can be done from the pages, and the scope that each needs, as the hub has it."""

from __future__ import annotations

from headrace.dashboard.actions import jobs, settings
from headrace.dashboard.actions.endpoint import Act

__all__ = ["ACTS"]

ACTS: dict[str, Act] = {**jobs.ACTS, **settings.ACTS}
"""By name."""
