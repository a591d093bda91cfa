"""The record: what was asked for (``Spec``), how it stands (``Job``), and its attempts."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec
from msgspec.structs import replace

from headrace.core.retry import Retry
from headrace.core.status import ENDED, HELD, Outcome, Reason, Status

__all__ = ["Attempt", "ErrorInfo", "Event", "History", "Job", "Progress", "Spec", "Streak"]


class ErrorInfo(msgspec.Struct, frozen=True, omit_defaults=True):
    """What went wrong, as kept with the job and the attempt."""

    type: str
    message: str
    traceback: str | None = None
    details: dict[str, Any] | None = None

    def cut(self, limit: int) -> ErrorInfo:
        """The same error as plain JSON of at most ``limit`` bytes.

        Details go first, then the middle of the traceback, of the message, of the type.
        """
        trace = None if self.traceback is None else _plain(self.traceback)
        kept = ErrorInfo(_plain(self.type), _plain(self.message), trace, _plain_details(self.details))
        if _size(kept) <= limit:
            return kept
        texts = {"traceback": trace or "", "message": kept.message, "type": kept.type}
        # No text keeps more characters than the whole may have bytes: a huge one is not measured again and again.
        keep = {name: min(len(text), limit) for name, text in texts.items()}
        kept = replace(kept, details=None, **{name: _shorten(text, keep[name]) for name, text in texts.items()})
        for name, text in texts.items():
            while keep[name] and _size(kept) > limit:
                keep[name] = keep[name] * 3 // 4
                kept = replace(kept, **{name: _shorten(text, keep[name])})
        return replace(kept, traceback=kept.traceback or None)


def _size(error: ErrorInfo) -> int:
    return len(msgspec.json.encode(error))


def _plain_details(details: dict[str, Any] | None) -> dict[str, Any] | None:
    """The details as JSON values; what is none is shown as ``repr`` shows it, and what fits nowhere is left out."""
    if details is None:
        return None
    try:
        return msgspec.json.decode(msgspec.json.encode(details, enc_hook=repr), type=dict[str, Any])
    except (TypeError, ValueError, OverflowError, RecursionError):
        return None


def _plain(text: str) -> str:
    """The text in characters that can be stored: half a surrogate pair, as in odd file names, is spelled out."""
    return text.encode("utf-8", "backslashreplace").decode()


def _shorten(text: str, keep: int) -> str:
    if len(text) <= keep:
        return text
    if keep == 0:
        return ""
    head = keep // 3
    return f"{text[:head]} … {text[len(text) - (keep - head) :]}"


class Progress(msgspec.Struct, frozen=True, omit_defaults=True):
    """How far a running job says it is."""

    percent: float
    message: str | None = None
    step: str | None = None
    estimated_completion: datetime | None = None


class Attempt(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One execution of a job; ``count`` > 1 is a run of uncharged ones folded together."""

    number: int
    epoch: int
    outcome: Outcome
    finished_at: datetime
    worker: UUID | None = None
    assigned_at: datetime | None = None
    started_at: datetime | None = None
    error: ErrorInfo | None = None
    cause: str | None = None
    count: int = 1

    def fold(self, again: Attempt) -> Attempt:
        """This record of a run that went on: counting the other too, ended when that did, else as the first was."""
        return replace(self, count=self.count + again.count, finished_at=again.finished_at)


class Event(msgspec.Struct, frozen=True, omit_defaults=True):
    """An act of a person or program on a job, kept for the audit."""

    verb: str
    at: datetime
    by: str | None = None
    note: str | None = None


class History(msgspec.Struct, frozen=True):
    """What is kept of a job beside its record, oldest first."""

    attempts: tuple[Attempt, ...] = ()
    events: tuple[Event, ...] = ()


class Streak(msgspec.Struct, frozen=True):
    """The run of equal uncharged attempts the job is in; the next one folds into attempt ``number``."""

    number: int
    outcome: Outcome


class Spec(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What was asked for at submit; never changes."""

    task: str
    created_at: datetime
    queue: str = "default"
    priority: int = 50
    retry: Retry = Retry()
    timeout: float | None = 1800.0
    tags: tuple[str, ...] = ()
    metadata: dict[str, Any] = {}
    customer: str | None = None
    headers: dict[str, str] | None = None
    route: dict[str, Any] | None = None
    query: dict[str, Any] | None = None
    requires: dict[str, Any] = {}
    dedup: str | None = None
    request_key: str | None = None
    request_hash: str | None = None
    concurrency_key: str | None = None
    parent: UUID | None = None
    root: UUID | None = None
    batch: UUID | None = None
    after: tuple[UUID, ...] = ()
    rerun_of: UUID | None = None
    schedule: str | None = None
    fire_at: datetime | None = None
    webhook: dict[str, Any] | None = None
    trace: dict[str, str] | None = None


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """One durable submission of a task, as stored."""

    id: UUID
    spec: Spec
    payload_text: str
    status: Status
    available_at: datetime
    arrived_at: datetime
    updated_at: datetime
    seq: int = 0
    reason: Reason | None = None
    rev: int = 1
    epoch: int = 0
    attempt: int = 0
    charged: int = 0
    unstarted_losses: int = 0
    redrives: int = 0
    waits: int = 0
    worker: UUID | None = None
    claim: int | None = None
    act_by: datetime | None = None
    not_after: datetime | None = None
    assigned_at: datetime | None = None
    accepted_at: datetime | None = None
    started_at: datetime | None = None
    first_started_at: datetime | None = None
    finished_at: datetime | None = None
    cancel_requested_at: datetime | None = None
    streak: Streak | None = None
    progress: Progress | None = None
    result_text: str | None = None
    error: ErrorInfo | None = None

    @property
    def payload(self) -> dict[str, Any]:
        """The arguments by parameter name."""
        return msgspec.json.decode(self.payload_text, type=dict[str, Any])

    @property
    def result(self) -> Any:
        """What the handler returned, as plain JSON values; None unless completed."""
        return None if self.result_text is None else msgspec.json.decode(self.result_text)

    @property
    def task(self) -> str:
        """The task's name."""
        return self.spec.task

    @property
    def queue(self) -> str:
        """The line it stands in."""
        return self.spec.queue

    @property
    def priority(self) -> int:
        """0 to 100, higher first."""
        return self.spec.priority

    @property
    def tags(self) -> tuple[str, ...]:
        """Labels for finding it."""
        return self.spec.tags

    @property
    def metadata(self) -> dict[str, Any]:
        """Whatever the submitter wanted to keep with it."""
        return self.spec.metadata

    @property
    def requires(self) -> dict[str, Any]:
        """What a worker must offer to take it."""
        return self.spec.requires

    @property
    def dedup(self) -> str | None:
        """The key no second live job of this task may hold."""
        return self.spec.dedup

    @property
    def created_at(self) -> datetime:
        """When it was submitted."""
        return self.spec.created_at

    @property
    def timeout(self) -> float | None:
        """Seconds one attempt may run; None is for ever."""
        return self.spec.timeout

    @property
    def max_attempts(self) -> int:
        """How many charged attempts it may have."""
        return self.spec.retry.max_attempts

    @property
    def timeout_at(self) -> datetime | None:
        """When the running attempt must be over."""
        if self.started_at is None or self.spec.timeout is None:
            return None
        return self.started_at + timedelta(seconds=self.spec.timeout)

    @property
    def ended(self) -> bool:
        """Whether it is in a terminal status."""
        return self.status in ENDED

    @property
    def held(self) -> bool:
        """Whether a worker has it."""
        return self.status in HELD

    def to_dict(self, history: History | None = None) -> dict[str, Any]:
        """The whole record as JSON values, keyed by the field names of the lifecycle page."""
        spec = {name: getattr(self.spec, name) for name in self.spec.__struct_fields__}
        state = {name: getattr(self, name) for name in self.__struct_fields__ if name not in _INNER}
        record = spec | state
        record |= {"payload": self.payload, "result": self.result, "max_attempts": self.max_attempts}
        record["timeout_at"] = self.timeout_at
        if history is not None:
            record["attempts"] = [msgspec.structs.asdict(attempt) for attempt in history.attempts]
            record["events"] = [msgspec.structs.asdict(event) for event in history.events]
        return msgspec.json.decode(msgspec.json.encode(record), type=dict[str, Any])


_INNER = frozenset({"spec", "payload_text", "result_text", "claim", "streak", "act_by"})
