"""The words of the lifecycle: statuses, outcomes of attempts, reasons, verbs."""

from __future__ import annotations

from enum import StrEnum

__all__ = [
    "ACTION_LINES",
    "COMING",
    "DEFERRED",
    "ENDED",
    "HELD",
    "IDLE",
    "LIVE",
    "Cause",
    "Outcome",
    "Reason",
    "Status",
    "Verb",
]


class Status(StrEnum):
    """The status of a job; a job is in exactly one."""

    PENDING = "pending"
    WAITING = "waiting"
    SCHEDULED = "scheduled"
    QUEUED = "queued"
    ASSIGNED = "assigned"
    ACCEPTED = "accepted"
    RUNNING = "running"
    RETRYING = "retrying"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"


ENDED = frozenset({Status.COMPLETED, Status.FAILED, Status.CANCELLED})
"""Terminal: left only by retry, discard and resolve."""

LIVE = frozenset(Status) - ENDED

COMING = frozenset({Status.PENDING})
"""No part of this version puts a job into these statuses."""

HELD = frozenset({Status.ASSIGNED, Status.ACCEPTED, Status.RUNNING})
"""Held by one worker."""

DEFERRED = frozenset({Status.SCHEDULED, Status.RETRYING})
"""Waiting for a moment: promoted to queued when due."""

IDLE = LIVE - HELD
"""Live, and held by no worker."""


class Outcome(StrEnum):
    """How one attempt ended."""

    COMPLETED = "completed"
    FAILED = "failed"
    TIMED_OUT = "timed_out"
    LOST = "lost"
    RELEASED = "released"
    SNOOZED = "snoozed"
    CANCELLED = "cancelled"


class Reason(StrEnum):
    """Why a job ended ``failed`` or ``cancelled``."""

    RETRIES_EXHAUSTED = "retries_exhausted"
    NON_RETRYABLE = "non_retryable"
    INVALID_PAYLOAD = "invalid_payload"
    TIMEOUT = "timeout"
    LOST = "lost"
    UNDELIVERABLE = "undeliverable"
    NO_HANDLER = "no_handler"
    INVALID_RESULT = "invalid_result"
    PARENT = "parent"
    USER = "user"
    EXPIRED = "expired"
    DISCARDED = "discarded"


class Cause(StrEnum):
    """Why a held job is taken from its worker."""

    LEASE = "lease"
    BEAT = "beat"
    ACCEPT_BY = "accept_by"
    START_BY = "start_by"
    TIMEOUT = "timeout"
    CANCEL = "cancel"


class Verb(StrEnum):
    """What can be done to a job."""

    SUBMIT = "submit"
    ADMIT = "admit"
    UNBLOCK = "unblock"
    PROMOTE = "promote"
    CLAIM = "claim"
    ACCEPT = "accept"
    START = "start"
    PROGRESS = "progress"
    COMPLETE = "complete"
    FAIL = "fail"
    SNOOZE = "snooze"
    RELEASE = "release"
    LOSE = "lose"
    EXPIRE = "expire"
    CANCEL = "cancel"
    RETRY = "retry"
    DISCARD = "discard"
    RESOLVE = "resolve"
    POSTPONE = "postpone"
    RUN_NOW = "run_now"
    MOVE = "move"
    REPRIORITISE = "reprioritise"
    REPLACE = "replace"
    LAPSE = "lapse"
    PREPARE = "prepare"
    RERUN = "rerun"
    PRUNE = "prune"


ACTION_LINES = {
    Verb.CANCEL: "End jobs, or ask their workers to stop them.",
    Verb.RETRY: "Retry failed or cancelled jobs.",
    Verb.RERUN: "Do the work of ended jobs again, as new jobs.",
    Verb.DISCARD: "End completed or failed jobs as cancelled (discarded).",
    Verb.RESOLVE: "Set the outcome of jobs by hand.",
    Verb.RUN_NOW: "Put scheduled or retrying jobs in line at once.",
    Verb.POSTPONE: "Let jobs wait for another time.",
    Verb.MOVE: "Move jobs to another queue.",
    Verb.REPRIORITISE: "Give jobs another priority.",
}
"""What actions of people do, in a line each; here, since ``headrace --help`` does not import the rest of the core."""
