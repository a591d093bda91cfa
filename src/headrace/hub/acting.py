"""Operations that act on jobs: on one, and on all that match a filter, in the name of the caller's key."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any, Literal, Union
from uuid import UUID

import msgspec
from starlette.responses import Response

from headrace.client.acting_on_many import Acted
from headrace.core.status import Status, Verb
from headrace.hub.acts import ACTS, Act
from headrace.hub.documents import JobView
from headrace.hub.examples import ID, JOB, PATH
from headrace.hub.filters import JobFilters, filters_in
from headrace.hub.lines import lines_response, wants_lines
from headrace.hub.live.open import REVOKED
from headrace.hub.looking import Number
from headrace.hub.operation import Answer, Ask, Operation
from headrace.hub.problems import FAULT, Fault, Problem, ProblemDetails, problem_of
from headrace.hub.scoping import job_of

__all__ = ["OPERATIONS"]

_log = logging.getLogger("headrace.hub")

MOST = 1000
"""Verdicts in one document; as lines of JSON there may be any number."""


# -- on one


async def act(ask: Ask) -> Answer:
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
        f"{kind.__name__}All",
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


class Verdict(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
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
    def of(cls, acted: Acted) -> Verdict:
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


class Counts(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What came of all of them: the last line. Without it the answer is not whole."""

    done: int
    requested: int
    refused: int
    not_found: int
    stopped: str | None = None
    """Why it ended before all were acted on; ask again for the rest."""
    problem: ProblemDetails | None = None
    """What went wrong, if that is why."""


class Verdicts(msgspec.Struct, frozen=True):
    """What came of an act on many jobs."""

    verdicts: tuple[Verdict, ...]
    counts: Counts


async def act_on_all(ask: Ask) -> Answer | Response:
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
        return Answer(Number(count))
    if not lines and count > MOST:
        remedy = "name fewer, or send Accept: application/x-ndjson"
        text = f"{count:,} match, and a document has room for {MOST:,}: {remedy}"
        raise Problem(409, "too-many", "Too many jobs match", text)
    if body.makes:
        ask.hub.door.spend(ask.caller)
    if is_capped:
        await ask.hub.caps.revive(ask.caller, body.verb, filter, count)
    if lines:
        acting = body.on_all(app, filter, ask.caller.name)
        first = await anext(acting, None)  # here, where an error is a problem
        return lines_response(ask.request, _lines(ask, first, acting))
    verdicts = [Verdict.of(acted) async for acted in body.on_all(app, filter, ask.caller.name)]
    return Answer(Verdicts(tuple(verdicts), _counted(Counter(one.answer for one in verdicts))))


async def _lines(
    ask: Ask, acted: Acted | None, acting: AsyncGenerator[Acted, None]
) -> AsyncGenerator[Sequence[Verdict | Counts], None]:
    counts, stopped = Counter[str](), None
    problem: ProblemDetails | None = None
    try:
        async with aclosing(acting):
            while acted is not None:
                counts[acted.answer] += 1
                yield [Verdict.of(acted)]
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


def _counted(counts: Counter[str], stopped: str | None = None, problem: ProblemDetails | None = None) -> Counts:
    return Counts(
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
        gives={200: Verdicts | Number},
        lines=(None, Verdict),
        refuses=(409,),
        example={"act": "retry", "filter": {"status": "failed", "task": "resize"}, "dry_run": True},
        answered={
            "verdicts": [{"id": ID, "answer": "done", "status": "queued"}],
            "counts": {"done": 1, "requested": 0, "refused": 0, "not_found": 0},
        },
        live=True,
    ),
)
