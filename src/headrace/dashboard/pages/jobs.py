"""Jobs by filters, all of them in the address; and the same as JSON and CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import msgspec
from starlette.datastructures import QueryParams
from starlette.responses import Response, StreamingResponse

from headrace.client.api.filters import Filters, filter_of
from headrace.core.job import Job
from headrace.core.query import HISTORY, Page
from headrace.core.status import Reason, Status
from headrace.dashboard.format import count
from headrace.dashboard.page import PageRequest, PageView, Shown
from headrace.errors import ConfigError

__all__ = ["FIELDS", "NAMES_CACHE_SECONDS", "VIEWS", "filters_in"]

MAX_QUEUE_CHOICES = 500
"""Queues that a filter proposes; others can be typed."""
PAGE_JOBS = 50
MAX_SEARCH_ROUNDS = 2
"""Rounds of 5,000 jobs that are searched for a text, for one page."""
NAMES_CACHE_SECONDS = 15.0
"""Seconds for which the proposed names are cached: to find them, all waiting jobs are counted."""
MAX_EXPORT_JOBS = 10_000
"""Maximum jobs in one export."""

MAX_COUNTED_JOBS = 1000
"""Jobs of one status that are counted, where counting all would read all."""

WITHIN = {"15m": ("15 minutes", 900), "1h": ("1 hour", 3600), "24h": ("24 hours", 86400), "7d": ("7 days", 604800)}

STATUSES = tuple(one for one in Status if one is not Status.PENDING)
"""Those that a job in a store can have."""

SEVERAL = ("status", "reason")
ONE = ("task", "queue", "customer", "tag", "text", "worker", "fingerprint", "schedule")
IDS = ("parent", "root", "batch", "rerun_of")
MOMENTS = ("created_after", "created_before", "finished_after", "finished_before")
FIELDS = (*SEVERAL, *ONE, *IDS, *MOMENTS, "within", "suspect")
"""The parameters that the address may have."""


def filters_in(given: QueryParams | Mapping[str, Any], now: datetime) -> tuple[Filters, dict[str, Any]]:
    """Return the filters that an address names, and its values, to be repeated in other addresses.

    :raises ConfigError: no job could have a value
    """
    asked = dict[str, Any]()
    for name in FIELDS:
        listed = given.getlist(name) if isinstance(given, QueryParams) else given.get(name, [])
        values = [str(one) for one in (listed if isinstance(listed, list | tuple) else [listed]) if one]
        if values:
            asked[name] = values if name in SEVERAL else values[0]
    filters = {name: value for name, value in asked.items() if name not in ("within", *MOMENTS)}
    for name in MOMENTS:
        if name in asked:
            filters[name] = _moment(name, asked[name])
    if "suspect" in filters:
        filters["suspect"] = filters["suspect"] in ("1", "true", "on")
    if (span := WITHIN.get(asked.get("within", ""))) is not None:
        filters["created_after"] = now - timedelta(seconds=span[1])
    filter_of(cast(Filters, filters))
    return cast(Filters, filters), asked


def _moment(name: str, text: str) -> datetime:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigError(f"{name}: {text!r} is no moment; one is written as 2026-01-31T08:00") from None
    return found if found.tzinfo is not None else found.replace(tzinfo=UTC)


async def jobs(ask: PageRequest) -> Shown:
    """Show a page of jobs, newest first."""
    try:
        filters, asked = filters_in(ask.request.query_params, ask.now)
    except (ConfigError, ValueError) as error:
        nothing = {"page": Page[Job](()), "looked": 0, "numbers": None, "matching": None}
        data = await _surroundings(ask, {}) | nothing | {"wrong": str(error)}
        return Shown("jobs.html", "Jobs", data, 400, every=0)
    kept, cursor = ask.kept(filters), ask.given("cursor")
    # Filters relative to now differ from request to request: the key contains the values in the address.
    key = ("jobs", ask.viewer.customer, cursor, msgspec.json.encode(asked))
    page, looked = await ask.shared(key, lambda: _look(ask, kept, cursor))
    page = Page(ask.seen(page.items), page.cursor)
    numbers = await _numbers(ask, kept, asked)
    data = await _surroundings(ask, asked) | {"page": page, "looked": looked, "numbers": None, "matching": None}
    if numbers is not None:
        wanted = [numbers[Status(one)] for one in asked.get("status", STATUSES)]
        data |= {"numbers": {status: _told(*numbers[status]) for status in STATUSES}, "matching": _matching(wanted)}
    data["wrong"] = None
    return Shown("jobs.html", "Jobs", data)


async def _numbers(ask: PageRequest, kept: Filters, asked: Mapping[str, Any]) -> dict[Status, tuple[int, bool]] | None:
    """Return how many jobs of each status match the other filters, and whether these are all; None: it takes longer,
    or a text is searched for, which would be searched for in all jobs."""
    if "text" in kept:
        return None
    others = cast(Filters, {name: value for name, value in kept.items() if name != "status"})
    key = ("numbers", ask.viewer.customer, msgspec.json.encode({**asked, "status": None}))
    return await ask.soon(key, lambda: _counted(ask, others), 2.0)


async def _counted(ask: PageRequest, others: Filters) -> dict[Status, tuple[int, bool]]:
    found, left = dict[Status, tuple[int, bool]](), set(STATUSES)
    if not others.keys() - {"queue"}:  # the counts of queues are exact, but for what is over
        wanted = others.get("queue")
        queues = [one for one in await ask.queues() if wanted in (None, one.name)]
        for status in left - HISTORY:
            number = sum(one.counts.get(status, 0) + one.own_counts.get(status, 0) for one in queues)
            found[status] = number, True
    for status in sorted(left - found.keys()):
        alike: Filters = {**others, "status": [status]}
        number = await ask.app.jobs.where(**alike).count(most=MAX_COUNTED_JOBS + 1)
        found[status] = min(number, MAX_COUNTED_JOBS), number <= MAX_COUNTED_JOBS
    return found


def _told(number: int, exact: bool) -> str:
    return count(number) + ("" if exact else "+")


def _matching(numbers: Sequence[tuple[int, bool]]) -> str:
    """Return how many jobs match, in words."""
    jobs, exact = sum(number for number, _ in numbers), all(whole for _, whole in numbers)
    return f"{_told(jobs, exact)} {'job' if jobs == 1 and exact else 'jobs'}"


async def _look(ask: PageRequest, filters: Filters, cursor: str | None) -> tuple[Page[Job], int]:
    """Return a page, and how many jobs were searched for a text; 0: an index found them."""
    if "text" not in filters:
        return await ask.app.jobs.list(limit=PAGE_JOBS, cursor=cursor, **filters), 0
    found, looks = list[Job](), 0
    while looks < MAX_SEARCH_ROUNDS:
        page = await ask.app.jobs.list(limit=PAGE_JOBS - len(found), cursor=cursor, **filters)
        found, cursor, looks = [*found, *page.items], page.cursor, looks + 1
        if cursor is None or len(found) >= PAGE_JOBS:
            break
    return Page(tuple(found), cursor), MAX_SEARCH_ROUNDS * 5000


async def _surroundings(ask: PageRequest, asked: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values that the filters can have."""
    tasks, queues = list[str](), list[str]()
    if ask.viewer.customer is None:
        tasks = [one.name for one in await ask.soon("tasks", ask.app.tasks.list) or ()]
        queues = [one.name for one in await ask.soon("queue names", ask.queues, NAMES_CACHE_SECONDS) or ()]
    hidden = {name: value for name, value in asked.items() if name in (*IDS, "worker", "fingerprint", "schedule")}
    return {
        "asked": asked,
        "hidden": hidden,
        "statuses": STATUSES,
        "reasons": list(Reason),
        "withins": WITHIN,
        "tasks": tasks,
        "queues": sorted(queues)[:MAX_QUEUE_CHOICES],
        "cursor": ask.given("cursor"),
    }


# -- the same for programs


async def _exported(ask: PageRequest, kept: Filters) -> AsyncIterator[Job]:
    cursor, left = None, MAX_EXPORT_JOBS
    while left > 0:
        page = await ask.app.jobs.list(limit=min(500, left), cursor=cursor, **kept)
        for job in ask.seen(page.items):
            yield job
        left -= len(page.items) or 500
        cursor = page.cursor
        if cursor is None:
            return


async def as_json(ask: PageRequest) -> Response:
    """Return the jobs that match, as one array."""
    kept = ask.kept(filters_in(ask.request.query_params, ask.now)[0])  # while an error response is still possible

    async def text() -> AsyncIterator[bytes]:
        first = True
        async for job in _exported(ask, kept):
            yield (b"[\n" if first else b",\n") + msgspec.json.encode(job.to_dict())
            first = False
        yield b"[]\n" if first else b"\n]\n"

    return StreamingResponse(text(), media_type="application/json", headers=_saved("jobs.json"))


COLUMNS = (
    *("id", "task", "queue", "status", "reason", "priority", "attempt", "customer", "tags"),
    *("created_at", "started_at", "finished_at", "worker", "error", "payload", "result"),
)


async def as_csv(ask: PageRequest) -> Response:
    """Return the jobs that match, as lines for a spreadsheet."""
    kept = ask.kept(filters_in(ask.request.query_params, ask.now)[0])

    async def text() -> AsyncIterator[bytes]:
        yield _line(COLUMNS)
        async for job in _exported(ask, kept):
            yield _line([_cell(job, column) for column in COLUMNS])

    return StreamingResponse(text(), media_type="text/csv; charset=utf-8", headers=_saved("jobs.csv"))


def _cell(job: Job, column: str) -> str:
    match column:
        case "payload":
            return job.payload_text
        case "result":
            return job.result_text or ""
        case "error":
            return "" if job.error is None else f"{job.error.type}: {job.error.message}"
        case "tags":
            return " ".join(job.tags)
        case _:
            value = getattr(job, column)
            return "" if value is None else value.isoformat() if isinstance(value, datetime) else str(value)


def _line(cells: Any) -> bytes:
    """Return a line of CSV; a cell that a spreadsheet would run as a formula is escaped."""
    text = io.StringIO()
    csv.writer(text).writerow([f"'{cell}" if cell[:1] in "=+-@\t\r" and cell else cell for cell in cells])
    return text.getvalue().encode()


def _saved(name: str) -> dict[str, str]:
    return {"Content-Disposition": f'attachment; filename="{name}"'}


VIEWS = (
    PageView("/jobs", "jobs", jobs, "jobs", "customer"),
    PageView("/jobs.json", "jobs_json", as_json, "jobs", "customer"),
    PageView("/jobs.csv", "jobs_csv", as_csv, "jobs", "customer"),
)
