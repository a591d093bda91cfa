"""The body of a submit, by headrace's names and by those of the EmProps page, and the draft that it becomes.

Where a body gives the same thing by both names, the values must be equal. Drafts are made fast: most submits of a task
have the options of an earlier one.
"""

from __future__ import annotations

from collections.abc import Hashable
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal
from uuid import UUID

import msgspec
from msgspec import UNSET, Meta, UnsetType
from msgspec.structs import asdict

from headrace.client.draft import Draft
from headrace.client.submission.by_name import draft_with_warnings
from headrace.core.defaults import (
    MAX_AFTER_JOBS,
    MAX_COUNT,
    MAX_KEY_CHARACTERS,
    MAX_NAME_CHARACTERS,
    MAX_TAG_CHARACTERS,
    MAX_TAGS,
    MIN_HEARTBEAT_SECONDS,
    PAGE_HEARTBEAT_SECONDS,
)
from headrace.core.job import AfterWhen, Job, OnDuplicate, OnParentFailure
from headrace.core.lifecycle.retry import Retry
from headrace.core.priority import GivenPriority
from headrace.core.words import EMPROPS, HEADRACE, Vocabulary
from headrace.errors import MAX_DURATION_SECONDS
from headrace.http.problems import Fault, Problem

if TYPE_CHECKING:
    from headrace.app import App
    from headrace.client.task import Task

__all__ = [
    "Drafts",
    "Requirements",
    "RetryBody",
    "Submission",
    "SubmitBody",
    "requirements_of",
    "submission_of",
    "words_of",
]


Name = Annotated[str, Meta(min_length=1, max_length=MAX_NAME_CHARACTERS)]
Key = Annotated[str, Meta(min_length=1, max_length=MAX_KEY_CHARACTERS)]
Url = Annotated[str, Meta(min_length=1, max_length=2048)]
Span = Annotated[float, Meta(ge=0, le=MAX_DURATION_SECONDS)]
Longer = Annotated[float, Meta(gt=0, le=MAX_DURATION_SECONDS)]
Heartbeat = Annotated[float, Meta(ge=MIN_HEARTBEAT_SECONDS, le=MAX_DURATION_SECONDS)]
Moment = Annotated[datetime, Meta(tz=True)]
Retries = Annotated[int, Meta(ge=0, le=MAX_COUNT)]
Errors = Annotated[tuple[Key, ...], Meta(max_length=100)]
Delays = Annotated[tuple[Span, ...], Meta(min_length=1, max_length=100)]


class RetryBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A retry policy: the arguments of ``Retry``. It replaces the task's own as a whole."""

    max_retries: Retries | UnsetType = UNSET
    backoff: Literal["exponential", "fixed"] | Delays | UnsetType = UNSET
    initial: Span | UnsetType = UNSET
    factor: Annotated[float, Meta(ge=1, le=1e6)] | UnsetType = UNSET
    cap: Span | UnsetType = UNSET
    jitter: bool | UnsetType = UNSET
    retry_on: Errors | UnsetType = UNSET
    give_up_on: Errors | UnsetType = UNSET


class KeptBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """For how many seconds the job is kept, by how it ended."""

    completed: Span | UnsetType = UNSET
    failed: Span | UnsetType = UNSET
    cancelled: Span | UnsetType = UNSET


class Excluded(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What a worker must not have. A worker with ``all`` has what is named here, too."""

    service_type: Key | UnsetType = UNSET
    component: Key | UnsetType = UNSET
    hardware: dict[str, int | float | str | bool] | UnsetType = UNSET
    """None of these: a number excludes workers with at least as much, a text those with the same."""


class Requirements(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The page's requirements of a worker."""

    service_type: Key | UnsetType = UNSET
    component: Key | UnsetType = UNSET
    hardware: dict[str, int | float | str | bool] | UnsetType = UNSET
    quality_level: Key | UnsetType = UNSET
    timeout_minutes: Annotated[float, Meta(gt=0, le=MAX_DURATION_SECONDS / 60)] | UnsetType = UNSET
    excluded: Excluded | UnsetType = msgspec.field(name="not", default=UNSET)
    """What the worker must not have."""


class SubmitBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True, gc=False):
    """A job to submit. Seconds are numbers; moments are RFC 3339 with a zone."""

    BESIDES: ClassVar[dict[str, Any]] = {"allOf": [{"anyOf": [{"required": ["task"]}, {"required": ["type"]}]}]}
    """What the types cannot express in the document: one of the two names of the task must be given. It is within
    ``allOf``: client generators take a body with ``anyOf`` for a choice between bodies, and lose its fields."""

    task: Name | UnsetType = UNSET
    payload: dict[str, Any] = {}
    queue: Name | UnsetType = UNSET
    priority: GivenPriority | UnsetType = UNSET
    delay: Span | UnsetType = UNSET
    not_before: Moment | UnsetType | None = UNSET
    not_after: Moment | UnsetType | None = UNSET
    dedup: Key | UnsetType | None = UNSET
    dedup_for: Longer | UnsetType | None = UNSET
    on_duplicate: OnDuplicate | UnsetType = UNSET
    request_key: Key | UnsetType | None = UNSET
    retry: RetryBody | UnsetType = UNSET
    timeout: Longer | UnsetType | None = UNSET
    heartbeat: Heartbeat | UnsetType | None = UNSET
    remote_heartbeat: Heartbeat | UnsetType | None = UNSET
    retention: Span | KeptBody | UnsetType = UNSET
    tags: (
        Annotated[
            tuple[Annotated[str, Meta(min_length=1, max_length=MAX_TAG_CHARACTERS)], ...], Meta(max_length=MAX_TAGS)
        ]
        | UnsetType
    ) = UNSET
    metadata: dict[str, Any] | UnsetType = UNSET
    requires: dict[str, Any] | UnsetType = UNSET
    customer: Key | UnsetType | None = UNSET
    concurrency_key: Key | UnsetType | None = UNSET
    after: Annotated[tuple[UUID, ...], Meta(max_length=MAX_AFTER_JOBS)] | UnsetType = UNSET
    after_when: AfterWhen | UnsetType = UNSET
    on_parent_failure: OnParentFailure | UnsetType = UNSET
    trace: dict[str, str] | UnsetType = UNSET
    webhook: Url | dict[str, Any] | UnsetType = UNSET
    idempotency_key: Key | UnsetType = UNSET
    type: Name | UnsetType = UNSET
    customer_id: Key | UnsetType = UNSET
    requirements: Requirements | UnsetType = UNSET
    max_retries: Retries | UnsetType = UNSET
    retry_delays: Delays | UnsetType = UNSET
    retry_conditions: Errors | UnsetType = UNSET
    no_retry_conditions: Errors | UnsetType = UNSET
    webhook_url: Url | UnsetType = UNSET
    events: tuple[str, ...] | UnsetType = UNSET
    authentication: dict[str, Any] | UnsetType = UNSET


class Submission(msgspec.Struct, frozen=True, gc=False):
    """The meaning of a body: a task, its arguments, and options as ``App.submit`` takes them."""

    task: str
    payload: dict[str, Any]
    options: dict[str, Any]


_PLAIN = {"task", "payload"}
_OPTIONS = frozenset(
    (
        "queue", "priority", "delay", "not_before", "not_after", "dedup", "dedup_for", "on_duplicate", "request_key",
        "timeout", "heartbeat", "remote_heartbeat", "tags", "metadata", "requires", "customer", "concurrency_key",
        "after", "after_when", "on_parent_failure", "trace", "webhook",
    )
)  # fmt: skip
"""Fields that are options of the same name and form."""
_RETRY = {
    "max_retries": "max_retries",
    "retry_delays": "backoff",
    "retry_conditions": "retry_on",
    "no_retry_conditions": "give_up_on",
}
"""The page's names for a retry policy."""
_WEBHOOK = {"webhook_url": "url", "events": "events", "authentication": "authentication"}
_OTHERS = ("requirements", *_RETRY, *_WEBHOOK)
"""Fields that must be translated."""


def words_of(body: SubmitBody, asked: Vocabulary | None) -> Vocabulary | None:
    """Return the words of the reply to a submit: those that are asked for, else those of the page that it follows.

    None: our own.
    """
    return EMPROPS if asked is None and body.task is UNSET and body.type is not UNSET else asked


def submission_of(body: SubmitBody, key: str | None = None, words: Vocabulary | None = None) -> Submission:
    """Return what is to be submitted; ``key``: the request key that came beside the body. ``words``: those of the
    reply, in which the webhook that the body names gets its messages, too, unless it names others.

    :raises Problem: 400, it gives two values for one thing, or names no task
    """
    said = _given(body)
    if key is None and said.keys() == _PLAIN:  # like most
        return Submission(_task(body), body.payload, {})
    options = {name: value for name, value in said.items() if name in _OPTIONS}
    if body.customer_id is not UNSET:
        _say(options, "customer", body.customer_id, "customer_id")
    if body.idempotency_key is not UNSET:
        _say(options, "request_key", body.idempotency_key, "idempotency_key")
    if key is not None:
        _say(options, "request_key", key, "Idempotency-Key")
    if body.retention is not UNSET:
        kept = body.retention
        options["retention"] = _given(kept) if isinstance(kept, KeptBody) else kept
    if body.type is not UNSET and body.heartbeat is body.remote_heartbeat is UNSET:
        options["remote_heartbeat"] = PAGE_HEARTBEAT_SECONDS
    policy = {} if body.retry is UNSET else _given(body.retry)
    if not said.keys().isdisjoint(_OTHERS):
        _translate(body, options, policy)
    if words is not None and words is not HEADRACE and "webhook" in options:
        hook = options["webhook"]
        options["webhook"] = {"words": words.name, **({"url": hook} if isinstance(hook, str) else hook)}
    if policy or body.retry is not UNSET:
        options["retry"] = Retry(**policy)
    return Submission(_task(body), body.payload, options)


def _task(body: SubmitBody) -> str:
    if body.type is UNSET:
        if body.task is UNSET:
            raise _malformed("task", "Object missing required field `task` (or `type`): which task is to be run?")
        return body.task
    if body.task is not UNSET and body.task != body.type:
        raise _twice("task", "type")
    return body.type


def _translate(body: SubmitBody, options: dict[str, Any], policy: dict[str, Any]) -> None:
    """Add what is given by names of the page."""
    for theirs, ours in _RETRY.items():
        if (value := getattr(body, theirs)) is not UNSET:
            _say(policy, ours, value, theirs, "retry.")
    if body.retry_delays is not UNSET:
        policy.setdefault("jitter", False)  # they are meant exactly
    if any(getattr(body, name) is not UNSET for name in _WEBHOOK):
        said = options.get("webhook", {})
        hook = options["webhook"] = {"url": said} if isinstance(said, str) else dict(said)
        for theirs, ours in _WEBHOOK.items():
            if (value := getattr(body, theirs)) is not UNSET:
                _say(hook, ours, list(value) if isinstance(value, tuple) else value, theirs, "webhook.")
    if body.requirements is not UNSET:
        _require(body.requirements, options)


def _require(asked: Requirements, options: dict[str, Any]) -> None:
    """Add what the page requires: of the worker, or of the job."""
    if asked.timeout_minutes is not UNSET:
        _say(options, "timeout", asked.timeout_minutes * 60, "requirements.timeout_minutes")
    needs: dict[str, tuple[str, Any]] = {}
    if asked.service_type is not UNSET:
        needs["services"] = "service_type", _one_of(asked.service_type, "all")
    if asked.component is not UNSET:
        needs["components"] = "component", _one_of(asked.component, "all")
    if asked.hardware is not UNSET:
        needs["hardware"] = "hardware", asked.hardware
    if asked.quality_level is not UNSET:
        # A worker that lists none offers null, and is not limited by this.
        needs["quality_levels"] = "quality_level", _one_of(asked.quality_level, None)
        metadata = options["metadata"] = dict(options.get("metadata", {}))
        _say(metadata, "quality_level", asked.quality_level, "requirements.quality_level", "metadata.")
    if asked.excluded is not UNSET:
        _exclude(asked.excluded, needs)
    if needs:
        requires = options["requires"] = dict(options.get("requires", {}))
        for ours, (theirs, need) in needs.items():
            _say(requires, ours, need, f"requirements.{theirs}", "requires.")


def _exclude(asked: Excluded, needs: dict[str, tuple[str, Any]]) -> None:
    """Add what a worker must not have to the requirements."""
    unwanted = dict[str, list[Any]]()
    if asked.service_type is not UNSET:
        unwanted["services"] = [asked.service_type, "all"]
    if asked.component is not UNSET:
        unwanted["components"] = [asked.component, "all"]
    if asked.hardware is not UNSET:
        unwanted["hardware"] = [{name: value} for name, value in asked.hardware.items()]
    for ours, values in unwanted.items():
        if values:
            theirs, need = needs.get(ours, (f"not.{ours}", {}))
            wanted = need if not need or "in" in need else {"in": [need]}
            needs[ours] = theirs, {**wanted, "not": {"in": values}}


def requirements_of(job: Job) -> dict[str, Any]:
    """Return the requirements of a job, by the page's names; those without one stay as they are."""
    required: dict[str, Any] = {}
    excluded: dict[str, Any] = {}
    for name, need in job.requires.items():
        theirs = _THEIRS.get(name, name)
        parts = dict(need) if isinstance(need, dict) else {}
        unwanted = _not_wanted(name, parts.pop("not", None))
        wanted = _wanted(name, parts)
        if unwanted is not None and (wanted is not None or not parts):
            excluded[theirs] = unwanted
        elif wanted is None or "not" in need:
            theirs, wanted = name, need
        if wanted is not None:
            required[theirs] = wanted
    if excluded:
        required["not"] = excluded
    if job.timeout is not None:
        required["timeout_minutes"] = job.timeout / 60
    return required


def _wanted(name: str, need: Any) -> Any:
    """Return the value by the page's name; None: it has no name for it."""
    match need:
        case {"in": [str(value), "all" | None]} if name in _THEIRS and len(need) == 1:
            return value
        case {"in": [dict(value)]} if name == "hardware" and len(need) == 1:
            return value
    return None


def _not_wanted(name: str, need: Any) -> Any:
    """Return the same for what a worker must not have."""
    match need:
        case {"in": [str(value), "all"]} if name in _THEIRS and len(need) == 1:
            return value
        case {"in": [*parts]} if name == "hardware" and len(need) == 1:
            if all(isinstance(one, dict) and len(one) == 1 for one in parts):
                return {key: value for one in parts for key, value in one.items()}
    return None


_THEIRS = {"services": "service_type", "components": "component", "quality_levels": "quality_level"}
"""The page's names for requirements of a worker."""


def _one_of(*values: str | None) -> dict[str, Any]:
    return {"in": list(values)}


def _given(struct: msgspec.Struct) -> dict[str, Any]:
    return {name: value for name, value in asdict(struct).items() if value is not UNSET}


def _say(said: dict[str, Any], name: str, value: Any, theirs: str, of: str = "") -> None:
    """Store the value of one of two names for the same thing."""
    if said.setdefault(name, value) != value:
        raise _twice(f"{of}{name}", theirs)


def _twice(ours: str, theirs: str) -> Problem:
    return _malformed(theirs, f"`{ours}` and `{theirs}` mean the same, and say different things: give one of them")


def _malformed(field: str, message: str) -> Problem:
    return Problem(400, "malformed", "The request cannot be understood", message, faults=[Fault(field, message)])


_MAX_REMEMBERED_TASKS = 500
"""Tasks with cached options."""


class Drafts:
    """Makes drafts by the names of tasks."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._known: dict[Hashable, Task[Any, Any]] = {}

    async def draft(self, said: Submission) -> tuple[Draft[Any], tuple[str, ...]]:
        """Return the draft, and warnings for its submitter; raises like ``App.draft``."""
        task = self._app.tasks.get(said.task)
        if task is None:
            return await draft_with_warnings(self._app, said.task, said.payload, said.options)
        key = said.options.pop("request_key", None)  # which no two submits share
        draft = self._with_options(task, said.options)._draft_bound(said.payload)
        return (draft if key is None else draft.with_options(request_key=key)), ()

    def _with_options(self, task: Task[Any, Any], options: dict[str, Any]) -> Task[Any, Any]:
        if not options:
            return task
        like = (task.name, *options.items())
        try:
            known = self._known.get(like)
        except TypeError:  # one of them is a document
            return task._with_options(options)
        if known is None:
            if len(self._known) >= _MAX_REMEMBERED_TASKS:
                self._known.clear()
            known = self._known[like] = task._with_options(options)
        return known
