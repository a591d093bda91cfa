"""The record: what was requested (``Spec``), its state (``Job``), and computed ids.

A computed id is the same however often the same job is decided on.
"""

from __future__ import annotations

import hashlib
from datetime import datetime, timedelta
from typing import Any, Literal, get_type_hints
from uuid import UUID

import msgspec

from headrace.core.attempt import Attempt, ErrorInfo, Event, History, Progress, Streak
from headrace.core.codec.record import Record, schema_of
from headrace.core.lifecycle.retention import Kept
from headrace.core.lifecycle.retry import Retry
from headrace.core.priority import DEFAULT_PRIORITY, PriorityBand, band_of
from headrace.core.status import ENDED, HELD, Reason, Status
from headrace.core.validation import plain, plain_id
from headrace.core.webhooks.target import Notified, Target
from headrace.errors import ConfigError, shown

__all__ = [
    "AfterWhen",
    "Attempt",
    "ErrorInfo",
    "Event",
    "History",
    "Job",
    "OnDuplicate",
    "OnParentFailure",
    "Pairs",
    "Progress",
    "Spec",
    "Streak",
    "Values",
    "as_id",
    "derived_id",
    "document_fields",
    "json_or_text",
    "raw_json",
    "spec_of",
]


Values = dict[str, tuple[str, ...]]
"""The values of each name, in their order: a header may be given more than once."""
Pairs = tuple[tuple[str, str], ...]
"""Names and values, in the order of all: a parameter may be given more than once."""
AfterWhen = Literal["succeeded", "ended"]
OnParentFailure = Literal["cancel", "fail"]
OnDuplicate = Literal["return", "raise", "replace"]


class Spec(msgspec.Struct, Record, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """What the submit requested; never changes."""

    task: str
    created_at: datetime
    queue: str = "default"
    priority: int = DEFAULT_PRIORITY
    retry: Retry = Retry()
    timeout: float | None = 1800.0
    heartbeat: float | None = None
    remote_heartbeat: float | None = None
    retention: Kept | None = None
    tags: tuple[str, ...] = ()
    metadata: dict[str, Any] = {}
    customer: str | None = None
    headers: Values | None = None
    route: dict[str, Any] | None = None
    query: Pairs | Values | None = None
    """By name where an earlier version stored it; ``Job.query`` is always pairs."""
    requires: dict[str, Any] = {}
    dedup: str | None = None
    dedup_for: float | None = None
    on_duplicate: OnDuplicate = "return"
    request_key: str | None = None
    request_hash: str | None = None
    concurrency_key: str | None = None
    parent: UUID | None = None
    root: UUID | None = None
    batch: UUID | None = None
    after: tuple[UUID, ...] = ()
    after_when: AfterWhen = "succeeded"
    on_parent_failure: OnParentFailure = "cancel"
    rerun_of: UUID | None = None
    schedule: str | None = None
    fire_at: datetime | None = None
    webhook: tuple[Target, ...] | None = msgspec.field(default=None, name="webhooks")
    """Stored under another name than the reserved field, which earlier versions read as an object."""
    trace: dict[str, str] | None = None


spec_of = msgspec.json.Decoder(Spec).decode
"""Decode the spec in a JSON text."""


class Job(msgspec.Struct, Record, frozen=True, gc=False, kw_only=True):
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
    blameless_losses: int = 0
    suspect: int = 0
    spared: int = 0
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
    fingerprint: str | None = None
    failed_at: datetime | None = None
    """When its error happened; None: it has none, or an earlier version stored it."""
    moved_to: str | None = None
    """Its queue, if it was moved; None: as requested."""
    reprioritised_to: int | None = None
    """Its priority, if it was changed; None: as requested."""
    told: tuple[Notified, ...] | None = None
    """What its webhooks were sent so far; None: nothing."""

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
        """Its queue now; ``asked_queue`` is where it was submitted to."""
        return self.spec.queue if self.moved_to is None else self.moved_to

    @property
    def priority(self) -> int:
        """Its priority now, 0 to 100, higher first; ``asked_priority`` is what it was submitted with."""
        return self.spec.priority if self.reprioritised_to is None else self.reprioritised_to

    @property
    def priority_band(self) -> PriorityBand:
        """The name of the band that its priority is in: system, high, normal or low."""
        return band_of(self.priority)

    @property
    def asked_queue(self) -> str:
        """The queue it was submitted to."""
        return self.spec.queue

    @property
    def asked_priority(self) -> int:
        """The priority it was submitted with."""
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
        """What a worker must offer to be given the job."""
        return self.spec.requires

    @property
    def dedup(self) -> str | None:
        """The key no second live job of this task may hold."""
        return self.spec.dedup

    @property
    def dedup_for(self) -> float | None:
        """For how many seconds after its submit it holds its dedup key even when completed; None: not at all."""
        return self.spec.dedup_for

    @property
    def on_duplicate(self) -> OnDuplicate:
        """What its submit requested in case its dedup key was held."""
        return self.spec.on_duplicate

    @property
    def retry(self) -> Retry:
        """Its retry policy."""
        return self.spec.retry

    @property
    def customer(self) -> str | None:
        """The customer for which it runs."""
        return self.spec.customer

    @property
    def headers(self) -> Values | None:
        """The headers of the HTTP request that submitted it: by name, the values in their order."""
        return self.spec.headers

    @property
    def route(self) -> dict[str, Any] | None:
        """The path parameters of the HTTP request that submitted it, by name."""
        return self.spec.route

    @property
    def query(self) -> Pairs | None:
        """The query parameters of the HTTP request that submitted it: pairs of name and value, as the client sent
        them; grouped by name if an earlier version stored them."""
        query = self.spec.query
        if isinstance(query, dict):
            return tuple((name, value) for name, values in query.items() for value in values)
        return query

    @property
    def request_key(self) -> str | None:
        """The key by which a repeat of its submit is recognised."""
        return self.spec.request_key

    @property
    def concurrency_key(self) -> str | None:
        """Jobs of the task with the same key share a concurrency limit."""
        return self.spec.concurrency_key

    @property
    def parent(self) -> UUID | None:
        """The job that submitted it from its handler."""
        return self.spec.parent

    @property
    def root(self) -> UUID | None:
        """The first job of its family."""
        return self.spec.root

    @property
    def batch(self) -> UUID | None:
        """The batch it belongs to."""
        return self.spec.batch

    @property
    def after(self) -> tuple[UUID, ...]:
        """The jobs it waits for."""
        return self.spec.after

    @property
    def rerun_of(self) -> UUID | None:
        """The ended job that it repeats."""
        return self.spec.rerun_of

    @property
    def schedule(self) -> str | None:
        """The schedule that submitted it."""
        return self.spec.schedule

    @property
    def fire_at(self) -> datetime | None:
        """The fire of the schedule that made it."""
        return self.spec.fire_at

    @property
    def webhook(self) -> tuple[Target, ...] | None:
        """The webhooks that are notified of it, by reference; None: none."""
        return self.spec.webhook

    @property
    def trace(self) -> dict[str, str] | None:
        """The trace it is part of."""
        return self.spec.trace

    @property
    def created_at(self) -> datetime:
        """When it was submitted."""
        return self.spec.created_at

    @property
    def timeout(self) -> float | None:
        """Seconds that one attempt may run; None: no limit."""
        return self.spec.timeout

    @property
    def heartbeat(self) -> float | None:
        """Seconds within which a running attempt must give a sign; None: it need not."""
        return self.spec.heartbeat

    @property
    def remote_heartbeat(self) -> float | None:
        """The same for workers behind a hub, where ``heartbeat`` is None."""
        return self.spec.remote_heartbeat

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
    def retention(self) -> Kept | None:
        """How long it is kept after its end; None: as set for the store."""
        return self.spec.retention

    @property
    def ended(self) -> bool:
        """Whether it is in a terminal status."""
        return self.status in ENDED

    @property
    def held(self) -> bool:
        """Whether a worker has it."""
        return self.status in HELD

    def to_dict(self, history: History | None = None) -> dict[str, Any]:
        """Return the whole record as JSON values, keyed by the field names of the lifecycle page.

        A payload or a result that is not JSON, which no version stores, is there as text.
        """
        spec = {"id": self.id} | {name: getattr(self.spec, name) for name in self.spec.__struct_fields__}
        state = {name: getattr(self, name) for name in self.__struct_fields__ if name not in _INNER}
        record = spec | state
        result = None if self.result_text is None else json_or_text(self.result_text)
        record |= {"payload": json_or_text(self.payload_text), "result": result, "max_attempts": self.max_attempts}
        record["timeout_at"] = self.timeout_at
        record |= {name: getattr(self, name) for name in _NOW}
        if history is not None:
            record["attempts"] = [msgspec.structs.asdict(attempt) for attempt in history.attempts]
            record["events"] = [msgspec.structs.asdict(event) for event in history.events]
        return msgspec.json.decode(msgspec.json.encode(record), type=dict[str, Any])

    def _field(self, name: str) -> Any:
        if name not in _NAMES:
            raise KeyError(name)
        return getattr(self.spec if name in Spec.__struct_fields__ and name not in _NOW else self, name)

    @classmethod
    def _json_schema(cls, *parameters: Any) -> dict[str, Any]:
        """Return the JSON schema of ``to_dict`` without a history."""
        return schema_of(msgspec.defstruct("Job", document_fields(), namespace=_DOC))


def json_or_text(text: str) -> Any:
    """Return the values of a stored text; the text itself where it is not JSON, so that what is stored is seen."""
    try:
        return msgspec.json.decode(text)
    except (ValueError, RecursionError):
        return text


_raw = msgspec.json.Decoder(msgspec.Raw).decode


def raw_json(text: str) -> msgspec.Raw:
    """Return the same for a document that includes the text as it is: it is checked, and not decoded."""
    try:
        return _raw(text)
    except (ValueError, RecursionError):
        return msgspec.Raw(msgspec.json.encode(text))


_INNER = frozenset(
    {
        "spec",
        "payload_text",
        "result_text",
        "claim",
        "streak",
        "act_by",
        "blameless_losses",
        "moved_to",
        "reprioritised_to",
        "told",
    }
)
_NOW = ("queue", "priority", "asked_queue", "asked_priority", "priority_band", "query")
"""What may have changed since the submit, what was requested, and what earlier versions stored otherwise."""
_MADE = {
    "payload": dict[str, Any],
    "result": Any,
    "max_attempts": int,
    "timeout_at": datetime | None,
    "asked_queue": str,
    "asked_priority": int,
    "priority_band": PriorityBand,
    "query": Pairs | None,
}
"""What the record has beside its fields, or in another form."""
_NAMES = dict.fromkeys(
    ("id", *Spec.__struct_fields__, *(name for name in Job.__struct_fields__ if name not in _INNER), *_MADE)
)
"""All names of the record, in order."""
_DOC = {"__doc__": Job.__doc__}


def document_fields() -> list[tuple[str, Any]]:
    """Return the names of ``to_dict`` without a history, in order, each with its type."""
    hints = get_type_hints(Spec) | get_type_hints(Job) | _MADE
    return [(name, hints[name]) for name in _NAMES]


_STAMP = (1 << 128) - (1 << 80)


def derived_id(source: UUID, text: str) -> UUID:
    """Return the id of what follows from a job, distinguished by a text.

    It begins with the time of its source, as a UUIDv7 does with its own: what is made together is stored together.
    """
    digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
    number = (source.int & _STAMP) | (int.from_bytes(digest) & ~_STAMP)
    number = number & ~(0xF << 76) | 7 << 76
    return UUID(int=number & ~(0b11 << 62) | 0b10 << 62)


def as_id(id: UUID | str) -> UUID:
    """Return a job's id, also from text; :raises ConfigError:"""
    if isinstance(id, UUID):
        return plain_id(id)
    try:
        return UUID(plain(id) if isinstance(id, str) else "")
    except ValueError:
        raise ConfigError(f"not a job id: {shown(id)}") from None
