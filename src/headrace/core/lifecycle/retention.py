"""How long a job is kept after its end, if its submit or its task says so, and when that is over."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING
from uuid import UUID

import msgspec

from headrace.core.status import Status
from headrace.core.times import length

if TYPE_CHECKING:
    from headrace.core.defaults import Retention
    from headrace.core.job import Job

__all__ = ["Kept", "is_past", "latest_end", "may_be_pruned", "up_to"]


class Kept(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The retention of one job, in seconds by the status it ends in; None: as the store keeps all others."""

    completed: float | None = None
    failed: float | None = None
    cancelled: float | None = None

    def of(self, status: Status) -> timedelta | None:
        """Return the retention of one terminal status."""
        found: float | None = getattr(self, status.value)
        return None if found is None else timedelta(seconds=found)

    def __str__(self) -> str:
        spans = {name: span for name in self.__struct_fields__ if (span := getattr(self, name)) is not None}
        if len(spans) == len(self.__struct_fields__) and len(set(spans.values())) == 1:
            return length(next(iter(spans.values())))
        return ", ".join(f"{name} {length(span)}" for name, span in spans.items())


def is_past(job: Job, before: Mapping[Status, datetime], now: datetime | None) -> bool:
    """Return whether an ended job was kept long enough: by its own retention, else if it ended by ``before``.

    ``now``: None keeps all jobs with a retention of their own.
    """
    if job.finished_at is None or not job.ended:
        return False
    own = None if job.spec.retention is None else job.spec.retention.of(job.status)
    if own is None:
        return job.status in before and job.finished_at <= before[job.status]
    return now is not None and job.finished_at + own <= now


def up_to(job: Job, before: Mapping[Status, datetime], now: datetime | None) -> datetime | None:
    """Return up to which moment ended jobs with the retention of this one are removed; None: none is."""
    own = None if job.spec.retention is None else job.spec.retention.of(job.status)
    if own is None:
        return before.get(job.status)
    return None if now is None else now - own


def latest_end(before: Mapping[Status, datetime], gone: Iterable[Job]) -> datetime:
    """Return the latest moment up to which jobs are removed, given those: see ``core.limits.selection.forgets``."""
    return max([*before.values(), *(job.finished_at for job in gone if job.finished_at is not None)])


def may_be_pruned(id: UUID, retention: Retention, now: datetime) -> bool:
    """Return whether a job of this id that is missing may have existed, by the time in the id.

    An id without a time says nothing, and no program made one from the future. A job with a shorter retention than the
    store's may be gone earlier.
    """
    if id.version != 7:
        return False
    shortest = min(retention.completed, retention.failed, retention.cancelled)
    return (id.int >> 80) / 1000 <= now.timestamp() - shortest
