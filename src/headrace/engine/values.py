"""Replies: the values that engines take and return beside those of the core."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Literal
from uuid import UUID

import msgspec

from headrace.core.batch import Batch
from headrace.core.change import Change, LeftOut
from headrace.core.codec.record import Record
from headrace.core.defaults import MAX_PROFILES
from headrace.core.job import Job
from headrace.core.matching.match import Profile
from headrace.errors import HeadraceError

__all__ = [
    "MAX_BATCH",
    "MAX_PROFILES",
    "Check",
    "Claimed",
    "Companions",
    "Duplicated",
    "InsertAnswer",
    "Inserted",
    "Overdue",
    "OverdueJobs",
    "Processed",
    "Profiles",
    "Refused",
    "Setting",
]

MAX_BATCH = 1000
"""Maximum rows in one call: jobs to insert, changes, appends."""


class Inserted(msgspec.Struct, frozen=True, gc=False, tag=True):
    """The job is durable. ``job`` is as stored: with its order number, and, if its id existed before, as it is now."""

    job: Job


class Duplicated(msgspec.Struct, frozen=True, tag=True):
    """Another job of the same task holds the dedup key, or the request made this job before; no new job was stored."""

    job: Job
    replaced: bool = False
    """Whether ``job`` took over what was submitted (``Change.merges``), now or at an earlier submit of this id."""


class Refused(msgspec.Struct, frozen=True, tag=True):
    """The store does not accept this job, and nothing of it was stored. ``Unavailable`` as the error means not now: an
    open transaction has locked its key, a relative of it, or the room for its profile. The caller tries again."""

    error: HeadraceError


InsertAnswer = Inserted | Duplicated | Refused

Companions = Mapping[UUID, Sequence[Job]]
"""Jobs that are stored with another one or not at all, by the id of that one."""


class Processed(msgspec.Struct, frozen=True):
    """What followed from notes that were processed."""

    changes: tuple[Change, ...] = ()
    """The changes of other jobs."""
    over: tuple[Batch, ...] = ()
    """Batches that have ended and are not settled yet."""
    more: bool = False
    """Whether there may be more notes to process."""
    left_out: tuple[LeftOut, ...] = ()
    """What the changes should have inserted, and did not."""


class Claimed(msgspec.Struct, frozen=True, tag=True):
    """What a claim was given, and what the worker should know."""

    jobs: tuple[Job, ...]
    profiles_rev: int
    settings_rev: int
    next_due: datetime | None
    """When a claim may give more: the next deferred job falls due, or a rate that kept a job waiting lets one start
    (``Dealt.next_permit``), whichever is sooner; None: unknown. Without a hint an earlier claim is useless."""
    full: bool = False
    """A limit of jobs at once kept a job waiting: claim again when one of those jobs has left its worker."""
    paced: frozenset[UUID] = frozenset()
    """Those of the jobs that spent a permit of a rate (``core.limits.settings.Limits.spending``): each begins within
    ``ClaimRequest.lead`` of its claim, or the worker releases it and the permit is lost. In the reply to a repeated
    request that is the claim that gave them away, not the repeat."""
    over: bool = False
    """A repeated request of which the worker has started all that it still holds: it is given nothing."""


class Overdue(msgspec.Struct, frozen=True):
    """A job that the sweeper must check, with what the decision needs to know of its worker."""

    job: Job
    alive: bool = True
    unnamed: int = 0
    """Successive beats that did not name it."""
    heard_at: datetime | None = None
    """The last beat of its worker."""
    beside_suspect: bool = False
    """A suspect and another job ran together on its worker when that was buried."""
    mass_death: bool = False
    """Other workers died at the same time as its own."""


class OverdueJobs(msgspec.Struct, frozen=True):
    """The jobs that the sweeper must check now, and when it must check again."""

    jobs: tuple[Overdue, ...] = ()
    next_at: datetime | None = None
    """The next ``act_by`` that has not passed; None: there is none."""


class Profiles(msgspec.Struct, frozen=True):
    """Every live profile."""

    rev: int
    profiles: tuple[Profile, ...]


class Setting(msgspec.Struct, frozen=True):
    """A small document under compare-and-set; its key is a name behind ``queue:``, ``limit:``, ``rate:``, ``task:``,
    ``schedule:`` or ``clock:``."""

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
