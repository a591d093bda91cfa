"""The table of acts: what can be done from the pages, and the scope that each needs, as the hub has it."""

from __future__ import annotations

from headrace.dashboard import acts_on_jobs, acts_on_settings
from headrace.dashboard.acting import Act

__all__ = ["ACTS"]

ACTS: dict[str, Act] = {**acts_on_jobs.ACTS, **acts_on_settings.ACTS}
"""By name."""
