"""Operations that act on one job or on all that match a filter: the body of each action, and what a key may do."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Union, cast
from uuid import UUID

import msgspec
from msgspec import UNSET, Meta, UnsetType
from starlette.responses import Response

from headrace.client.api.actions import ActionResult
from headrace.client.api.filters import Filters
from headrace.core.attempt import ErrorInfo
from headrace.core.defaults import MAX_ACTION_VERDICTS, MAX_NAME_CHARACTERS
from headrace.core.job import Job
from headrace.core.status import Status, Verb
from headrace.errors import MAX_DURATION_SECONDS
from headrace.http.problems import Fault, Problem, ProblemDetails
from headrace.hub.api.documents import ID, JOB, PATH, JobView, job_view
from headrace.hub.api.filters import JobFilters, filters_in
from headrace.hub.api.jobs import JobCount
from headrace.hub.api.ndjson import lines_response, wants_lines
from headrace.hub.auth.customers import customer_of, job_of, location_of, may_submit
from headrace.hub.live.connections import REVOKED
from headrace.hub.server.operation import Operation, OperationReply, OperationRequest
from headrace.hub.server.problems import FAULT, problem_of

if TYPE_CHECKING:
    from headrace.app import App

__all__ = ["ACTS", "OPERATIONS", "Act"]


Name = Annotated[str, Meta(min_length=1, max_length=MAX_NAME_CHARACTERS)]
Seconds = Annotated[float, Meta(ge=0, le=MAX_DURATION_SECONDS)]
Moment = Annotated[datetime, Meta(tz=True)]
Priority = Annotated[int, Meta(ge=0, le=100)]


class Act(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Something that can be done to jobs, with what it needs to know."""

    verb: ClassVar[Verb]
    revives: ClassVar[bool] = False
    """Whether more jobs are live when it is done."""
    makes: ClassVar[bool] = False
    """Whether it makes jobs, as submits do: it counts as one."""

    async def on_one(self, ask: OperationRequest, job: Job) -> OperationReply:
        """Do it to one job."""
        raise NotImplementedError

    def on_all(self, app: App, filter: Filters, by: str) -> AsyncGenerator[ActionResult, None]:
        """Do it to all that match."""
        raise NotImplementedError

    def check(self, ask: OperationRequest) -> None:
        """Whether the caller may ask for it, whatever the job; :raises Problem: 403"""

    async def kept(self, ask: OperationRequest, filter: Filters) -> Filters:
        """The filter of an act on many, kept to what the caller may do it to; :raises Problem: 403"""
        return filter


class CancelAction(Act, frozen=True):
    """End jobs; the worker that has one is asked to stop it."""

    verb: ClassVar[Verb] = Verb.CANCEL

    async def on_one(self, ask: OperationRequest, job: Job) -> OperationReply:
        job = await ask.hub.app.cancel(job.id, by=ask.caller.name)
        return OperationReply(job_view(job), 200 if job.ended else 202)

    def on_all(self, app: App, filter: Filters, by: str) -> AsyncGenerator[ActionResult, None]:
        return app.cancel_all(filter, by=by)


class RetryAction(Act, frozen=True):
    """Retry failed or cancelled jobs, under their own ids and with a new budget."""

    verb: ClassVar[Verb] = Verb.RETRY
    revives: ClassVar[bool] = True

    delay: Seconds = 0.0
    """Not before so many seconds from now."""

    async def on_one(self, ask: OperationRequest, job: Job) -> OperationReply:
        await ask.hub.caps.live(ask.caller, task=job.task)
        await ask.hub.caps.told(ask.caller, job.task, job.queue, job.spec.webhook or ())
        return OperationReply(job_view(await ask.hub.app.retry(job.id, delay=self.delay, by=ask.caller.name)))

    def on_all(self, app: App, filter: Filters, by: str) -> AsyncGenerator[ActionResult, None]:
        return app.retry_all(filter, delay=self.delay, by=by)


class RerunAction(Act, frozen=True):
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
    timeout: Annotated[float, Meta(gt=0, le=MAX_DURATION_SECONDS)] | UnsetType | None = UNSET
    tags: tuple[str, ...] | UnsetType = UNSET
    metadata: dict[str, Any] | UnsetType = UNSET
    requires: dict[str, Any] | UnsetType = UNSET
    dedup: str | UnsetType | None = UNSET
    concurrency_key: str | UnsetType | None = UNSET
    customer: str | UnsetType = UNSET

    @property
    def options(self) -> dict[str, Any]:
        """Those that are to be others."""
        values = {name: getattr(self, name) for name in RerunAction.__struct_fields__ if name != "payload"}
        return {name: value for name, value in values.items() if value is not UNSET}

    async def on_one(self, ask: OperationRequest, job: Job) -> OperationReply:
        if self.payload is not None or self.options:
            _not_ours("task", job.task)
        may_submit(ask, job.task, job.queue if self.queue is UNSET else self.queue)
        priority = job.priority if self.priority is UNSET else self.priority
        await ask.hub.caps.admit(ask.caller, job.task, priority)
        queue = job.queue if self.queue is UNSET else self.queue
        await ask.hub.caps.told(ask.caller, job.task, queue, job.spec.webhook or ())
        again = await ask.hub.app.rerun(job.id, payload=self.payload, by=ask.caller.name, **self.options)
        made = again.last or await again.refresh()
        return OperationReply(job_view(made), 200 if again.duplicate else 201, location_of(ask, made))

    def on_all(self, app: App, filter: Filters, by: str) -> AsyncGenerator[ActionResult, None]:
        return app.rerun_all(filter, payload=self.payload, by=by, **self.options)

    def check(self, ask: OperationRequest) -> None:
        if self.customer is not UNSET:
            customer_of(ask, self.customer)
        if self.queue is not UNSET:
            _not_ours("queue", self.queue)
            may_submit(ask, None, self.queue)
        if self.priority is not UNSET:
            ask.hub.caps.urgent(ask.caller, self.priority)

    async def kept(self, ask: OperationRequest, filter: Filters) -> Filters:
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


class DiscardAction(Act, frozen=True):
    """End completed or failed jobs as cancelled (discarded)."""

    verb: ClassVar[Verb] = Verb.DISCARD

    async def on_one(self, ask: OperationRequest, job: Job) -> OperationReply:
        return OperationReply(job_view(await ask.hub.app.discard(job.id, by=ask.caller.name)))

    def on_all(self, app: App, filter: Filters, by: str) -> AsyncGenerator[ActionResult, None]:
        return app.discard_all(filter, by=by)


class ErrorBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What went wrong."""

    type: str
    message: str
    traceback: str | None = None
    details: dict[str, Any] | None = None


class ResolveAction(Act, frozen=True):
    """Set the outcome of jobs by hand: ``error`` fails them, else ``result`` completes them."""

    verb: ClassVar[Verb] = Verb.RESOLVE

    result: Any = None
    error: str | ErrorBody | None = None

    @property
    def outcome(self) -> dict[str, Any]:
        """As an App takes it."""
        error = self.error
        told = ErrorInfo(**msgspec.structs.asdict(error)) if isinstance(error, ErrorBody) else error
        return {"result": self.result, "error": told}

    async def on_one(self, ask: OperationRequest, job: Job) -> OperationReply:
        with ask.hub.app.session.lanes.load.taking(len(msgspec.json.encode(self.result))):  # as the result of a worker
            return OperationReply(job_view(await ask.hub.app.resolve(job.id, by=ask.caller.name, **self.outcome)))

    def on_all(self, app: App, filter: Filters, by: str) -> AsyncGenerator[ActionResult, None]:
        return app.resolve_all(filter, by=by, **self.outcome)


class RunNowAction(Act, frozen=True):
    """Put scheduled or retrying jobs in line at once."""

    verb: ClassVar[Verb] = Verb.RUN_NOW

    async def on_one(self, ask: OperationRequest, job: Job) -> OperationReply:
        return OperationReply(job_view(await ask.hub.app.run_now(job.id, by=ask.caller.name)))

    def on_all(self, app: App, filter: Filters, by: str) -> AsyncGenerator[ActionResult, None]:
        return app.run_now_all(filter, by=by)


class PostponeAction(Act, frozen=True):
    """Let jobs wait for another time."""

    verb: ClassVar[Verb] = Verb.POSTPONE

    until: Moment | Seconds
    """A moment, or so many seconds from now."""

    async def on_one(self, ask: OperationRequest, job: Job) -> OperationReply:
        return OperationReply(job_view(await ask.hub.app.postpone(job.id, self.until, by=ask.caller.name)))

    def on_all(self, app: App, filter: Filters, by: str) -> AsyncGenerator[ActionResult, None]:
        return app.postpone_all(filter, self.until, by=by)


class MoveAction(Act, frozen=True):
    """Move jobs that no worker has to another queue, with their arrival."""

    verb: ClassVar[Verb] = Verb.MOVE

    queue: Name

    async def on_one(self, ask: OperationRequest, job: Job) -> OperationReply:
        return OperationReply(job_view(await ask.hub.app.move(job.id, self.queue, by=ask.caller.name)))

    def on_all(self, app: App, filter: Filters, by: str) -> AsyncGenerator[ActionResult, None]:
        return app.move_all(filter, self.queue, by=by)

    def check(self, ask: OperationRequest) -> None:
        _not_ours("queue", self.queue)
        may_submit(ask, None, self.queue)


class ReprioritiseAction(Act, frozen=True):
    """Give jobs that no worker has another priority."""

    verb: ClassVar[Verb] = Verb.REPRIORITISE

    priority: Priority

    async def on_one(self, ask: OperationRequest, job: Job) -> OperationReply:
        return OperationReply(job_view(await ask.hub.app.reprioritise(job.id, self.priority, by=ask.caller.name)))

    def on_all(self, app: App, filter: Filters, by: str) -> AsyncGenerator[ActionResult, None]:
        return app.reprioritise_all(filter, self.priority, by=by)

    def check(self, ask: OperationRequest) -> None:
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
    kind.verb: kind
    for kind in (
        CancelAction,
        RetryAction,
        RerunAction,
        DiscardAction,
        ResolveAction,
        RunNowAction,
        PostponeAction,
        MoveAction,
        ReprioritiseAction,
    )
}

_log = logging.getLogger("headrace.hub")


# -- on one


async def act(ask: OperationRequest) -> OperationReply:
    """Do what the body says to the job in the path."""
    told: Act = ask.body
    job = await job_of(ask, ask.path["id"])
    told.check(ask)
    if told.makes:
        ask.hub.door.spend(ask.caller)
    return await told.on_one(ask, job)


# -- on all that match


def _on_all(kind: type[Act]) -> type[msgspec.Struct]:
    """The body of an act on many: that of an act on one, and which jobs."""
    return msgspec.defstruct(
        f"{kind.__name__.removesuffix('Action')}All",
        [("filter", JobFilters), ("dry_run", bool, False)],
        bases=(kind,),
        tag_field="act",
        tag=_word(kind.verb),
        frozen=True,
        kw_only=True,
        forbid_unknown_fields=True,
        namespace={"__doc__": kind.__doc__},
        module=__name__,
    )


def _word(verb: Verb) -> str:
    return verb.value.replace("_", "-")


ActOnAll: Any = Union[tuple(map(_on_all, ACTS.values()))]  # noqa: UP007  # made here


class ActionVerdict(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What came of an act on one of many jobs."""

    id: UUID
    answer: Literal["done", "requested", "refused", "not_found"]
    """``requested``: a worker has the job, and is asked to stop it."""
    status: Status | None = None
    """Of the job as it is now; of a rerun, of the new one."""
    new_id: UUID | None = None
    """The job that a rerun made."""
    error: str | None = None
    """The name of the error, if it was refused."""
    message: str | None = None

    @classmethod
    def of(cls, acted: ActionResult) -> ActionVerdict:
        """The verdict as it is on the wire: without the whole job."""
        job = acted.job
        return cls(
            id=acted.id,
            answer=acted.answer,
            status=None if job is None else job.status,
            new_id=job.id if job is not None and job.id != acted.id else None,
            error=acted.error,
            message=acted.message,
        )


class ActionCounts(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What came of all of them: the last line. Without it the answer is not whole."""

    done: int
    requested: int
    refused: int
    not_found: int
    stopped: str | None = None
    """Why it ended before all were acted on; ask again for the rest."""
    problem: ProblemDetails | None = None
    """What went wrong, if that is why."""


class ActionVerdicts(msgspec.Struct, frozen=True):
    """What came of an act on many jobs."""

    verdicts: tuple[ActionVerdict, ...]
    counts: ActionCounts


async def act_on_all(ask: OperationRequest) -> OperationReply | Response:
    """Do it to all jobs that match, the oldest first, each judged by itself; ``dry_run`` only counts them.

    Without a ``status`` those are tried that the act can begin from. The answer is one document for up to 1,000 jobs;
    with ``Accept: application/x-ndjson`` a line for each of any number, and a last one that counts them. A client that
    hangs up ends it.
    """
    body, app = ask.body, ask.hub.app
    filter = filters_in(ask, body.filter)
    if body.filter == JobFilters():
        message = "an act on many jobs needs a filter: name at least one field"
        raise Problem(400, "malformed", "The request cannot be understood", message, faults=[Fault("filter", message)])
    body.check(ask)
    filter = await body.kept(ask, filter)
    lines = wants_lines(ask.request)
    is_capped = body.revives and ask.caller.customer is not None
    count = await app.dry_run(body.verb, filter) if body.dry_run or is_capped or not lines else 0
    if body.dry_run:
        return OperationReply(JobCount(count))
    if not lines and count > MAX_ACTION_VERDICTS:
        remedy = "name fewer, or send Accept: application/x-ndjson"
        text = f"{count:,} match, and a document has room for {MAX_ACTION_VERDICTS:,}: {remedy}"
        raise Problem(409, "too-many", "Too many jobs match", text)
    if body.makes:
        ask.hub.door.spend(ask.caller)
    if is_capped:
        await ask.hub.caps.revive(ask.caller, body.verb, filter, count)
    if lines:
        acting = body.on_all(app, filter, ask.caller.name)
        first = await anext(acting, None)  # here, where an error is a problem
        return lines_response(ask.request, _lines(ask, first, acting))
    verdicts = [ActionVerdict.of(acted) async for acted in body.on_all(app, filter, ask.caller.name)]
    return OperationReply(ActionVerdicts(tuple(verdicts), _counted(Counter(one.answer for one in verdicts))))


async def _lines(
    ask: OperationRequest, acted: ActionResult | None, acting: AsyncGenerator[ActionResult, None]
) -> AsyncGenerator[Sequence[ActionVerdict | ActionCounts], None]:
    counts, stopped = Counter[str](), None
    problem: ProblemDetails | None = None
    try:
        async with aclosing(acting):
            while acted is not None:
                counts[acted.answer] += 1
                yield [ActionVerdict.of(acted)]
                if ask.hub.draining.is_set():
                    stopped = "the hub is about to stop"
                    break
                if not ask.hub.door.knows(ask.caller):
                    stopped, problem = "the key does not count any more", REVOKED.details
                    break
                acted = await anext(acting, None)
    except Exception as error:
        found = problem_of(error)
        if found is None:
            _log.exception("an act on many jobs failed")
        problem, stopped = (found or FAULT).details, "something went wrong"
    yield [_counted(counts, stopped, problem)]


def _counted(counts: Counter[str], stopped: str | None = None, problem: ProblemDetails | None = None) -> ActionCounts:
    return ActionCounts(
        done=counts["done"],
        requested=counts["requested"],
        refused=counts["refused"],
        not_found=counts["not_found"],
        stopped=stopped,
        problem=problem,
    )


# -- the table

_TOLD: dict[Verb, tuple[str, Any]] = {
    Verb.CANCEL: ("Cancel a job, or ask its worker to stop it (202)", None),
    Verb.RETRY: ("Retry a failed or cancelled job", {"delay": 60}),
    Verb.RERUN: ("Do the work of an ended job again, as a new one", {"priority": 75}),
    Verb.DISCARD: ("Put a completed or failed job away", None),
    Verb.RESOLVE: ("Set the outcome of a job by hand", {"result": {"image": "cat-320.png"}}),
    Verb.RUN_NOW: ("Put a scheduled or retrying job in line at once", None),
    Verb.POSTPONE: ("Let a job wait for another time", {"until": 3600}),
    Verb.MOVE: ("Move a job to another queue", {"queue": "images"}),
    Verb.REPRIORITISE: ("Give a job another priority", {"priority": 75}),
}
_GIVES: dict[Verb, dict[int, Any]] = {
    Verb.CANCEL: {200: JobView, 202: JobView},
    Verb.RERUN: {201: JobView, 200: JobView},
}
_NEEDED = {Verb.RESOLVE, Verb.POSTPONE, Verb.MOVE, Verb.REPRIORITISE}
"""These cannot be asked for without a body."""

OPERATIONS = (
    *(
        Operation(
            name=f"{verb}_job",
            method="POST",
            path=f"/api/jobs/{{id}}/{_word(verb)}",
            summary=_TOLD[verb][0],
            scope="act",
            bounded="job",
            do=act,
            body=kind,
            bare=verb not in _NEEDED,
            gives=_GIVES.get(verb, {200: JobView}),
            refuses=(404, 409, 410, 422),
            example=_TOLD[verb][1] or {},
            answered=JOB,
            path_examples=PATH,
        )
        for verb, kind in ACTS.items()
    ),
    Operation(
        name="act_on_jobs",
        method="POST",
        path="/api/jobs/act",
        summary="Act on all jobs that match a filter, or count them (dry_run)",
        scope="act",
        bounded="found",
        do=act_on_all,
        body=ActOnAll,
        gives={200: ActionVerdicts | JobCount},
        lines=(None, ActionVerdict),
        refuses=(409,),
        example={"act": "retry", "filter": {"status": "failed", "task": "resize"}, "dry_run": True},
        answered={
            "verdicts": [{"id": ID, "answer": "done", "status": "queued"}],
            "counts": {"done": 1, "requested": 0, "refused": 0, "not_found": 0},
        },
        live=True,
    ),
)
