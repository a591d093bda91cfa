"""Acts on all jobs that match a filter: a dry run that counts them, then an answer for each."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from datetime import datetime
from typing import Any, Literal, Unpack, cast
from uuid import UUID

import msgspec

from headrace.client.acting import Acting, only_if
from headrace.client.finding import Filters, Finding, filter_of
from headrace.core.job import ErrorInfo, Job
from headrace.core.query import Filter
from headrace.core.record import Record
from headrace.core.retry import Seconds
from headrace.core.status import Verb
from headrace.core.table import TABLE
from headrace.errors import (
    ConfigError,
    Duplicate,
    HeadraceError,
    InvalidPayload,
    InvalidResult,
    JobNotFound,
    TooManyProfiles,
    TransitionRefused,
    shown,
)
from headrace.options import JobOptions

__all__ = ["ACTS", "Acted", "ActingOnMany", "Do", "act_on_all", "answered"]

PAGE = 200
"""So many jobs are read at a time while those that match are looked for; of each only the id is kept."""

ACTS = (
    Verb.CANCEL,
    Verb.RETRY,
    Verb.RERUN,
    Verb.DISCARD,
    Verb.POSTPONE,
    Verb.RUN_NOW,
    Verb.MOVE,
    Verb.REPRIORITISE,
    Verb.RESOLVE,
)
"""What can be done to many jobs."""

Do = Callable[[UUID], Awaitable[Job]]
"""Does it to one job."""


class Acted(msgspec.Struct, Record, frozen=True, kw_only=True):
    """What came of an act on one job."""

    id: UUID
    answer: Literal["done", "requested", "refused", "not_found"]
    """``requested``: a worker has the job, and is asked to stop it."""
    job: Job | None = None
    """As it is now, of a rerun the new one; None if there is none."""
    error: str | None = None
    """Of a refusal, the name of its error, as in ``headrace.errors``."""
    message: str | None = None


class ActingOnMany(Acting, Finding):
    """Of the App: acts on many jobs.

    ``filter`` is a mapping with the filters of ``jobs``. Without a ``status`` it is those that the act can begin from.
    The oldest are first. Each job is judged by itself, and acted on only if it matches still: it may have moved on.
    """

    async def dry_run(self, act: Verb | str, filter: Filters) -> int:
        """How many jobs this act would be tried on: ``await app.dry_run("retry", {"task": "resize"})``."""
        return await self.session.engine.records.count_matching(_filter(act, filter), self.session.host.clock.now())

    def cancel_all(self, filter: Filters, *, by: str | None = None) -> AsyncGenerator[Acted, None]:
        """Cancel all that match: ``async for one in app.cancel_all({"task": "resize"}): print(one.id, one.answer)``."""
        return act_on_all(self, Verb.CANCEL, filter, lambda id: self.cancel(id, by=by))

    def retry_all(self, filter: Filters, *, delay: Seconds = 0.0, by: str | None = None) -> AsyncGenerator[Acted, None]:
        """Retry all that match."""
        return act_on_all(self, Verb.RETRY, filter, lambda id: self.retry(id, delay=delay, by=by))

    def rerun_all(
        self,
        filter: Filters,
        *,
        payload: Mapping[str, Any] | None = None,
        by: str | None = None,
        **options: Unpack[JobOptions],
    ) -> AsyncGenerator[Acted, None]:
        """Do the work of all that match again, as new jobs."""

        async def do(id: UUID) -> Job:
            handle = await self.rerun(id, payload=payload, by=by, **options)
            return handle.last or await handle.refresh()

        return act_on_all(self, Verb.RERUN, filter, do)

    def discard_all(self, filter: Filters, *, by: str | None = None) -> AsyncGenerator[Acted, None]:
        """Discard all that match."""
        return act_on_all(self, Verb.DISCARD, filter, lambda id: self.discard(id, by=by))

    def postpone_all(
        self, filter: Filters, until: datetime | Seconds, *, by: str | None = None
    ) -> AsyncGenerator[Acted, None]:
        """Let all that match wait for another time."""
        return act_on_all(self, Verb.POSTPONE, filter, lambda id: self.postpone(id, until, by=by))

    def run_now_all(self, filter: Filters, *, by: str | None = None) -> AsyncGenerator[Acted, None]:
        """Put all that match in line at once."""
        return act_on_all(self, Verb.RUN_NOW, filter, lambda id: self.run_now(id, by=by))

    def move_all(self, filter: Filters, queue: str, *, by: str | None = None) -> AsyncGenerator[Acted, None]:
        """Move all that match to another queue."""
        return act_on_all(self, Verb.MOVE, filter, lambda id: self.move(id, queue, by=by))

    def reprioritise_all(self, filter: Filters, priority: int, *, by: str | None = None) -> AsyncGenerator[Acted, None]:
        """Give all that match another priority."""
        return act_on_all(self, Verb.REPRIORITISE, filter, lambda id: self.reprioritise(id, priority, by=by))

    def resolve_all(
        self,
        filter: Filters,
        *,
        result: Any = None,
        error: str | ErrorInfo | None = None,
        by: str | None = None,
    ) -> AsyncGenerator[Acted, None]:
        """Set the outcome of all that match."""
        return act_on_all(self, Verb.RESOLVE, filter, lambda id: self.resolve(id, result=result, error=error, by=by))


async def act_on_all(app: ActingOnMany, verb: Verb, filter: Filters, do: Do) -> AsyncGenerator[Acted, None]:
    """Do it to all that match, one after the other; what came of each."""
    checked = _filter(verb, filter)
    for id in await _found(app, checked):
        with only_if(verb, checked):
            acted = await answered(app, verb, UUID(bytes=id), do)
        yield acted


async def answered(app: ActingOnMany, verb: Verb, id: UUID, do: Do) -> Acted:
    """Act on one job; what came of it, whatever the job is."""
    try:
        job = await do(id)
    except JobNotFound as error:
        return Acted(id=id, answer="not_found", error="JobNotFound", message=str(error))
    except (TransitionRefused, Duplicate) as error:
        # A key held by another job is a refusal too: the message names the holder, the job is unchanged.
        job = error.job if error.job.id == id else await cast(Any, app).get(id)
        return _refused(job, id, error)
    except (InvalidPayload, InvalidResult, TooManyProfiles) as error:
        # It does not fit the task of this job, or its customer, but perhaps those of another.
        return _refused(await cast(Any, app).get(id), id, error)
    asked = verb is Verb.CANCEL and not job.ended
    return Acted(id=id, answer="requested" if asked else "done", job=job)


def _refused(job: Job, id: UUID, error: HeadraceError) -> Acted:
    return Acted(id=id, answer="refused", job=job, error=type(error).__name__, message=str(error))


async def _found(app: ActingOnMany, filter: Filter) -> list[bytes]:
    """The ids of those that match, the oldest first: a job that waits for others is retried after them, or it would be
    ended for their sake once more."""
    records, now = app.session.engine.records, app.session.host.clock.now()
    found, cursor = list[bytes](), None
    while True:
        page = await records.find(filter, now, PAGE, cursor)
        found += [job.id.bytes for job in page.items]
        cursor = page.cursor
        if cursor is None:
            found.reverse()
            return found


def _filter(act: Verb | str, filter: Filters) -> Filter:
    """The jobs that an act is tried on.

    :raises ConfigError: there is no such act, or no filter
    """
    if act not in ACTS:
        raise ConfigError(f"{shown(act)} is nothing that can be done to jobs: {', '.join(ACTS)} are")
    if not isinstance(filter, Mapping) or not filter:
        raise ConfigError('an act on many jobs needs a filter, as in {"status": "failed", "task": "resize"}')
    given: dict[str, Any] = {name: value for name, value in filter.items() if value is not None}
    return filter_of(cast(Filters, {"status": sorted(TABLE[Verb(act)])} | given))
