"""What can be done from the pages: the table of actions, each with the scope that it needs.

Begin with ``endpoint``, which serves all of them; ``jobs`` acts on jobs, ``settings`` on everything else. May import
``dashboard`` and what that may.
"""

from __future__ import annotations

from headrace.dashboard.actions import jobs, settings
from headrace.dashboard.actions.endpoint import Act

__all__ = ["ACTS"]

ACTS: dict[str, Act] = {**jobs.ACTS, **settings.ACTS}
"""By name."""
