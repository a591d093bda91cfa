"""The actions of the pages, as a table with the scope that each needs.

Begin with ``endpoint``, which serves all of them; ``jobs`` acts on jobs, ``secrets`` on webhooks and
keys, ``settings`` on everything else. May import
``dashboard`` and what that may.
"""

from __future__ import annotations

from headrace.dashboard.actions import jobs, secrets, settings
from headrace.dashboard.actions.endpoint import Act

__all__ = ["ACTS"]

ACTS: dict[str, Act] = {**jobs.ACTS, **settings.ACTS, **secrets.ACTS}
"""By name."""
