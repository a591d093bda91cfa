"""Answers: the values that engines take and give beside those of the core."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal
from uuid import UUID

import msgspec
from msgspec.structs import replace

from headrace.core.batch import Batch
from headrace.core.change import Change
from headrace.core.job import Job
from headrace.core.match import Profile
from headrace.core.record import Record
from headrace.core.rules import Rules
from headrace.core.silence import silent_since
from headrace.errors import HeadraceError

__all__ = [
    "MAX_BATCH",
    "MAX_PROFILES",
    "Alive",
    "Beat",
    "Check",
    "Claimed",
    "Dead",
    "Duplicated",
    "InsertAnswer",
    "Inserted",
    "Overdue",
    "Processed",
    "Profiles",
    "Refused",
    "Setting",
    "WorkerInfo",
    "WorkerRow",
]

MAX_BATCH = 1000
"""How many rows are in one call at most: jobs to insert, changes, appends."""
MAX_PROFILES = 10_000
"""How many profiles may have live jobs."""


class Inserted(msgspec.Struct, frozen=True, gc=False):
    """The job is durable. ``job`` is as it is stored: with its order number, and, if its id was here before, as it is
    now."""

    job: Job


class Duplicated(msgspec.Struct, frozen=True):
    """A live job of the same task holds the dedup key; nothing was stored."""

    job: Job


class Refused(msgspec.Struct, frozen=True):
    """The store does not take this job, and nothing of it was stored. ``Unavailable`` as the error means not now: a
    transaction that is still open holds its key, a relative of it, or the room for its profile. The caller tries
    again."""

    error: HeadraceError


InsertAnswer = Inserted | Duplicated | Refused


class Processed(msgspec.Struct, frozen=True):
    """What followed from notes that were processed."""

    changes: tuple[Change, ...] = ()
    """What was made of other jobs."""
    over: tuple[Batch, ...] = ()
    """Batches that have ended and of which ``settle`` was not said yet."""
    more: bool = False
    """Whether there may be more notes to process."""


class Claimed(msgspec.Struct, frozen=True):
    """What a claim was given, and what the worker should know."""

    jobs: tuple[Job, ...]
    profiles_rev: int
    settings_rev: int
    next_due: datetime | None
    """When the next deferred job falls due, if the store knows one: no need to ask earlier without a hint."""
    full: bool = False
    """A limit of jobs at once kept somebody waiting: worth asking again when one of them has left its worker."""


class Alive(msgspec.Struct, frozen=True):
    """The answer to a living worker's beat."""

    beats: int
    cancels: tuple[UUID, ...]
    """Jobs it holds whose cancel was requested."""
    unknown: tuple[Job, ...]
    """Jobs the store gave it more than two beats ago that the beat did not name."""
    profiles_rev: int
    settings_rev: int


class Dead(msgspec.Struct, frozen=True):
    """The worker was buried, or never registered: it owns nothing and must register anew."""


class WorkerInfo(msgspec.Struct, Record, frozen=True, kw_only=True):
    """Who a worker is; made anew at every start."""

    id: UUID
    host: str
    pid: int
    started_at: datetime
    concurrency: int
    tasks: tuple[str, ...] = ()
    queues: tuple[str, ...] | None = None
    offers: dict[str, Any] = {}
    version: str = ""
    lease: float | None = None
    """Seconds of silence after which it counts as silent; None: as long as whoever asks takes for a lease."""


class Beat(msgspec.Struct, Record, frozen=True, kw_only=True):
    """A sign of life: what the worker holds, and how it is."""

    held: tuple[UUID, ...] = ()
    state: str = "running"
    """running, draining, or blocked; where workers are shown, also silent or dead."""
    busy: int = 0
    buffered: int = 0
    stuck_threads: int = 0
    """Threads that outlived their attempts."""
    done: int = 0
    """Attempts finished since the start."""


class WorkerRow(msgspec.Struct, Record, frozen=True):
    """A worker as the store knows it."""

    info: WorkerInfo
    beat: Beat
    beats: int
    """The number its last beat raised; what watchers look at."""
    beat_at: datetime
    alive: bool
    """The store has not buried it, nor did it leave; where workers are shown, also: it is not silent."""
    holds: int
    """How many jobs the store gives to it."""
    silent_since: datetime | None = None
    """Its last beat, where workers are shown and that is longer ago than its lease."""

    def as_heard(self, now: datetime, rules: Rules) -> WorkerRow:
        """The worker as it is shown: judged by its last beat, since nobody may be left to bury it."""
        if self.silent_since is not None:
            return self
        if not self.alive:
            return replace(self, beat=replace(self.beat, state="dead"))
        since = silent_since(self.beat_at, now, self.info.lease or rules.lease)
        if since is None:
            return self
        return replace(self, alive=False, silent_since=since, beat=replace(self.beat, state="silent"))

    @property
    def takes(self) -> bool:
        """Whether it takes jobs: alive, and not about to stop."""
        return self.alive and self.beat.state != "draining"


class Overdue(msgspec.Struct, frozen=True):
    """A job the sweeper must look at, with what the decision needs to know of its worker."""

    job: Job
    alive: bool = True
    unnamed: int = 0
    """Successive beats that did not name it."""
    heard_at: datetime | None = None
    """The last beat of its worker."""


class Profiles(msgspec.Struct, frozen=True):
    """Every live profile."""

    rev: int
    profiles: tuple[Profile, ...]


class Setting(msgspec.Struct, frozen=True):
    """A small document under compare-and-set: ``queue:NAME``, ``task:NAME``, ``schedule:NAME``."""

    key: str
    value: str
    """JSON text."""
    rev: int


class Check(msgspec.Struct, Record, frozen=True):
    """One finding of a health check, and what to do about it."""

    name: str
    level: Literal["ok", "warn", "fail"]
    message: str
    remedy: str | None = None
