"""Queries for many jobs: filters, pages, counts, and how a due job is shown."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any, Generic, TypeVar
from uuid import UUID

import msgspec
from msgspec.structs import replace

from headrace.core.codec.record import Record, plain, schema_of
from headrace.core.job import Job
from headrace.core.status import DEFERRED, Reason, Status
from headrace.errors import ConfigError

__all__ = ["HISTORY", "Count", "Filter", "Ledger", "Page", "as_seen", "cursor_of", "matches", "seen_status"]

T = TypeVar("T")


class Filter(msgspec.Struct, frozen=True, kw_only=True):
    """Which jobs; every given field must match, a field of several values if one of them does.

    Newest first, by order number. A range includes its beginning, and not its end.
    """

    status: frozenset[Status] = frozenset()
    """As ``seen_status`` returns it."""
    reason: frozenset[Reason] = frozenset()
    task: frozenset[str] = frozenset()
    queue: frozenset[str] = frozenset()
    customer: frozenset[str] = frozenset()
    worker: frozenset[UUID] = frozenset()
    """Jobs that one of these workers has now."""
    fingerprint: frozenset[str] = frozenset()
    """Jobs with one of these fingerprints of their last error: ``core.stats.failures``."""
    tag: str | None = None
    text: str | None = None
    """Found, ignoring case, in the id, the task, the payload, or the error's type and message."""
    schedule: str | None = None
    parent: UUID | None = None
    """Children of this job."""
    root: UUID | None = None
    """Descendants of this job, which has no parent itself."""
    batch: UUID | None = None
    rerun_of: UUID | None = None
    """Reruns of this job."""
    suspect: bool = False
    """Only jobs that are suspected of having killed their worker."""
    created_after: datetime | None = None
    created_before: datetime | None = None
    finished_after: datetime | None = None
    """A range of ends finds only jobs that have ended."""
    finished_before: datetime | None = None

    @property
    def texts(self) -> Iterator[str]:
        """Yield the texts that a job must have exactly, all but ``text``."""
        for several in (self.task, self.queue, self.customer, self.fingerprint):
            yield from several
        for one in (self.tag, self.schedule):
            if one is not None:
                yield one


class Page(msgspec.Struct, Record, Generic[T], frozen=True):
    """Some of the results, and where the next ones begin."""

    items: tuple[T, ...]
    cursor: str | None = None
    """Pass it on for the next page; None at the end."""

    def to_dict(self) -> dict[str, Any]:
        """Return the page as JSON values, each of its items by its own rule."""
        return {"items": plain(self.items), "cursor": self.cursor}

    @classmethod
    def _json_schema(cls, *parameters: Any) -> dict[str, Any]:
        """The JSON schema of a page of these."""
        schema = schema_of(cls)
        for kind in parameters:
            if isinstance(kind, type) and issubclass(kind, Record):
                schema["properties"]["items"]["items"] = kind._json_schema()
        return schema


HISTORY = frozenset({Status.COMPLETED, Status.CANCELLED})
"""Ended and needing no attention: failed jobs wait for a person."""


class Count(msgspec.Struct, Record, frozen=True):
    """How many jobs of a queue are in a status, and the earliest arrival among them (live ones only)."""

    queue: str
    status: Status
    jobs: int
    oldest: datetime | None = None
    own: bool = False
    """Whether they are headrace's own (``core.own_tasks.is_own``), which are counted apart."""


class Ledger(msgspec.Struct, Record, frozen=True):
    """The ledger: every job ever submitted (``accepted``) is live, ended or pruned.

    Beside that it counts how all ended jobs ended, the pruned ones included: completed, failed and cancelled, with
    those of unknown ending (``pruned_unknown``), are as many as ended and pruned.
    """

    accepted: int
    live: int
    ended: int
    """Ended, and still kept."""
    pruned: int
    completed: int = 0
    failed: int = 0
    cancelled: int = 0
    pruned_completed: int = 0
    """How many of the completed ones are pruned."""
    pruned_failed: int = 0
    pruned_cancelled: int = 0
    pruned_unknown: int = 0
    """How many were pruned by a version of headrace that did not count how they had ended."""

    @classmethod
    def of(
        cls, accepted: int, live: int, kept: tuple[int, int, int], pruned: int, pruned_as: tuple[int, int, int]
    ) -> Ledger:
        """Return the ledger of these counts; ``kept`` and ``pruned_as``: completed, failed, cancelled."""
        completed, failed, cancelled = (there + gone for there, gone in zip(kept, pruned_as, strict=True))
        unknown = pruned - sum(pruned_as)
        return cls(accepted, live, sum(kept), pruned, completed, failed, cancelled, *pruned_as, unknown)

    def without(self, live: int, kept: tuple[int, int, int], pruned_as: tuple[int, int, int]) -> Ledger:
        """Return the ledger of all jobs but these; what is missing from the sum still is."""
        completed, failed, cancelled = (there + gone for there, gone in zip(kept, pruned_as, strict=True))
        return Ledger(
            accepted=self.accepted - live - completed - failed - cancelled,
            live=self.live - live,
            ended=self.ended - sum(kept),
            pruned=self.pruned - sum(pruned_as),
            completed=self.completed - completed,
            failed=self.failed - failed,
            cancelled=self.cancelled - cancelled,
            pruned_completed=self.pruned_completed - pruned_as[0],
            pruned_failed=self.pruned_failed - pruned_as[1],
            pruned_cancelled=self.pruned_cancelled - pruned_as[2],
            pruned_unknown=self.pruned_unknown,
        )

    @property
    def unaccounted(self) -> int:
        """How many jobs are missing from the sum; must be 0, always."""
        return self.accepted - self.live - self.ended - self.pruned


def seen_status(job: Job, now: datetime) -> Status:
    """Return the status a view shows: a job that is due counts as queued, promoted or not."""
    return Status.QUEUED if job.status in DEFERRED and job.available_at <= now else job.status


def as_seen(job: Job, now: datetime) -> Job:
    """Return the job as a view shows it."""
    status = seen_status(job, now)
    return job if status is job.status else replace(job, status=status, arrived_at=job.available_at)


def matches(job: Job, filter: Filter, now: datetime) -> bool:
    """Return whether the filter selects the job; an engine's own search must agree with it."""
    spec = job.spec
    for one_of, has in (
        (filter.status, seen_status(job, now)),
        (filter.reason, job.reason),
        (filter.task, job.task),
        (filter.queue, job.queue),
        (filter.customer, spec.customer),
        (filter.worker, job.worker),
        (filter.fingerprint, job.fingerprint),
    ):
        if one_of and has not in one_of:
            return False
    for want, has_it in (
        (filter.schedule, spec.schedule),
        (filter.parent, spec.parent),
        (filter.root, spec.root),
        (filter.batch, spec.batch),
        (filter.rerun_of, spec.rerun_of),
    ):
        if want is not None and want != has_it:
            return False
    if filter.suspect and not job.suspect:
        return False
    if filter.tag is not None and filter.tag not in job.tags:
        return False
    return (
        _within(job.created_at, filter.created_after, filter.created_before)
        and _within(job.finished_at, filter.finished_after, filter.finished_before)
        and (filter.text is None or _mentions(job, filter.text.lower()))
    )


def _within(moment: datetime | None, after: datetime | None, before: datetime | None) -> bool:
    """Return whether a moment is in a range; None is only in one without ends."""
    if after is None and before is None:
        return True
    return moment is not None and (after is None or after <= moment) and (before is None or moment < before)


def _mentions(job: Job, text: str) -> bool:
    places = [str(job.id), job.task, job.payload_text]
    if job.error is not None:
        places += [job.error.type, job.error.message]
    return any(text in place.lower() for place in places)


def cursor_of(cursor: str | None) -> int | None:
    """Return the order number a page starts below."""
    if cursor is None:
        return None
    # Other digits, signs and underscores are numbers to Python, but no page has returned them.
    if not isinstance(cursor, str) or not (cursor.isascii() and cursor.isdigit() and len(cursor) <= 18):
        raise ConfigError(f"not a cursor of an earlier page: {cursor!r:.80}")
    return int(cursor)
