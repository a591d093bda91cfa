"""Operations that act on one job or on all that match a filter: the body of each action, and what a key may do."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from contextlib import ExitStack, aclosing
from typing import Any, Literal, Union, cast
from uuid import UUID

import msgspec
from msgspec import UNSET
from starlette.responses import Response

from headrace.client.api.actions import ActionResult, rerun
from headrace.client.api.filters import Filters
from headrace.core.defaults import MAX_ACTION_VERDICTS
from headrace.core.job import Job
from headrace.core.lifecycle.actions import ACTIONS, Action, RerunAction, ResolveAction
from headrace.core.priority import named_priority
from headrace.core.stats.own_tasks import OWN_PREFIX
from headrace.core.status import Reason, Status, Verb
from headrace.engine import Duplicated
from headrace.http.problems import Fault, Problem, ProblemDetails
from headrace.hub.api.documents import ID, JOB, PATH, JobView, job_view
from headrace.hub.api.filters import JobFilters, filters_in
from headrace.hub.api.jobs import JobCount
from headrace.hub.api.ndjson import lines_response, wants_lines
from headrace.hub.auth.customers import customer_of, job_of, location_of, may_submit
from headrace.hub.live.connections import REVOKED
from headrace.hub.server.operation import Operation, OperationReply, OperationRequest
from headrace.hub.server.problems import FAULT, problem_of

__all__ = ["OPERATIONS"]


_log = logging.getLogger("headrace.hub")


# -- on one


async def act(ask: OperationRequest) -> OperationReply:
    """Do what the body says to the job in the path."""
    action: Action = ask.body
    job = await job_of(ask, ask.path["id"])
    _check(ask, action)
    if isinstance(action, RerunAction):
        return await _rerun(ask, action, job)
    app, by, written = ask.hub.app, ask.caller.name, ExitStack()
    if action.revives:
        await ask.hub.quotas.live(ask.caller, task=job.task)
        await ask.hub.quotas.admit_messages(ask.caller, job.task, job.queue, job.spec.webhook or ())
    if isinstance(action, ResolveAction):  # as the result of a worker
        written.enter_context(app.session.writer.load.taking(len(msgspec.json.encode(action.result))))
    with written:
        job = await app.jobs.act(job.id, action, by=by)
    return OperationReply(job_view(job), 202 if action.verb is Verb.CANCEL and not job.ended else 200)


async def _rerun(ask: OperationRequest, action: RerunAction, job: Job) -> OperationReply:
    ask.hub.authenticator.spend(ask.caller)  # as a submit
    if action.payload is not None or action.options:
        _not_ours("task", job.task)
    queue = job.queue if action.queue is UNSET else action.queue
    may_submit(ask, job.task, queue)
    await ask.hub.quotas.admit(ask.caller, job.task, _priority_of(action, job))
    await ask.hub.quotas.admit_messages(ask.caller, job.task, queue, job.spec.webhook or ())
    answer = await rerun(ask.hub.app, job.id, action, ask.caller.name)
    status = 200 if isinstance(answer, Duplicated) else 201
    return OperationReply(job_view(answer.job), status, location_of(ask, answer.job))


def _priority_of(action: RerunAction, job: Job) -> int:
    return job.priority if action.priority is UNSET else named_priority(action.priority)


# -- what a key may do


def _check(ask: OperationRequest, action: Action) -> None:
    """Check that the caller may do it, whatever the job; :raises Problem: 403"""
    customer, queue, priority = (getattr(action, name, UNSET) for name in ("customer", "queue", "priority"))
    if customer is not UNSET:
        customer_of(ask, customer)
    if queue is not UNSET:
        _not_ours("queue", queue)
        may_submit(ask, None, queue)
    if priority is not UNSET:
        ask.hub.quotas.urgent(ask.caller, named_priority(priority))


def _kept(ask: OperationRequest, action: RerunAction, filter: Filters) -> Filters:
    """Return the filter of a rerun of many, limited to what the caller may submit; :raises Problem: 403"""
    for field, bound in (("task", ask.caller.tasks), ("queue", ask.caller.queues if action.queue is UNSET else None)):
        named = _names(filter.get(field))
        if bound is not None and not named <= bound:
            raise _forbidden(field, f"this key may use the {field}s {', '.join(sorted(bound))} alone")
        if bound is not None and not named:
            filter = cast(Filters, {**filter, field: sorted(bound)})
    if action.payload is not None or action.requires is not UNSET:
        tasks = _names(filter.get("task"))
        if not tasks:
            message = "a payload and requirements are those of a task: name the task"
            raise Problem(400, "malformed", "The request cannot be understood", message)
        for task in tasks:
            _not_ours("task", task)
    return filter


def _names(given: Any) -> frozenset[str]:
    return frozenset([given] if isinstance(given, str) else given or ())


def _not_ours(field: str, name: str) -> None:
    """Refuse what only headrace itself may make, such as a forged delivery."""
    if name.startswith(OWN_PREFIX):
        raise _forbidden(field, f"the {field} {name!r} is headrace's own")


def _forbidden(field: str, message: str) -> Problem:
    return Problem(403, "forbidden", "This is not for this key", message, faults=[Fault(field, message)])


# -- on all that match


def _on_all(kind: type[Action]) -> type[msgspec.Struct]:
    """Return the body of an action on many: that of an action on one, and the jobs."""
    return msgspec.defstruct(
        f"{kind.__name__.removesuffix('Action')}All",
        [("filter", JobFilters), ("dry_run", bool, False)],
        bases=(kind,),
        tag_field="act",
        tag=kind.word(),
        frozen=True,
        kw_only=True,
        forbid_unknown_fields=True,
        namespace={"__doc__": kind.__doc__},
        module=__name__,
    )


ActOnAll: Any = Union[tuple(map(_on_all, ACTIONS.values()))]  # noqa: UP007  # made here


class ActionVerdict(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What came of an act on one of many jobs."""

    id: UUID
    answer: Literal["done", "requested", "refused", "not_found"]
    """``requested``: a worker has the job, and is asked to stop it."""
    status: Status | None = None
    """Of the job as it is now; of a rerun, of the new one."""
    reason: Reason | None = None
    """Why it failed or was cancelled."""
    new_id: UUID | None = None
    """The job that a rerun made."""
    error: str | None = None
    """The name of the error, if it was refused."""
    message: str | None = None

    @classmethod
    def of(cls, acted: ActionResult) -> ActionVerdict:
        """Return the verdict as it is on the wire: without the whole job."""
        job = acted.job
        return cls(
            id=acted.id,
            answer=acted.answer,
            status=None if job is None else job.status,
            reason=None if job is None else job.reason,
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


async def act_on_jobs(ask: OperationRequest) -> OperationReply | Response:
    """Do it to all jobs that match, the oldest first, each judged by itself; ``dry_run`` only counts them.

    Without a ``status`` those are tried that the act can begin from. The answer is one document for up to 1,000 jobs;
    with ``Accept: application/x-ndjson`` a line for each of any number, and a last one that counts them. A client that
    hangs up ends it.
    """
    body, app = ask.body, ask.hub.app
    filter = filters_in(ask, body.filter, "filter.")
    if body.filter == JobFilters():
        message = "an act on many jobs needs a filter: name at least one field"
        raise Problem(400, "malformed", "The request cannot be understood", message, faults=[Fault("filter", message)])
    _check(ask, body)
    if isinstance(body, RerunAction):
        filter = _kept(ask, body, filter)
    jobs = app.jobs.where(**filter)
    lines = wants_lines(ask.request)
    is_capped = body.revives and ask.caller.customer is not None
    count = await jobs.preview(body.verb) if body.dry_run or is_capped or not lines else 0
    if body.dry_run:
        return OperationReply(JobCount(count))
    if not lines and count > MAX_ACTION_VERDICTS:
        remedy = "name fewer, or send Accept: application/x-ndjson"
        text = f"{count:,} match, and a document has room for {MAX_ACTION_VERDICTS:,}: {remedy}"
        raise Problem(409, "too-many", "Too many jobs match", text)
    if isinstance(body, RerunAction):  # as a submit
        ask.hub.authenticator.spend(ask.caller)
    if is_capped:
        await ask.hub.quotas.revive(ask.caller, body.verb, filter, count)
    acting = jobs.act(body, by=ask.caller.name)
    if lines:
        first = await anext(acting, None)  # here, where an error is a problem
        return lines_response(ask.request, _lines(ask, first, acting), ask.words)
    verdicts = [ActionVerdict.of(acted) async for acted in acting]
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
                if not ask.hub.authenticator.knows(ask.caller):
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

_GIVES: dict[Verb, dict[int, Any]] = {
    Verb.CANCEL: {200: JobView, 202: JobView},
    Verb.RERUN: {201: JobView, 200: JobView},
}

OPERATIONS = (
    *(
        Operation(
            name=f"{verb}_job",
            method="POST",
            path=f"/api/jobs/{{id}}/{kind.word()}",
            summary=kind.summary,
            scope="act",
            bounded="job",
            do=act,
            body=kind,
            bare=kind.bare(),
            gives=_GIVES.get(verb, {200: JobView}),
            refuses=(404, 409, 410, 422),
            example=kind.example,
            answered=JOB,
            path_examples=PATH,
        )
        for verb, kind in ACTIONS.items()
    ),
    Operation(
        method="POST",
        path="/api/jobs/act",
        summary="Act on all jobs that match a filter, or count them (dry_run)",
        scope="act",
        bounded="found",
        do=act_on_jobs,
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
