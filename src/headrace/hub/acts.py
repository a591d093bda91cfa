"""The acts on jobs that can be asked for: what each needs to know, and how it is done to one job and to many."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, cast

import msgspec
from msgspec import UNSET, Meta, UnsetType

from headrace.client.acting_on_many import Acted
from headrace.client.finding import Filters
from headrace.core.bounds import NAME
from headrace.core.job import ErrorInfo, Job
from headrace.core.status import Verb
from headrace.errors import LONGEST
from headrace.hub.documents import job_view
from headrace.hub.operation import Answer, Ask
from headrace.hub.problems import Fault, Problem
from headrace.hub.scoping import customer_of, location_of, may_submit

if TYPE_CHECKING:
    from headrace.app import App

__all__ = ["ACTS", "Act"]

Name = Annotated[str, Meta(min_length=1, max_length=NAME)]
Seconds = Annotated[float, Meta(ge=0, le=LONGEST)]
Moment = Annotated[datetime, Meta(tz=True)]
Priority = Annotated[int, Meta(ge=0, le=100)]


class Act(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Something that can be done to jobs, with what it needs to know."""

    verb: ClassVar[Verb]
    revives: ClassVar[bool] = False
    """Whether more jobs are live when it is done."""
    makes: ClassVar[bool] = False
    """Whether it makes jobs, as submits do: it counts as one."""

    async def on_one(self, ask: Ask, job: Job) -> Answer:
        """Do it to one job."""
        raise NotImplementedError

    def on_all(self, app: App, filter: Filters, by: str) -> AsyncGenerator[Acted, None]:
        """Do it to all that match."""
        raise NotImplementedError

    def check(self, ask: Ask) -> None:
        """Whether the caller may ask for it, whatever the job; :raises Problem: 403"""

    async def kept(self, ask: Ask, filter: Filters) -> Filters:
        """The filter of an act on many, kept to what the caller may do it to; :raises Problem: 403"""
        return filter


class Cancel(Act, frozen=True):
    """End jobs; the worker that has one is asked to stop it."""

    verb: ClassVar[Verb] = Verb.CANCEL

    async def on_one(self, ask: Ask, job: Job) -> Answer:
        job = await ask.hub.app.cancel(job.id, by=ask.caller.name)
        return Answer(job_view(job), 200 if job.ended else 202)

    def on_all(self, app: App, filter: Filters, by: str) -> AsyncGenerator[Acted, None]:
        return app.cancel_all(filter, by=by)


class Retry(Act, frozen=True):
    """Retry failed or cancelled jobs, under their own ids and with a new budget."""

    verb: ClassVar[Verb] = Verb.RETRY
    revives: ClassVar[bool] = True

    delay: Seconds = 0.0
    """Not before so many seconds from now."""

    async def on_one(self, ask: Ask, job: Job) -> Answer:
        await ask.hub.caps.live(ask.caller, task=job.task)
        await ask.hub.caps.told(ask.caller, job.task, job.queue, job.spec.webhook or ())
        return Answer(job_view(await ask.hub.app.retry(job.id, delay=self.delay, by=ask.caller.name)))

    def on_all(self, app: App, filter: Filters, by: str) -> AsyncGenerator[Acted, None]:
        return app.retry_all(filter, delay=self.delay, by=by)


class Rerun(Act, frozen=True):
    """Do the work of ended jobs again as new ones, with the same payload and options, or with others."""

    verb: ClassVar[Verb] = Verb.RERUN
    revives: ClassVar[bool] = True
    makes: ClassVar[bool] = True

    payload: dict[str, Any] | None = None
    """All arguments by name, in place of the old ones."""
    queue: Name | UnsetType = UNSET
    priority: Priority | UnsetType = UNSET
    delay: Seconds | UnsetType = UNSET
    not_before: Moment | UnsetType = UNSET
    not_after: Moment | UnsetType = UNSET
    timeout: Annotated[float, Meta(gt=0, le=LONGEST)] | UnsetType | None = UNSET
    tags: tuple[str, ...] | UnsetType = UNSET
    metadata: dict[str, Any] | UnsetType = UNSET
    requires: dict[str, Any] | UnsetType = UNSET
    dedup: str | UnsetType | None = UNSET
    concurrency_key: str | UnsetType | None = UNSET
    customer: str | UnsetType = UNSET

    @property
    def options(self) -> dict[str, Any]:
        """Those that are to be others."""
        values = {name: getattr(self, name) for name in Rerun.__struct_fields__ if name != "payload"}
        return {name: value for name, value in values.items() if value is not UNSET}

    async def on_one(self, ask: Ask, job: Job) -> Answer:
        if self.payload is not None or self.options:
            _not_ours("task", job.task)
        may_submit(ask, job.task, job.queue if self.queue is UNSET else self.queue)
        priority = job.priority if self.priority is UNSET else self.priority
        await ask.hub.caps.admit(ask.caller, job.task, priority)
        queue = job.queue if self.queue is UNSET else self.queue
        await ask.hub.caps.told(ask.caller, job.task, queue, job.spec.webhook or ())
        again = await ask.hub.app.rerun(job.id, payload=self.payload, by=ask.caller.name, **self.options)
        made = again.last or await again.refresh()
        return Answer(job_view(made), 200 if again.duplicate else 201, location_of(ask, made))

    def on_all(self, app: App, filter: Filters, by: str) -> AsyncGenerator[Acted, None]:
        return app.rerun_all(filter, payload=self.payload, by=by, **self.options)

    def check(self, ask: Ask) -> None:
        if self.customer is not UNSET:
            customer_of(ask, self.customer)
        if self.queue is not UNSET:
            _not_ours("queue", self.queue)
            may_submit(ask, None, self.queue)
        if self.priority is not UNSET:
            ask.hub.caps.urgent(ask.caller, self.priority)

    async def kept(self, ask: Ask, filter: Filters) -> Filters:
        for field, bound in (("task", ask.caller.tasks), ("queue", ask.caller.queues if self.queue is UNSET else None)):
            named = _names(filter.get(field))
            if bound is not None and not named <= bound:
                raise _forbidden(field, f"this key may use the {field}s {', '.join(sorted(bound))} alone")
            if bound is not None and not named:
                filter = cast(Filters, {**filter, field: sorted(bound)})
        if self.payload is not None or self.requires is not UNSET:
            tasks = _names(filter.get("task"))
            if not tasks:
                message = "a payload and requirements are those of a task: name the task"
                raise Problem(400, "malformed", "The request cannot be understood", message)
            for task in tasks:
                _not_ours("task", task)
        return filter


class Discard(Act, frozen=True):
    """End completed or failed jobs as cancelled (discarded)."""

    verb: ClassVar[Verb] = Verb.DISCARD

    async def on_one(self, ask: Ask, job: Job) -> Answer:
        return Answer(job_view(await ask.hub.app.discard(job.id, by=ask.caller.name)))

    def on_all(self, app: App, filter: Filters, by: str) -> AsyncGenerator[Acted, None]:
        return app.discard_all(filter, by=by)


class Error(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What went wrong."""

    type: str
    message: str
    traceback: str | None = None
    details: dict[str, Any] | None = None


class Resolve(Act, frozen=True):
    """Set the outcome of jobs by hand: ``error`` fails them, else ``result`` completes them."""

    verb: ClassVar[Verb] = Verb.RESOLVE

    result: Any = None
    error: str | Error | None = None

    @property
    def outcome(self) -> dict[str, Any]:
        """As an App takes it."""
        error = self.error
        told = ErrorInfo(**msgspec.structs.asdict(error)) if isinstance(error, Error) else error
        return {"result": self.result, "error": told}

    async def on_one(self, ask: Ask, job: Job) -> Answer:
        with ask.hub.app.lanes.load.taking(len(msgspec.json.encode(self.result))):  # as the result of a worker
            return Answer(job_view(await ask.hub.app.resolve(job.id, by=ask.caller.name, **self.outcome)))

    def on_all(self, app: App, filter: Filters, by: str) -> AsyncGenerator[Acted, None]:
        return app.resolve_all(filter, by=by, **self.outcome)


class RunNow(Act, frozen=True):
    """Put scheduled or retrying jobs in line at once."""

    verb: ClassVar[Verb] = Verb.RUN_NOW

    async def on_one(self, ask: Ask, job: Job) -> Answer:
        return Answer(job_view(await ask.hub.app.run_now(job.id, by=ask.caller.name)))

    def on_all(self, app: App, filter: Filters, by: str) -> AsyncGenerator[Acted, None]:
        return app.run_now_all(filter, by=by)


class Postpone(Act, frozen=True):
    """Let jobs wait for another time."""

    verb: ClassVar[Verb] = Verb.POSTPONE

    until: Moment | Seconds
    """A moment, or so many seconds from now."""

    async def on_one(self, ask: Ask, job: Job) -> Answer:
        return Answer(job_view(await ask.hub.app.postpone(job.id, self.until, by=ask.caller.name)))

    def on_all(self, app: App, filter: Filters, by: str) -> AsyncGenerator[Acted, None]:
        return app.postpone_all(filter, self.until, by=by)


class Move(Act, frozen=True):
    """Move jobs that no worker has to another queue, with their arrival."""

    verb: ClassVar[Verb] = Verb.MOVE

    queue: Name

    async def on_one(self, ask: Ask, job: Job) -> Answer:
        return Answer(job_view(await ask.hub.app.move(job.id, self.queue, by=ask.caller.name)))

    def on_all(self, app: App, filter: Filters, by: str) -> AsyncGenerator[Acted, None]:
        return app.move_all(filter, self.queue, by=by)

    def check(self, ask: Ask) -> None:
        _not_ours("queue", self.queue)
        may_submit(ask, None, self.queue)


class Reprioritise(Act, frozen=True):
    """Give jobs that no worker has another priority."""

    verb: ClassVar[Verb] = Verb.REPRIORITISE

    priority: Priority

    async def on_one(self, ask: Ask, job: Job) -> Answer:
        return Answer(job_view(await ask.hub.app.reprioritise(job.id, self.priority, by=ask.caller.name)))

    def on_all(self, app: App, filter: Filters, by: str) -> AsyncGenerator[Acted, None]:
        return app.reprioritise_all(filter, self.priority, by=by)

    def check(self, ask: Ask) -> None:
        ask.hub.caps.urgent(ask.caller, self.priority)


def _names(given: Any) -> frozenset[str]:
    return frozenset([given] if isinstance(given, str) else given or ())


def _not_ours(field: str, name: str) -> None:
    """Refuse what only headrace itself may make: nobody forges a delivery."""
    if name.startswith("headrace."):
        raise _forbidden(field, f"the {field} {name!r} is headrace's own")


def _forbidden(field: str, message: str) -> Problem:
    return Problem(403, "forbidden", "This is not for this key", message, faults=[Fault(field, message)])


ACTS: dict[Verb, type[Act]] = {
    kind.verb: kind for kind in (Cancel, Retry, Rerun, Discard, Resolve, RunNow, Postpone, Move, Reprioritise)
}
