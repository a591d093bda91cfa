"""A decided transition with its effects, as a value; and an engine's verdicts on it."""

from __future__ import annotations

from enum import StrEnum
from uuid import UUID

import msgspec

from headrace.core.job import Attempt, Event, Job
from headrace.core.status import Status, Verb

__all__ = ["Applied", "Change", "Conflict", "Key", "Verdict", "WasStale"]


class Key(StrEnum):
    """What becomes of the job's dedup key with a change."""

    KEEP = "keep"
    TAKE = "take"
    RELEASE = "release"


class Change(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """Make ``job`` of the stored job, if it is still at ``rev`` (and, for a worker's change, still its own).

    Everything that must follow is in here and is written in the same commit.
    """

    verb: Verb
    rev: int
    """The rev the decision was made from."""
    job: Job
    """What becomes of it; carries its new rev."""
    epoch: int | None = None
    """With ``worker``: the owner this change speaks for. None: nobody's, judged by rev alone."""
    worker: UUID | None = None
    attempt: Attempt | None = None
    """The attempt this change closes; a record of the same number folds it in (``Attempt.fold``)."""
    key: Key = Key.KEEP
    was: Status | None = None
    """The terminal status it leaves; None: it was live."""
    event: Event | None = None
    id: int = 0
    """Names this one write, so that a repeat after a lost reply is recognised; stamped by whoever writes it."""


class Applied(msgspec.Struct, frozen=True, gc=False):
    """The change is durable (now, or already since an earlier try); ``job`` is what it made."""

    job: Job
    noted: bool = False
    """Whether something is to follow from it, which ``tell`` does: others waited for the job, for one."""


class Conflict(msgspec.Struct, frozen=True):
    """Same owner, but the job moved on: decide again from ``job``. ``holder``: a key to take was not free."""

    job: Job
    holder: Job | None = None


class WasStale(msgspec.Struct, frozen=True):
    """The owner moved (``job`` is None when it is gone altogether): drop the change."""

    job: Job | None


Verdict = Applied | Conflict | WasStale
