"""Submits: one job, or many with a verdict for each."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any, Literal, NamedTuple
from uuid import UUID

import msgspec
from msgspec import UNSET, Meta, UnsetType
from starlette.responses import Response

from headrace.client.draft import Draft
from headrace.client.handle import JobHandle
from headrace.core.defaults import MAX_SUBMIT_JOBS
from headrace.core.priority import DEFAULT_PRIORITY
from headrace.core.query import seen_status
from headrace.core.status import Reason, Status
from headrace.core.webhooks.target import Target
from headrace.core.words import Vocabulary, worded
from headrace.errors import TooManyProfiles, Unavailable
from headrace.http.problems import Fault, Problem, ProblemDetails
from headrace.hub.api.ndjson import MEDIA, NdjsonResponse
from headrace.hub.api.vocabulary import Submission, SubmitBody, submission_of, words_of
from headrace.hub.auth.customers import customer_of, jobs_of, location_of, may_submit, not_ours
from headrace.hub.server.dispatch import read_body
from headrace.hub.server.operation import Operation, OperationReply, OperationRequest
from headrace.hub.server.problems import FAULT, decoded, problem_of
from headrace.hub.webhooks.addresses import guard_of

__all__ = ["OPERATIONS", "BulkBody", "SubmitVerdict", "SubmitVerdicts", "Submitted", "draft_of"]

_log = logging.getLogger("headrace.hub")

KEY = b"idempotency-key"
_CHECKED_JOBS = 100
"""Jobs that are checked before other requests get a turn."""


class Submitted(msgspec.Struct, frozen=True, kw_only=True):
    """A job that was accepted, now or by an earlier submit."""

    job_id: UUID
    status: Status
    position: int | None
    """1 is the next in its queue; null: not queued, too far behind, or not read in time."""
    position_approximate: bool | UnsetType = UNSET
    """true: it was counted on from others, or concurrency keys take turns, so that it may be another; absent: it was
    counted."""
    estimated_start: datetime | None
    """null: unknown."""
    created_at: datetime
    duplicate: bool
    """It existed before: the request was repeated, or the job holds the dedup key."""
    replaced: bool
    """It existed before, and this submit replaced what it does."""
    warnings: tuple[str, ...] = ()
    reason: Reason | UnsetType = UNSET
    """Why it failed or was cancelled, if it existed before."""


class SubmitVerdict(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The outcome of one of many jobs."""

    index: int
    """Its number in the request, from 0; empty lines do not count."""
    verdict: Literal["created", "duplicate", "replaced", "refused", "unknown"]
    """unknown: the store did not reply, and may have stored it; repeat it with the same ``idempotency_key``."""
    job_id: UUID | None = None
    status: Status | None = None
    reason: Reason | None = None
    """Why it failed or was cancelled, if it existed before."""
    created_at: datetime | None = None
    problem: ProblemDetails | None = None
    warnings: tuple[str, ...] = ()


class BulkBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Jobs to submit, each independently; each may have an ``idempotency_key``."""

    jobs: Annotated[tuple[SubmitBody, ...], Meta(max_length=MAX_SUBMIT_JOBS)]


class SubmitVerdicts(msgspec.Struct, frozen=True):
    """A verdict for each of the jobs, in their order."""

    verdicts: tuple[SubmitVerdict, ...]


class _Jobs(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``BulkBody`` with jobs that are decoded one by one: an error in one does not affect the others."""

    jobs: Annotated[list[msgspec.Raw], Meta(max_length=MAX_SUBMIT_JOBS)]


_body = msgspec.json.Decoder(SubmitBody)
_jobs = msgspec.json.Decoder(_Jobs)
_encoder = msgspec.json.Encoder()


async def submit(ask: OperationRequest) -> OperationReply:
    """Submit a job; the reply is 200 if the job existed before."""
    keys = [value for name, value in ask.request.scope["headers"] if name == KEY]
    if len(keys) > 1:
        raise _malformed("Idempotency-Key", "the header Idempotency-Key is given more than once")
    words = words_of(ask.body, ask.words)
    said = submission_of(ask.body, keys[0].decode("latin-1") if keys else None, words)
    draft, warnings = await draft_of(ask, said)
    handle = await draft.submit()
    job = handle.last
    assert job is not None
    place = await ask.hub.positions.of(job, new=not handle.duplicate)
    submitted = Submitted(
        job_id=job.id,
        status=seen_status(job, ask.hub.app.host.clock.now()) if handle.duplicate else job.status,
        position=place.position,
        position_approximate=place.approximate or UNSET,
        estimated_start=place.estimated_start,
        created_at=job.created_at,
        duplicate=handle.duplicate,
        replaced=handle.replaced,
        warnings=warnings,
        reason=UNSET if job.reason is None else job.reason,
    )
    if words is not None:
        submitted = worded(submitted, words)
    return OperationReply(submitted, 200 if handle.duplicate else 201, location_of(ask, job))


async def draft_of(ask: OperationRequest, said: Submission) -> tuple[Draft[Any], tuple[str, ...]]:
    """Return the draft of a body, if this caller may submit it."""
    options, tasks = said.options, ask.caller.tasks
    if tasks is not None and said.task not in tasks:
        may_submit(ask, said.task, "")  # before the payload is checked
    if ask.caller.customer is not None:
        options["customer"] = customer_of(ask, options.get("customer"))
        if after := options.get("after"):
            await jobs_of(ask, after)
    draft, warnings = await ask.hub.drafts.draft(said)
    queue: str = draft.options.get("queue", "default")
    not_ours(draft.task, queue)
    may_submit(ask, said.task, queue)
    if (wish := draft.options.get("webhook")) is not None:
        guard_of(ask.hub.options).check(wish.url)
    if ask.caller.customer is not None:
        await ask.hub.quotas.admit(ask.caller, draft.task, draft.options.get("priority", DEFAULT_PRIORITY))
        named = () if wish is None else (Target("", wish.events, ask.caller.customer),)
        await ask.hub.quotas.admit_messages(ask.caller, draft.task, queue, named)
    return draft, warnings


# -- many


async def submit_bulk(ask: OperationRequest) -> OperationReply | Response:
    """Submit many jobs: up to 1,000 in a document, any number as lines."""
    request, options = ask.request, ask.hub.options
    if any(name == KEY for name, _ in request.scope["headers"]):
        raise _malformed("Idempotency-Key", "give each job an `idempotency_key` of its own")
    bulk = _Bulk(ask)
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == MEDIA:
        return NdjsonResponse(
            request,
            bulk.prepare,
            bulk.lines,
            bulk.last,
            longest=options.body_most,
            unread=options.bulk_most,
            patience=options.read_timeout,
            caller=ask.caller,
            connections=ask.hub.live.connections,
        )
    jobs = decoded(_jobs, await read_body(request, options.bulk_most, options.read_timeout)).jobs
    return OperationReply(SubmitVerdicts(tuple(await bulk.verdicts(await bulk.prepare(jobs)))))


class _Draft(NamedTuple):
    draft: Draft[Any]
    warnings: tuple[str, ...]
    words: Vocabulary | None
    """In which the verdict is written."""


class _Ready(msgspec.Struct):
    """Some of the jobs: drafts to store, and jobs that are refused already."""

    first: int
    """The number of the first."""
    drafts: list[_Draft | Problem]


class _Bulk:
    """Many jobs of one request, some at a time."""

    def __init__(self, ask: OperationRequest) -> None:
        self._ask, self._count = ask, 0
        self._owes = False
        """Whether refused jobs count as submits."""

    async def prepare(self, texts: Sequence[bytes | msgspec.Raw | None]) -> _Ready:
        """Check the jobs; None stands for a line that is too long."""
        ready = _Ready(self._count, [])
        self._count += len(texts)
        if self._owes and (why := self._ask.hub.authenticator.too_fast(self._ask.caller)) is not None:
            ready.drafts += [why] * len(texts)  # they are not decoded
            self._ask.hub.authenticator.owe(self._ask.caller, len(texts))
            return ready
        for number, text in enumerate(texts, 1):
            try:
                if text is None:
                    raise _too_long(self._ask.hub.options.body_most)
                body = decoded(_body, text)
                words = words_of(body, self._ask.words)
                ready.drafts.append(_Draft(*await draft_of(self._ask, submission_of(body, words=words)), words))
            except Exception as error:
                ready.drafts.append(_problem(error))
            if number % _CHECKED_JOBS == 0:
                await asyncio.sleep(0)
        return ready

    async def verdicts(self, ready: _Ready) -> list[SubmitVerdict]:
        """Store the jobs, and return the verdict on each."""
        drafts = [one.draft for one in ready.drafts if not isinstance(one, Problem)]
        answers = await self._ask.hub.app.submit_each(drafts)
        if owed := sum(isinstance(answer, TooManyProfiles) for answer in answers):
            self._owes = True
            self._ask.hub.authenticator.owe(self._ask.caller, owed)
        stored = iter(answers)
        found = list[SubmitVerdict]()
        for index, one in enumerate(ready.drafts, ready.first):
            if isinstance(one, Problem):
                found.append(SubmitVerdict(index=index, verdict="refused", problem=one.details))
            else:
                verdict = _verdict(index, next(stored), one)
                found.append(verdict if one.words is None else worded(verdict, one.words))
        return found

    async def lines(self, ready: _Ready) -> bytes:
        """``verdicts``, a line for each."""
        return _encoder.encode_lines(await self.verdicts(ready))

    def last(self, why: Problem | None) -> bytes:
        """Return the last line of a reply that ends early: the hub ends it, or the client sends nothing."""
        patience = self._ask.hub.options.read_timeout
        if why is not None and why.status == 503:
            problem = Problem(503, "draining", "The hub stops", "send the rest again, to it or to another")
        elif why is not None:
            problem = why
        else:
            problem = Problem(408, "too-slow", "No more lines came in time", f"nothing came for {patience:g} s")
        return _encoder.encode_lines([SubmitVerdict(index=self._count, verdict="refused", problem=problem.details)])


def _verdict(index: int, stored: JobHandle[Any] | Exception, one: _Draft) -> SubmitVerdict:
    if isinstance(stored, Exception):
        unknown = isinstance(stored, Unavailable) and stored.outcome == "unknown"
        return SubmitVerdict(
            index=index,
            verdict="unknown" if unknown else "refused",
            job_id=one.draft.id if unknown else None,
            problem=_problem(stored).details,
        )
    job = stored.last
    assert job is not None
    return SubmitVerdict(
        index=index,
        verdict="replaced" if stored.replaced else "duplicate" if stored.duplicate else "created",
        job_id=job.id,
        status=job.status,
        reason=job.reason,
        created_at=job.created_at,
        warnings=one.warnings,
    )


def _problem(error: Exception) -> Problem:
    problem = problem_of(error)
    if problem is None:
        _log.error("a job of a bulk failed", exc_info=error)
        return FAULT
    return problem


def _too_long(most: int) -> Problem:
    return Problem(413, "too-large", "The line is too long", f"a line may have {most} bytes")


def _malformed(field: str, message: str) -> Problem:
    return Problem(400, "malformed", "The request cannot be understood", message, faults=[Fault(field, message)])


_EXAMPLE = {"task": "resize", "payload": {"image": "cat.png", "width": 320}, "priority": 75, "tags": ["pictures"]}
_ID = "01935c9e-7a3c-7d05-9c8e-2f6b8f0e4a11"
_AT = "2026-11-16T17:30:00Z"

OPERATIONS = (
    Operation(
        name="submit_job",
        method="POST",
        path="/api/jobs",
        summary="Submit a job",
        scope="submit",
        bounded="made",
        do=submit,
        body=SubmitBody,
        headers={"Idempotency-Key": "A request that is repeated under the same key submits no second job."},
        gives={201: Submitted, 200: Submitted},
        refuses=(404, 409, 410, 422),
        example=_EXAMPLE,
        answered={
            "job_id": _ID,
            "status": "queued",
            "position": 3,
            "estimated_start": _AT,
            "created_at": _AT,
            "duplicate": False,
            "replaced": False,
            "warnings": [],
        },
    ),
    Operation(
        name="submit_jobs",
        method="POST",
        path="/api/jobs/bulk",
        summary="Submit up to 1,000 jobs, or any number as lines of JSON, with a verdict for each",
        scope="submit",
        bounded="made",
        do=submit_bulk,
        body=BulkBody,
        raw=True,
        largest="bulk",
        lines=(SubmitBody, SubmitVerdict),
        gives={200: SubmitVerdicts},
        example={"jobs": [_EXAMPLE | {"idempotency_key": "order-17"}]},
        answered={
            "verdicts": [{"index": 0, "verdict": "created", "job_id": _ID, "status": "queued", "created_at": _AT}]
        },
    ),
)
