"""A request for a page, the content of a page, and the audit of its subject."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, tzinfo
from typing import TYPE_CHECKING, Any, Literal, TypeVar
from urllib.parse import quote, unquote, urlencode
from zoneinfo import ZoneInfo

from starlette.requests import Request
from starlette.responses import Response

from headrace.client.api.filters import Filters
from headrace.client.api.queues import QueueInfo, with_idle
from headrace.core.auth.api_keys import Scope
from headrace.core.hidden_errors import hidden_job
from headrace.core.job import Job
from headrace.core.stats.depth import depth_series
from headrace.core.stats.own_tasks import is_own
from headrace.core.stats.rollup import Step
from headrace.dashboard.access import Viewer
from headrace.dashboard.chart_data import Span
from headrace.errors import JobNotFound, Unreadable

if TYPE_CHECKING:
    from headrace.app import App
    from headrace.dashboard.dashboard import Dashboard
from headrace.core.audit import Audited
from headrace.core.defaults import MAX_AUDIT_ENTRIES

__all__ = ["Missing", "PageRequest", "PageView", "Shown", "address", "audit_of", "audit_of_job"]


T = TypeVar("T")

CHART_WAIT_SECONDS = 0.2
"""Seconds that a page waits for charts of days."""


def address(base: str, path: str, /, **query: Any) -> str:
    """Return an address on this dashboard; values that are None or empty are left out of the query."""
    given = [(name, one) for name, value in query.items() for one in _several(value) if one not in (None, "")]
    return f"{base}{quote(path, safe='/:@')}{'?' if given else ''}{urlencode(given)}"


def _several(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple | set | frozenset) else [value]


class Missing(Exception):
    """Nothing of this name exists, or this viewer may not see it: the response is the same.

    Its text is a kind and a name, as in ``queue mail``.
    """

    @property
    def shown(self) -> Shown:
        """The page that says so, and where to go on."""
        kind, _, name = str(self).partition(" ")
        why, path, way = _REMEDIES.get(kind, ("The address may be mistyped, or from another version.", "/", "Overview"))
        data = {"kind": kind, "name": name, "why": why, "path": path, "way": way}
        return Shown("nothing.html", f"No such {kind}", data, 404, every=0)


_REMEDIES = {
    "job": ("Ended jobs are kept for a while and then pruned.", "/jobs", "All jobs"),
    "queue": ("A queue is there as soon as a job is submitted to it, or the code names it.", "/queues", "All queues"),
    "task": ("A worker records its tasks when it starts; none has recorded this one.", "/tasks", "All tasks"),
    "worker": ("It has stopped, or it died and its jobs went to others.", "/workers", "All workers"),
    "batch": ("A batch is pruned with its last job.", "/batches", "All batches"),
    "schedule": ("It was deleted, or nobody has made it yet.", "/schedules", "All schedules"),
    "webhook": ("It was deleted, or no submit has named it for a long time.", "/webhooks", "All webhooks"),
}
"""By kind: why it may be missing, and the page that has the others."""


class Foreign(Exception):
    """A filter names another customer than the viewer's."""


@dataclass(frozen=True)
class PageRequest:
    """A request of an admitted viewer."""

    dashboard: Dashboard
    request: Request
    viewer: Viewer

    @property
    def app(self) -> App:
        """The App that is shown."""
        return self.dashboard.app

    @property
    def now(self) -> datetime:
        """The current time."""
        return self.app.host.clock.now()

    @property
    def live(self) -> bool:
        """Whether an open page requests its current content."""
        return self.request.headers.get("x-headrace-live") == "1"

    @property
    def base(self) -> str:
        """The prefix of every address here."""
        root: str = self.request.scope.get("root_path", "")
        return root.rstrip("/")

    @property
    def zone(self) -> tzinfo:
        """The zone of the browser, as its script reports it; else UTC."""
        try:
            return ZoneInfo(unquote(self.request.cookies.get("headrace_zone", "UTC")))
        except (ValueError, OSError, KeyError):
            return UTC

    @property
    def theme(self) -> str | None:
        """The theme that the viewer chose; None: that of their system."""
        chosen = self.request.cookies.get("headrace_theme")
        return chosen if chosen in ("light", "dark") else None

    def link(self, path: str, /, **query: Any) -> str:
        """Return an address on this dashboard."""
        return address(self.base, path, **query)

    def may(self, scope: Scope) -> bool:
        """Return whether the viewer may do what needs this scope."""
        return scope in self.viewer.scopes

    def given(self, name: str) -> str | None:
        """Return a parameter of the address; None: it is missing or empty."""
        return self.request.query_params.get(name) or None

    async def shared(self, key: Hashable, ask: Callable[[], Awaitable[T]], seconds: float = 1.0) -> T:
        """Return the result of a read, shared by all requests for it within a moment."""
        return await self.dashboard.shared.get(key, seconds, ask)

    async def soon(self, key: Hashable, ask: Callable[[], Awaitable[T]], seconds: float = 5.0) -> T | None:
        """Return the same, if it comes soon, or as it was before; None: an open page gets it at its next request."""
        return await self.dashboard.shared.soon(key, seconds, ask)

    async def queues(self) -> list[QueueInfo]:
        """Return every queue, idle ones too, with its jobs counted except those that completed or were cancelled."""
        return await self.shared("queues", self._queues)

    async def _queues(self) -> list[QueueInfo]:
        found, tasks, day = await asyncio.gather(
            self.app.queues.list(history=False), self.shared("tasks", self.app.tasks.list, 5.0), self.day()
        )
        # A queue without jobs and settings is known by its tasks, or by what was done in it of late.
        return with_idle(found, {*(one.queue for one in tasks if not is_own(one.name)), *(day.queues if day else ())})

    async def hour(self) -> Span:
        """Return what was finished in the last hour, by minutes."""
        return await self.shared("hour", lambda: self.dashboard.past.span(3600.0, Step.MINUTE), 5.0)

    async def depths(self) -> tuple[list[datetime], dict[str, dict[datetime, float]]]:
        """Return the minutes of the last hour in which the depths of queues were noted, and by queue the depth then."""
        rows = await self.shared("depths", self.app.stats.depths, 5.0)
        notes, found = depth_series(rows, Step.MINUTE)
        return sorted(notes), found

    async def past(self, seconds: float, step: Step) -> Span | None:
        """Return what was finished in so many seconds, by hours or days; None: it is still being summed."""
        past = self.dashboard.past
        return await self.dashboard.shared.soon(
            ("past", seconds), 10.0, lambda: past.span(seconds, step), CHART_WAIT_SECONDS
        )

    async def day(self) -> Span | None:
        """Return what was finished in the last day, by hours; None: it is still being summed."""
        return await self.past(86400.0, Step.HOUR)

    @property
    def hides(self) -> bool:
        """Whether the viewer sees references instead of the texts of errors."""
        return self.viewer.errors == "hidden"

    def seen(self, jobs: Iterable[Job]) -> tuple[Job, ...]:
        """Return jobs as the viewer sees them."""
        return tuple(map(hidden_job, jobs)) if self.hides else tuple(jobs)

    def kept(self, filters: Filters, *, by_id: bool = False) -> Filters:
        """Return the filters, limited to the viewer's customer; ``by_id``: a text is searched in ids only.

        :raises Foreign: they name another customer: an action on the viewer's own jobs was not requested
        """
        own, named = self.viewer.customer, filters.get("customer")
        if self.hides and "text" in filters and not by_id:
            raise Foreign("errors are kept from you, and a text is looked for in them, too")
        if own is None:
            return filters
        if any(name != own for name in ([named] if isinstance(named, str) else named or ())):
            raise Foreign(f"you see the jobs of the customer {own!r} alone")
        return {**filters, "customer": own}

    async def job(self, id: str) -> Job:
        """Return a job that the viewer may see; :raises Missing:"""
        try:
            job = await self.app.jobs.get(id)
        except (JobNotFound, ValueError):
            raise Missing(f"job {id}") from None
        except Unreadable:
            if self.viewer.customer is None:
                raise
            raise Missing(f"job {id}") from None  # its customer cannot be read
        if self.viewer.customer not in (None, job.customer):
            raise Missing(f"job {id}")
        return self.seen([job])[0]


@dataclass(frozen=True)
class Shown:
    """A page: its template, and its data."""

    template: str
    title: str
    data: Mapping[str, Any] = field(default_factory=dict)
    status: int = 200
    every: float = 2.0
    """Seconds after which an open page requests its content again; 0: never."""


Show = Callable[[PageRequest], Awaitable[Shown | Response]]


@dataclass(frozen=True)
class PageView:
    """One page of the dashboard: one row of the table that routes and tests are made from."""

    path: str
    name: str
    show: Show
    section: str
    """The entry of the menu that it belongs to."""
    whose: Literal["customer", "operator"] = "operator"
    """Whether viewers limited to one customer may see it."""
    alike: float = 1.0
    """Seconds for which all open pages get the same content; 0: only concurrent requests share it."""


PAGE_ENTRIES = 20


async def audit_of_job(ask: PageRequest, job: Job) -> list[Audited]:
    """Return the entry about a manual submit of the job, if it was; its other actions are in its history."""
    acts, key = await ask.shared("audit", lambda: ask.app.store.audit(MAX_AUDIT_ENTRIES)), f"task:{job.task}"
    return [one for one in acts if one.key == key and (one.details or {}).get("job") == str(job.id)]


async def audit_of(ask: PageRequest, *keys: str) -> list[Audited]:
    """Return the newest actions on these settings."""
    acts = await ask.shared("audit", lambda: ask.app.store.audit(MAX_AUDIT_ENTRIES))
    return [one for one in acts if one.key in keys][:PAGE_ENTRIES]
