"""The dashboard: jobs, queues, limits, schedules and workers in a browser; a hub or any ASGI app serves it.

Begin with ``dashboard`` (the application) and ``page`` (what a page is made of). Everything it shows and does is a
method of App. May import ``http``, ``app`` and below.
"""

from __future__ import annotations

from headrace.errors import MissingExtra

try:
    import jinja2  # noqa: F401
    import starlette  # noqa: F401
except ModuleNotFoundError as error:
    raise MissingExtra("headrace.dashboard", str(error.name), "hub") from None

from headrace.dashboard.access import Access, Allowed, Viewer
from headrace.dashboard.dashboard import Dashboard, dashboard

__all__ = ["Access", "Allowed", "Dashboard", "Viewer", "dashboard"]
