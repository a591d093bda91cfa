"""Jobs that match filters: list them, count them, do an action to each of them."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncGenerator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Unpack, cast
from uuid import UUID

from headrace.client.api.actions import ActionResult, AnyRerun, result_of
from headrace.client.api.filters import Filters, checked_limit, filter_of
from headrace.client.options import JobOptions
from headrace.core.attempt import ErrorInfo
from headrace.core.job import Job
from headrace.core.lifecycle.actions import (
    ACTIONS,
    Action,
    CancelAction,
    DiscardAction,
    MoveAction,
    PostponeAction,
    ReprioritiseAction,
    ResolveAction,
    RetryAction,
    RunNowAction,
)
from headrace.core.lifecycle.transitions import TRANSITIONS
from headrace.core.priority import PriorityBand
from headrace.core.query import Filter, Page
from headrace.core.status import Verb
from headrace.core.times import Seconds
from headrace.core.validation import whole
from headrace.errors import ConfigError, shown

if TYPE_CHECKING:
    from headrace.app import App

__all__ = ["JobSet"]

ID_PAGE_JOBS = 200
"""So many jobs are read at a time to find those that match; of each only the id is kept."""

Results = AsyncGenerator[ActionResult, None]


class JobSet:
    """The jobs that match: ``async for one in app.jobs.where(task="resize").cancel(): print(one.id, one.answer)``.

    Actions begin with the oldest. Without a ``status`` they are tried on the jobs that they can begin from. Each job is
    judged by itself, and acted on only if it matches still: it may have moved on. ``by``: who does it, for the audit.
    """

    __slots__ = ("_app", "_filters")

    def __init__(self, app: App, filters: Filters) -> None:
        self._app, self._filters = app, filters

    async def list(self, *, limit: int = 50, cursor: str | None = None) -> Page[Job]:
        """The jobs, newest first, a page at a time."""
        session, filter = self._app.session, filter_of(self._filters)
        return await session.engine.records.find(filter, session.host.clock.now(), checked_limit(limit), cursor)

    async def count(self, *, most: int | None = None) -> int:
        """How many there are. It reads all of them; ``most``: it stops at this number."""
        if most is not None:
            whole(most, "most", 1)
        session = self._app.session
        return await session.engine.records.count_matching(filter_of(self._filters), session.host.clock.now(), most)

    async def preview(self, action: Verb | str) -> int:
        """How many jobs this action would be tried on: ``await app.jobs.where(task="resize").preview("retry")``."""
        session = self._app.session
        return await session.engine.records.count_matching(self._filter(action), session.host.clock.now())

    def cancel(self, *, by: str | None = None) -> Results:
        """End them, or request that their workers stop them."""
        return self.act(CancelAction(), by=by)

    def retry(self, *, delay: Seconds = 0.0, by: str | None = None) -> Results:
        """Retry those that failed or were cancelled, with a new budget; ``delay``: not before so long from now."""
        return self.act(RetryAction(delay=cast(Any, delay)), by=by)

    def rerun(
        self, *, payload: Mapping[str, Any] | None = None, by: str | None = None, **options: Unpack[JobOptions]
    ) -> Results:
        """Do their work again, as new jobs."""
        return self.act(AnyRerun(payload=cast(Any, payload), given=options), by=by)

    def discard(self, *, by: str | None = None) -> Results:
        """End those that completed or failed as ``cancelled (discarded)``."""
        return self.act(DiscardAction(), by=by)

    def resolve(self, *, result: Any = None, error: str | ErrorInfo | None = None, by: str | None = None) -> Results:
        """Set their outcome by hand: ``error`` fails them, else ``result`` completes them."""
        return self.act(ResolveAction(result=result, error=cast(Any, error)), by=by)

    def run_now(self, *, by: str | None = None) -> Results:
        """Make them ``queued`` at once."""
        return self.act(RunNowAction(), by=by)

    def postpone(self, until: datetime | Seconds, *, by: str | None = None) -> Results:
        """Let them wait for another time: a moment, or so long from now."""
        return self.act(PostponeAction(until=cast(Any, until)), by=by)

    def move(self, queue: str, *, by: str | None = None) -> Results:
        """Move them to another queue, with their arrival."""
        return self.act(MoveAction(queue=queue), by=by)

    def reprioritise(self, priority: int | PriorityBand, *, by: str | None = None) -> Results:
        """Give them another priority, 0 to 100 or a name."""
        return self.act(ReprioritiseAction(priority=priority), by=by)

    async def act(self, action: Action, *, by: str | None = None) -> Results:
        """Do an action of the table to each of them, one after the other."""
        filter = self._filter(action.verb)
        for id in await self._ids(filter):
            yield await result_of(self._app, UUID(bytes=id), action, by, filter)

    async def _ids(self, filter: Filter) -> Sequence[bytes]:
        """The ids, the oldest first: a job that waits for others is retried after them, or it would be ended for their
        sake once more."""
        records, now = self._app.session.engine.records, self._app.session.host.clock.now()
        found, cursor = deque[bytes](), None
        while True:
            page = await records.find(filter, now, ID_PAGE_JOBS, cursor)
            found.extendleft(job.id.bytes for job in page.items)
            cursor = page.cursor
            if cursor is None:
                return found

    def _filter(self, action: Verb | str) -> Filter:
        """The jobs that an action is tried on; :raises ConfigError: there is no such action, or no filter"""
        if action not in ACTIONS:
            raise ConfigError(f"{shown(action)} is nothing that can be done to jobs: {', '.join(ACTIONS)} are")
        if not self._filters:
            raise ConfigError('an action on many jobs needs a filter, as in where(status="failed", task="resize")')
        given: dict[str, Any] = {name: value for name, value in self._filters.items() if value is not None}
        return filter_of(cast(Filters, {"status": sorted(TRANSITIONS[Verb(action)])} | given))
