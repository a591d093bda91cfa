"""Operations that read jobs: find them, show one, wait for it, read its log and stream."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from datetime import UTC
from typing import Annotated, Any

import msgspec
from msgspec import Meta
from starlette.responses import Response

from headrace.client.api.filters import Filters
from headrace.core.attempt import History
from headrace.core.defaults import MAX_HUB_PAGE_BYTES, MAX_HUB_PAGE_JOBS, MAX_LONG_POLL_SECONDS
from headrace.core.entry import LogLine
from headrace.core.explain.explanation import Fact
from headrace.core.hidden_errors import hidden_history, hidden_job
from headrace.core.job import Job
from headrace.core.query import Page
from headrace.core.status import Status
from headrace.core.words import HEADRACE, Vocabulary
from headrace.http.entity_tags import is_known, tagged
from headrace.http.problems import Problem
from headrace.hub.api.documents import AT, JOB, PATH, JobView, job_view
from headrace.hub.api.filters import JobFilters, filters_in
from headrace.hub.api.hidden_errors import hides
from headrace.hub.api.ndjson import lines_response, wants_lines
from headrace.hub.auth.customers import filters_of, job_of
from headrace.hub.server.long_poll import wait_within
from headrace.hub.server.operation import Operation, OperationReply, OperationRequest, operations_of
from headrace.runtime.watch.stream import StreamItem

__all__ = ["OPERATIONS"]

READ_JOBS = 100
"""Jobs that are read at a time: one may have megabytes."""

Limit = Annotated[int, Meta(ge=1, le=MAX_HUB_PAGE_JOBS)]
Wait = Annotated[float, Meta(ge=0, le=MAX_LONG_POLL_SECONDS)]
JobCursor = Annotated[str, Meta(pattern="^[0-9]{1,18}$")]
EntryCursor = Annotated[str, Meta(pattern=r"^[0-9]{1,9}\.[0-9]{1,9}$")]


# -- many


class FindJobs(JobFilters, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Which jobs, and how many at a time."""

    limit: Limit = 50
    cursor: JobCursor | None = None
    """Of the previous page."""


class FoundJobs(msgspec.Struct, frozen=True):
    """Some jobs, the newest first, and where the next ones begin."""

    items: tuple[JobView, ...]
    cursor: str | None
    """Pass it for the next page; null: there is none."""
    partial: bool = False
    """The page has fewer jobs than requested, but there may be more behind the cursor. A search by ``text`` reads 5,000
    jobs at a time, and a page ends early at 8 MiB."""


class JobCount(msgspec.Struct, frozen=True):
    """How many jobs match."""

    count: int


async def list_jobs(ask: OperationRequest) -> OperationReply:
    """Return the jobs that match, newest first, a page at a time."""
    query: FindJobs = ask.query
    return await _found(ask, filters_in(ask, query), query.limit, query.cursor)


async def count_jobs(ask: OperationRequest) -> OperationReply:
    """Return how many jobs match. All of them are read, so a ``text`` may take long."""
    return OperationReply(JobCount(await ask.hub.app.jobs.count(**filters_in(ask, ask.query))))


class Paged(msgspec.Struct, frozen=True, kw_only=True):
    """The size of a page, and where it begins."""

    limit: Limit = 50
    cursor: JobCursor | None = None


async def list_children(ask: OperationRequest) -> OperationReply:
    """Return the jobs that the handler of this one submitted, newest first."""
    job, query = await _job(ask), ask.query
    return await _found(ask, filters_of(ask, {"parent": job.id}), query.limit, query.cursor)


async def _found(ask: OperationRequest, filters: Filters, limit: int, cursor: str | None) -> OperationReply:
    """Return a page of jobs, read in parts so that it does not become too large."""
    found, size = list[Job](), 0
    while True:
        wanted = min(READ_JOBS, limit - len(found))
        page = await ask.hub.app.jobs.list(limit=wanted, cursor=cursor, **filters)
        found += page.items
        size += sum(len(job.payload_text) + len(job.result_text or "") for job in page.items)
        cursor = page.cursor
        if cursor is None or len(found) >= limit or len(page.items) < wanted or size >= MAX_HUB_PAGE_BYTES:
            break
    return OperationReply(FoundJobs(tuple(map(job_view, found)), cursor, cursor is not None and len(found) < limit))


# -- one


class Patience(msgspec.Struct, frozen=True, kw_only=True):
    """How long to wait."""

    wait: Wait = 0.0
    """Seconds, at most 60."""


def _is_known(ask: OperationRequest, job: Job) -> bool:
    return is_known(ask.request.headers.getlist("if-none-match"), job, ask.words)


async def get_job(ask: OperationRequest) -> OperationReply:
    """Return the job as it is now.

    With ``wait`` and ``If-None-Match`` the reply comes as soon as the job differs from the client's copy. If it does
    not in time, has ended, or the hub is about to stop, the reply is 304.
    """
    job = await _job(ask)
    if not job.ended and _is_known(ask, job):
        job = await _later(ask, job, lambda one: not _is_known(ask, one))
    if _is_known(ask, job):
        return OperationReply(None, 304, tagged(job, ask.words))
    return OperationReply(job_view(job), 200, tagged(job, ask.words))


async def get_result(ask: OperationRequest) -> Response | OperationReply:
    """Return the result of the handler, unchanged, also if it is ``null``.

    With ``wait`` the reply comes as soon as the job has ended. A job without a result is refused (409): ``not-ended``
    if it may have one later, else ``failed`` or ``cancelled``.
    """
    job = await _job(ask)
    if not job.ended:
        job = await _later(ask, job, lambda one: one.ended)
    if job.status is not Status.COMPLETED:
        raise _no_result(hidden_job(job) if hides(ask.hub.options, ask.caller) else job, ask.words or HEADRACE)
    if _is_known(ask, job):
        return OperationReply(None, 304, tagged(job, ask.words))
    return Response(job.result_text or "null", 200, tagged(job, ask.words), "application/json")


def _no_result(job: Job, words: Vocabulary) -> Problem:
    id = str(job.id)
    if not job.ended:
        text = f"it is {words.json_word(job.status)}: ask again later, or with ?wait=60"
        return Problem(409, "not-ended", "The job has not ended", text, headers={"Retry-After": "1"}, job_id=id)
    error = "" if job.error is None else f" {job.error.type}: {job.error.message}"
    text = f"it {'was cancelled' if job.status is Status.CANCELLED else 'failed'} ({job.reason}){error}"
    return Problem(409, str(job.status), "The job has no result", text, job_id=id)


async def _later(ask: OperationRequest, job: Job, is_it: Callable[[Job], bool]) -> Job:
    """Return the job as soon as the condition holds, or as it is when the wait is over or the hub stops."""
    query: Patience = ask.query
    if not query.wait:
        return job
    last = job

    async def follow() -> None:
        nonlocal last
        async with aclosing(ask.hub.app.jobs.watch(job.id)) as following:
            async for last in following:
                if is_it(last):
                    return

    await wait_within(ask, query.wait, follow())
    return last


async def get_history(ask: OperationRequest) -> OperationReply:
    """Return the attempts of a job, and the actions on it."""
    job = await _job(ask)
    history = await ask.hub.app.jobs.history(job.id)
    return OperationReply(hidden_history(history, job) if hides(ask.hub.options, ask.caller) else history)


class JobExplanation(msgspec.Struct, frozen=True):
    """Why a job is in its status, and what it waits for."""

    text: str
    facts: tuple[Fact, ...]


async def explain_job(ask: OperationRequest) -> OperationReply:
    """Return why a job is in its status and what it waits for, in sentences and as data."""
    hidden = hides(ask.hub.options, ask.caller)
    found = await ask.hub.app.jobs.explain((await _job(ask)).id, to=ask.caller.customer, zone=UTC, hide_errors=hidden)
    return OperationReply(JobExplanation(str(found), found.facts))


async def _job(ask: OperationRequest) -> Job:
    return await job_of(ask, ask.path["id"])


# -- entries of its runs


class ReadLogs(msgspec.Struct, frozen=True, kw_only=True):
    """Which lines."""

    attempt: Annotated[int, Meta(ge=1, le=1_000_000_000)] | None = None
    """Only of this attempt."""
    limit: Limit = 100
    cursor: EntryCursor | None = None
    """Of the previous page; it is ``attempt.number`` of the last line that was read."""


class ReadItems(msgspec.Struct, frozen=True, kw_only=True):
    """Which items."""

    limit: Limit = 100
    cursor: EntryCursor | None = None
    """Of the previous page; it is ``attempt.number`` of the last item that was read."""


async def get_logs(ask: OperationRequest) -> OperationReply | Response:
    """Return the lines of a job's log, oldest first; a page has a cursor as long as more may come.

    With ``Accept: application/x-ndjson`` return all present lines behind the cursor, one after the other.
    """
    app, query = ask.hub.app, ask.query
    id = (await _job(ask)).id
    return await _entries(
        ask, lambda limit, cursor: app.jobs.log_page(id, attempt=query.attempt, limit=limit, cursor=cursor)
    )


async def get_items(ask: OperationRequest) -> OperationReply | Response:
    """Return the items of a job's stream; a page has a cursor as long as more may come.

    An item that is ``restarted`` begins the stream anew: earlier items no longer count. With ``Accept:
    application/x-ndjson`` return all present items behind the cursor, one after the other.
    """
    app, id = ask.hub.app, (await _job(ask)).id
    return await _entries(ask, lambda limit, cursor: app.jobs.items(id, limit=limit, cursor=cursor))


class LogPage(Page[LogLine], frozen=True):
    """Some lines of a log, and where the next ones begin."""


class ItemPage(Page[StreamItem[Any]], frozen=True):
    """Some items of a stream, and where the next ones begin."""


async def _entries(
    ask: OperationRequest, read: Callable[[int, str | None], Awaitable[Page[Any]]]
) -> OperationReply | Response:
    query: ReadLogs | ReadItems = ask.query
    if not wants_lines(ask.request):
        return OperationReply(await read(query.limit, query.cursor))
    first = await read(MAX_HUB_PAGE_JOBS, query.cursor)  # here, where an error can still be a problem reply

    async def parts() -> AsyncGenerator[Sequence[Any], None]:
        page = first
        while page.items:
            yield page.items
            if page.cursor is None:
                return
            page = await read(MAX_HUB_PAGE_JOBS, page.cursor)

    return lines_response(ask.request, parts())


_PAGE = {"items": [JOB], "cursor": None, "partial": False}
_LINE = {"at": AT, "attempt": 1, "number": 1, "level": "INFO", "logger": "shop", "message": "300 of 1,000 rows"}

_KNOWN = "The ETag of what the client has: 304 if it is still so."

_of_job = operations_of("/api/jobs/{id}", PATH, JobView, JOB, bounded="job", refuses=(404, 410))

OPERATIONS = (  # paths with a word in place of the id come before those with an id
    Operation(
        path="/api/jobs",
        summary="The jobs that match, the newest first, a page at a time",
        scope="read",
        bounded="found",
        do=list_jobs,
        query=FindJobs,
        gives={200: FoundJobs},
        answered=_PAGE,
    ),
    Operation(
        path="/api/jobs/count",
        summary="How many jobs match",
        scope="read",
        bounded="found",
        do=count_jobs,
        query=JobFilters,
        gives={200: JobCount},
        answered={"count": 17},
    ),
    _of_job(
        "GET",
        "A job as it stands; with wait, as soon as it has changed",
        "read",
        get_job,
        query=Patience,
        headers={"If-None-Match": _KNOWN},
        gives={200: JobView, 304: None},
        live=True,
    ),
    _of_job(
        "GET /result",
        "What the handler returned; with wait, as soon as the job has ended",
        "read",
        get_result,
        query=Patience,
        headers={"If-None-Match": _KNOWN},
        gives={200: Any, 304: None},
        refuses=(404, 409, 410),
        answered=JOB["result"],
        live=True,
        words=True,
    ),
    _of_job(
        "GET /history",
        "The attempts of a job, and what was done to it",
        "read",
        get_history,
        words=True,
        gives={200: History},
        answered={
            "attempts": [
                {"number": 1, "epoch": 1, "outcome": "completed", "finished_at": AT, "processing_time": 0.42},
            ],
            "events": [],
        },
    ),
    _of_job(
        "GET /logs",
        "The lines of a job's log, a page at a time or all of them as lines of JSON",
        "read",
        get_logs,
        query=ReadLogs,
        words=True,
        gives={200: LogPage},
        lines=(None, LogLine),
        answered={"items": [_LINE], "cursor": "1.1"},
    ),
    _of_job(
        "GET /items",
        "The items of a job's stream, a page at a time or all of them as lines of JSON",
        "read",
        get_items,
        query=ReadItems,
        words=True,
        gives={200: ItemPage},
        lines=(None, StreamItem[Any]),
        answered={"items": [{"value": "row 1", "attempt": 1, "number": 1, "restarted": False}], "cursor": "1.1"},
    ),
    _of_job(
        "GET /explain",
        "Why a job is in its status, and what it waits for",
        "read",
        explain_job,
        words=True,
        gives={200: JobExplanation},
        answered={
            "text": "It completed at 2026-11-16 17:30:01+00:00.",
            "facts": [{"code": "completed", "text": "It completed at 2026-11-16 17:30:01+00:00.", "data": {"at": AT}}],
        },
    ),
    _of_job(
        "GET /children",
        "The jobs that the handler of a job submitted, the newest first",
        "read",
        list_children,
        query=Paged,
        gives={200: FoundJobs},
        answered=_PAGE,
    ),
)
