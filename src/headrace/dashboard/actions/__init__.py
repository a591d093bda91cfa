"""The actions of the pages, as a table with the scope that each needs.

Begin with ``endpoint``, which serves all of them; ``jobs`` acts on jobs, ``settings`` on everything else. May import
``dashboard`` and what that may.
"""

from __future__ import annotations

from headrace.dashboard.actions import jobs, settings
from headrace.dashboard.actions.endpoint import Act

__all__ = ["ACTS"]

ACTS: dict[str, Act] = {**jobs.ACTS, **settings.ACTS}
"""By name."""
