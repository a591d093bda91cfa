"""Stand-ins for jobs that cannot be shown: a list shows all other jobs, and names the one that it cannot show."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import TypeVar
from uuid import UUID

from headrace.core.attempt import ErrorInfo
from headrace.core.job import Job, Spec
from headrace.core.status import Status

__all__ = ["NOT_SHOWN", "guarded", "is_stand_in", "stand_in", "told_fault"]

T = TypeVar("T")

NOT_SHOWN = "cannot be shown"
"""The type of the error that a stand-in has."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def told_fault(error: BaseException) -> str:
    """Return why something cannot be shown, on one line."""
    try:
        said = " ".join(str(error).split())
    except Exception:
        said = ""
    return f"{type(error).__name__}: {said[:300]}" if said else type(error).__name__


def stand_in(id: UUID, error: BaseException, *, seq: int = 0, status: Status = Status.FAILED) -> Job:
    """Return a job with this id, of which only the reason is known why it cannot be shown.

    No change of it is ever applied: its rev is one that no stored job has.
    """
    at = _made_at(id)
    return Job(
        id=id,
        spec=Spec(task="?", created_at=at, queue="?"),
        payload_text="{}",
        status=status,
        available_at=at,
        arrived_at=at,
        updated_at=at,
        seq=seq,
        rev=0,
        error=ErrorInfo(NOT_SHOWN, told_fault(error)),
    )


def guarded(show: Callable[[Job], T], job: Job) -> T:
    """Return what ``show`` makes of a job, one of many; where that fails, what it makes of a stand-in."""
    try:
        return show(job)
    except Exception as error:
        return show(stand_in(job.id, error, seq=job.seq, status=job.status))


def is_stand_in(job: Job) -> bool:
    """Return whether this job is a stand-in."""
    return job.rev == 0 and job.error is not None and job.error.type == NOT_SHOWN


def _made_at(id: UUID) -> datetime:
    """Return the time in an id of ours."""
    return _EPOCH + timedelta(milliseconds=id.int >> 80) if id.version == 7 else _EPOCH
