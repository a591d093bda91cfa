"""The dashboard: all jobs, queues, limits, schedules and workers in a browser; served by the hub, or mounted."""

from __future__ import annotations

from headrace.errors import MissingExtra

try:
    import jinja2  # noqa: F401
    import starlette  # noqa: F401
except ModuleNotFoundError as error:
    raise MissingExtra("headrace.dashboard", str(error.name), "hub") from None

from headrace.dashboard.access import Access, Viewer
from headrace.dashboard.dashboard import Dashboard, dashboard

__all__ = ["Access", "Dashboard", "Viewer", "dashboard"]
