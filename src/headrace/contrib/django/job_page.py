"""A job as Django's admin shows it: its data, and its events in the order of time."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from datetime import datetime, tzinfo
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

import msgspec

from headrace.core.attempt import History
from headrace.core.job import Job
from headrace.core.status import Status

if TYPE_CHECKING:
    from headrace.app import App

__all__ = ["Happened", "about", "happened", "listed", "statuses"]

MAX_SHOWN_CHARACTERS = 20_000
"""Maximum characters shown of a payload or a result."""


_LISTED = ("id", "task", "status", "reason", "queue", "attempt", "max_attempts", "created_at", "finished_at")
_SHOWN = (*_LISTED, "priority", "customer", "tags", "progress", "parent", "rerun_of", "available_at", "error")
_ATTEMPT = ("number", "outcome", "started_at", "finished_at", "worker", "error")


class Happened(NamedTuple):
    """One event of a job."""

    at: datetime
    what: str
    by: str
    """The worker or the person; empty: neither."""


def statuses() -> list[str]:
    """Return the statuses by which jobs can be filtered."""
    return [one.value for one in Status if one is not Status.PENDING]


def listed(jobs: Iterable[Job]) -> list[dict[str, Any]]:
    """Return jobs as rows of a list."""
    return [_fields(job, _LISTED) for job in jobs]


def _fields(record: object, names: Iterable[str]) -> dict[str, Any]:
    """Return fields of a record as they are: a template that reads the record itself gets JSON values."""
    return {name: getattr(record, name) for name in names}


async def about(app: App, id: UUID, zone: tzinfo) -> dict[str, Any]:
    """All that is shown of a job; ``zone``: of the reader. :raises JobNotFound:"""
    job = await app.jobs.get(id)
    history, why = await asyncio.gather(app.jobs.history(id), app.jobs.explain(id, zone=zone))
    return {
        "job": _fields(job, _SHOWN),
        "why": why,
        "attempts": [_fields(one, _ATTEMPT) for one in history.attempts],
        "happened": happened(job, history),
        "payload": _pretty(job.payload_text),
        "result": None if job.result_text is None else _pretty(job.result_text),
    }


def happened(job: Job, history: History) -> list[Happened]:
    """Return the events of a job, oldest first."""
    found = [Happened(job.created_at, "submitted", job.customer or "")]
    for one in history.attempts:
        worker = "" if one.worker is None else str(one.worker)
        if one.started_at is not None:
            found.append(Happened(one.started_at, f"attempt {one.number} started", worker))
        error = "" if one.error is None else f" ({one.error.type})"
        found.append(Happened(one.finished_at, f"attempt {one.number} {one.outcome}{error}", worker))
    if job.held and job.started_at is not None:
        found.append(Happened(job.started_at, f"attempt {job.attempt} started", str(job.worker or "")))
    found += [Happened(one.at, _said(one.verb, one.note), one.by or "") for one in history.events]
    if job.ended and job.finished_at is not None:
        why = "" if job.reason is None else f" ({job.reason})"
        found.append(Happened(job.finished_at, f"{job.status}{why}", ""))
    return sorted(found, key=lambda one: one.at)


def _said(verb: str, note: str | None) -> str:
    return verb.replace("_", " ") + (f": {note}" if note else "")


def _pretty(text: str) -> str:
    shown = msgspec.json.format(text.encode(), indent=2).decode() if len(text) <= MAX_SHOWN_CHARACTERS else text
    return (
        shown
        if len(shown) <= MAX_SHOWN_CHARACTERS
        else f"{shown[:MAX_SHOWN_CHARACTERS]}\n… {len(shown) - MAX_SHOWN_CHARACTERS} more characters"
    )
