"""Jobs and histories for pictures."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from headrace.core.attempt import Attempt, ErrorInfo, Event, History
from headrace.core.job import Job, Spec
from headrace.core.status import Outcome, Reason, Status

T0 = datetime(2026, 1, 1, 12, tzinfo=UTC)
WORKER = UUID("01990000-0000-7000-8000-00000000beef")
ID = UUID("01990000-0000-7000-8000-0000deadbeef")


def at(seconds: float) -> datetime:
    return T0 + timedelta(seconds=seconds)


def job(**changes: Any) -> Job:
    """A job submitted at T0, waiting."""
    fields: dict[str, Any] = {
        "id": ID,
        "spec": Spec(task="resize", created_at=T0, queue="images", tags=("a", "b")),
        "payload_text": '{"image":"[bold]cat.png"}',
        "status": Status.QUEUED,
        "available_at": T0,
        "arrived_at": T0,
        "updated_at": T0,
    }
    return Job(**(fields | changes))


def attempt(number: int, begin: float, end: float, outcome: Outcome, **changes: Any) -> Attempt:
    fields: dict[str, Any] = {"worker": WORKER, "assigned_at": at(begin), "started_at": at(begin)}
    return Attempt(number=number, epoch=number, outcome=outcome, finished_at=at(end), **(fields | changes))


def dead_letter() -> tuple[Job, History]:
    """Failed twice, ended failed, then somebody discarded it."""
    error = ErrorInfo("ValueError", "boom [red]", "Traceback…\nValueError: boom [red]")
    attempts = (attempt(1, 1, 3, Outcome.FAILED, error=error), attempt(2, 5, 10, Outcome.TIMED_OUT, cause="timeout"))
    events = (Event("discard", at(20), "cli"),)
    ended = job(
        status=Status.CANCELLED,
        reason=Reason.DISCARDED,
        attempt=2,
        charged=2,
        error=error,
        finished_at=at(20),
        updated_at=at(20),
    )
    return ended, History(attempts, events)
