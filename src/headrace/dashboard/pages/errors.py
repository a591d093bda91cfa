"""Errors of attempts, also of jobs that succeeded later, the commonest first, each with a job that had it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from msgspec.structs import replace

from headrace.core.hidden_errors import NAME
from headrace.core.job import Job
from headrace.core.stats.errors import RecentError
from headrace.dashboard.page import PageRequest, PageView, Shown

__all__ = ["VIEWS"]

MAX_ERRORS = 50
SPANS = {"1h": (timedelta(hours=1), "last hour"), "24h": (timedelta(hours=24), "last 24 h")}


async def errors(ask: PageRequest) -> Shown:
    """Show the errors of the last hour or day; by default, of the hour that alerts are about."""
    span = ask.given("span") if ask.given("span") in SPANS else "1h"
    asked = {name: ask.given(name) for name in ("task", "queue")}
    data = await ask.soon(("errors", span, *asked.values()), lambda: _found(ask, SPANS[span or "1h"][0], asked))
    found: list[tuple[RecentError, Job | None]] | None = None if data is None else data["found"]
    if ask.hides and found is not None:
        found = [(replace(one, type=NAME, place=None), job) for one, job in found]
    more = {"found": found, "all": data is None or data["all"], "asked": asked, "span": span}
    return Shown("errors.html", "Errors of attempts", more | {"spans": {one: told for one, (_, told) in SPANS.items()}})


async def _found(ask: PageRequest, since: timedelta, asked: dict[str, str | None]) -> dict[str, Any]:
    found = await ask.app.stats.errors(since=since, limit=MAX_ERRORS, task=asked["task"], queue=asked["queue"])
    jobs = await ask.app.jobs.get_many([one.example for one in found])
    return {"found": list(zip(found, jobs, strict=True)), "all": len(found) < MAX_ERRORS}


VIEWS = (PageView("/errors", "errors", errors, "dead"),)
