"""What stands on a screen in place of a job that cannot be shown: the others are, and it is seen which this one is."""

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
    """Why something cannot be shown, on one line."""
    try:
        said = " ".join(str(error).split())
    except Exception:
        said = ""
    return f"{type(error).__name__}: {said[:300]}" if said else type(error).__name__


def stand_in(id: UUID, error: BaseException, *, seq: int = 0, status: Status = Status.FAILED) -> Job:
    """A job with this id of which nothing is known but why it cannot be shown.

    No change of it ever takes: its rev is none that a stored job has.
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
    """What ``show`` makes of a job, one of many; where that fails, what it makes of one that stands in for it."""
    try:
        return show(job)
    except Exception as error:
        return show(stand_in(job.id, error, seq=job.seq, status=job.status))


def is_stand_in(job: Job) -> bool:
    """Whether this is what stands in place of a job."""
    return job.rev == 0 and job.error is not None and job.error.type == NOT_SHOWN


def _made_at(id: UUID) -> datetime:
    """The moment that is in an id of ours."""
    return _EPOCH + timedelta(milliseconds=id.int >> 80) if id.version == 7 else _EPOCH
