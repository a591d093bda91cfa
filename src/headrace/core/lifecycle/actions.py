"""What people and programs do to a job from outside: what each action decides, and the table of them, ``ACTIONS``.

``JobHandle`` and ``JobSet`` have a typed method for each; the hub, the command line, the dashboard and Django's admin
are made from the table. Expiry is here too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Annotated, Any, ClassVar, Self, TypeVar
from uuid import UUID

import msgspec
from msgspec import UNSET, Meta, UnsetType
from msgspec.structs import replace

from headrace.core.attempt import ErrorInfo, Event
from headrace.core.change import Change, KeyEffect
from headrace.core.defaults import MAX_NAME_CHARACTERS, Rules
from headrace.core.job import Job
from headrace.core.lifecycle.decision import LOOSE, change, dated, ended, expired, key_freed, key_kept, placed, soonest
from headrace.core.lifecycle.submission import submit
from headrace.core.lifecycle.transitions import TRANSITIONS, check
from headrace.core.priority import GivenPriority, checked_priority, named_priority
from headrace.core.status import Reason, Status, Verb
from headrace.core.times import seconds, utc
from headrace.core.validation import checked_moment, checked_name, checked_note
from headrace.errors import MAX_DURATION_SECONDS, ConfigError, TransitionRefused, shown

__all__ = [
    "ACTIONS",
    "Action",
    "CancelAction",
    "DiscardAction",
    "MoveAction",
    "PostponeAction",
    "ReprioritiseAction",
    "RerunAction",
    "ResolveAction",
    "RetryAction",
    "RunNowAction",
    "after",
    "cancel",
    "discard",
    "expire",
    "move",
    "note_rerun",
    "postpone",
    "reprioritise",
    "rerun",
    "resolve",
    "retry",
    "run_now",
]


_RUN_NOW = "to run it at once: headrace run-now, or run_now()"


def _event(
    job: Job,
    verb: Verb,
    now: datetime,
    by: str | None,
    note: str | None = None,
    details: dict[str, Any] | None = None,
) -> Event:
    """The entry for the audit trail; ``details``: what the act said."""
    return Event(verb, dated(job, now), checked_note(by, "by"), checked_note(note, "note"), details)


def _check_idle(job: Job, verb: Verb) -> None:
    """Refuse an act on a job in whose status it means nothing, and say what would help."""
    if job.status in TRANSITIONS[verb]:
        return
    why = f"it is {job.status}"
    if job.held:
        why += ": a worker has it, and what is held stays as it is"
    elif job.ended:
        why += "; rerun makes a new job of it, also with other options"
    elif job.status is Status.QUEUED:
        why += " already; explain says what it waits for"
    elif job.status is Status.WAITING:
        why += " for other jobs to end"
    raise TransitionRefused(job, verb, why)


def _check_last_moment(job: Job, verb: Verb, due: datetime, now: datetime) -> None:
    """Refuse a time at which the job, which was never started, would have expired."""
    last = job.not_after
    if last is not None and job.first_started_at is None and now < last <= due:
        raise TransitionRefused(job, verb, f"it must start before {utc(last)}, or it expires; choose an earlier time")


def expire(job: Job, now: datetime) -> Change:
    """End a job that missed its last moment to start."""
    if not expired(job, now):
        raise TransitionRefused(job, Verb.EXPIRE, "its time has not passed")
    fields = ended(job, Status.CANCELLED, now, Reason.EXPIRED)
    return change(job, Verb.EXPIRE, now, fields, owner=False, key=key_freed(job))


def cancel(
    job: Job, now: datetime, rules: Rules, *, by: str | None = None, reason: Reason = Reason.USER
) -> Change | None:
    """End a job that has not begun, or ask its worker to stop it; None when that was done before."""
    event = _event(job, Verb.CANCEL, now, by)
    if job.status is Status.CANCELLED or (job.held and job.cancel_requested_at is not None):
        return None
    if job.status in (Status.ACCEPTED, Status.RUNNING):
        asked = replace(job, cancel_requested_at=now)
        fields: dict[str, Any] = {
            "status": job.status,
            "cancel_requested_at": now,
            "act_by": soonest(asked, job.act_by, rules),
        }
        return change(job, Verb.CANCEL, now, fields, owner=False, event=event)
    fields = ended(job, Status.CANCELLED, now, reason)
    return change(job, Verb.CANCEL, now, fields, owner=False, key=key_freed(job), event=event)


def retry(job: Job, now: datetime, *, delay: float = 0.0, by: str | None = None) -> Change:
    """Give an ended job a new budget under its own id; ``delay``: seconds before it can start."""
    if job.reason is Reason.DISCARDED:
        raise TransitionRefused(job, Verb.RETRY, "it was discarded; a discarded job can only be rerun")
    due = max(job.available_at, now + timedelta(seconds=delay))
    _check_last_moment(job, Verb.RETRY, due, now)
    not_after = None if job.not_after is not None and job.not_after <= now else job.not_after
    fields = LOOSE | {
        "status": placed(now, due, job.waits),
        "reason": None,
        "available_at": due,
        "arrived_at": due,
        "not_after": not_after,
        "act_by": not_after if job.first_started_at is None else None,
        "charged": 0,
        "unstarted_losses": 0,
        "suspect": 0,
        "spared": 0,
        "redrives": job.redrives + 1,
        "cancel_requested_at": None,
        "finished_at": None,
        "streak": None,
    }
    key = KeyEffect.KEEP if job.spec.dedup is None else KeyEffect.TAKE
    event = _event(job, Verb.RETRY, now, by, details={"delay": delay} if delay else None)
    return change(job, Verb.RETRY, now, fields, owner=False, key=key, event=event)


def postpone(job: Job, until: datetime, now: datetime, *, by: str | None = None) -> Change:
    """Let a job that nobody holds wait for another time, later or earlier than its own."""
    _check_idle(job, Verb.POSTPONE)
    if until <= now:
        raise TransitionRefused(job, Verb.POSTPONE, f"{utc(until)} is not in the future; {_RUN_NOW}")
    _check_last_moment(job, Verb.POSTPONE, until, now)
    fields = {"status": Status.SCHEDULED, "available_at": until}
    event = _event(job, Verb.POSTPONE, now, by, details={"until": utc(until)})
    return change(job, Verb.POSTPONE, now, fields, owner=False, event=event)


def run_now(job: Job, now: datetime, *, by: str | None = None) -> Change:
    """Put a job in line that waits for its time; it arrives now, or arrived when it fell due."""
    _check_idle(job, Verb.RUN_NOW)
    due = min(job.available_at, now)
    fields = {"status": Status.QUEUED, "available_at": due, "arrived_at": due}
    return change(job, Verb.RUN_NOW, now, fields, owner=False, event=_event(job, Verb.RUN_NOW, now, by))


def move(job: Job, queue: str, now: datetime, *, by: str | None = None) -> Change | None:
    """Put a job that nobody holds into another queue, with its arrival as it was; None: it is there already."""
    _check_idle(job, Verb.MOVE)
    if queue == job.queue:
        return None
    event = _event(job, Verb.MOVE, now, by, details={"from": job.queue, "to": queue})
    fields = {"status": job.status, "moved_to": None if queue == job.spec.queue else queue}
    return change(job, Verb.MOVE, now, fields, owner=False, event=event)


def reprioritise(job: Job, priority: int, now: datetime, *, by: str | None = None) -> Change | None:
    """Give a job that nobody holds another priority, with its arrival as it was; None: it has it already."""
    _check_idle(job, Verb.REPRIORITISE)
    if priority == job.priority:
        return None
    event = _event(job, Verb.REPRIORITISE, now, by, details={"from": job.priority, "to": priority})
    fields = {"status": job.status, "reprioritised_to": None if priority == job.spec.priority else priority}
    return change(job, Verb.REPRIORITISE, now, fields, owner=False, event=event)


def discard(job: Job, now: datetime, *, by: str | None = None, note: str | None = None) -> Change:
    """Put an ended job away: it no longer counts as done or as a dead letter."""
    fields = {"status": Status.CANCELLED, "reason": Reason.DISCARDED}
    key = KeyEffect.KEEP if job.spec.dedup_for is None else key_freed(job)
    event = _event(job, Verb.DISCARD, now, by, note)
    return change(job, Verb.DISCARD, now, fields, owner=False, key=key, event=event)


def resolve(
    job: Job,
    now: datetime,
    *,
    result_text: str | None = None,
    error: ErrorInfo | None = None,
    by: str | None = None,
    note: str | None = None,
) -> Change:
    """Set the end by hand: a result completes the job, an error fails it."""
    if error is None:
        fields = ended(job, Status.COMPLETED, now) | {"result_text": result_text or "null", "error": None}
        fields |= {"suspect": 0, "spared": 0}
    else:
        fields = ended(job, Status.FAILED, now, Reason.NON_RETRYABLE) | {"error": error}
    ends = key_freed(job) if error is not None else key_kept(job, dated(job, now))
    key = KeyEffect.KEEP if job.ended else ends
    return change(job, Verb.RESOLVE, now, fields, owner=False, key=key, event=_event(job, Verb.RESOLVE, now, by, note))


def rerun(
    job: Job,
    id: UUID,
    now: datetime,
    *,
    payload_text: str | None = None,
    changed: Mapping[str, Any] | None = None,
    available_at: datetime | None = None,
    not_after: datetime | None = None,
) -> Job:
    """A new job that does the same work again, outside the family of the old one, and in a trace of its own.

    It has the queue and the priority that the old one had at last. ``changed``: fields of the spec to replace; without
    ``payload_text`` the payload is the old one, without ``not_after`` the last moment to start, unless that has passed.
    """
    check(job, Verb.RERUN)
    spec = replace(
        job.spec,
        created_at=now,
        queue=job.queue,
        priority=job.priority,
        trace=None,
        rerun_of=job.id,
        parent=None,
        root=None,
        batch=None,
        after=(),
        schedule=None,
        fire_at=None,
        request_key=None,
        request_hash=None,
        on_duplicate="return",
    )
    if changed:
        spec = replace(spec, **changed)
    if spec.webhook is not None and spec.customer != job.spec.customer:  # one customer hears nothing of another
        targets = tuple(one for one in spec.webhook if one.customer in (None, spec.customer))
        spec = replace(spec, webhook=targets or None)
    if not_after is None and job.not_after is not None and job.not_after > max(now, available_at or now):
        not_after = job.not_after
    text = job.payload_text if payload_text is None else payload_text
    return submit(id, spec, text, now, available_at=available_at, not_after=not_after)


def note_rerun(job: Job, again: UUID, now: datetime, *, by: str | None = None) -> Change:
    """Put on the record of an ended job that it was rerun, and as which job."""
    event = _event(job, Verb.RERUN, now, by, details={"job": str(again)})
    return change(job, Verb.RERUN, now, {}, owner=False, event=event)


def after(now: datetime, wait: float) -> datetime:
    """The moment so many seconds from now; :raises ConfigError: the calendar has no such day"""
    try:
        return now + timedelta(seconds=wait)
    except OverflowError:
        raise ConfigError(f"{wait:g} s from now is after the last day of the calendar") from None


# -- the table

Name = Annotated[str, Meta(min_length=1, max_length=MAX_NAME_CHARACTERS)]
Duration = Annotated[float, Meta(ge=0, le=MAX_DURATION_SECONDS)]
Moment = Annotated[datetime, Meta(tz=True)]


def _until(value: Any, what: str) -> datetime | float | None:
    return checked_moment(value, what) if isinstance(value, datetime) else seconds(value, what)


_CHECKS: dict[str, Callable[[Any, str], Any]] = {
    "delay": seconds,
    "until": _until,
    "queue": checked_name,
    "priority": checked_priority,
}
"""Of the fields of actions: programs may give a ``timedelta``, or anything."""


class Action(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Something that can be done to jobs, with what it needs to know; its docstring is the sentence of all shells."""

    verb: ClassVar[Verb]
    past: ClassVar[str]
    """What the jobs are when it is done."""
    label: ClassVar[str]
    """On a button."""
    summary: ClassVar[str]
    """What it does to one job."""
    example: ClassVar[Mapping[str, Any]]
    customers: ClassVar[bool]
    """Whether viewers may do it who see the jobs of one customer alone."""
    revives: ClassVar[bool]
    """Whether more jobs are live when it is done."""
    confirmed: ClassVar[bool]
    """Whether pages ask first if that is meant: it takes something away."""

    @classmethod
    def word(cls) -> str:
        """Its name in addresses and on the command line: ``run-now``."""
        return cls.verb.replace("_", "-")

    @classmethod
    def needs(cls) -> tuple[str, ...]:
        """The fields that have no default."""
        return tuple(field.name for field in msgspec.structs.fields(cls) if field.required)

    @classmethod
    def bare(cls) -> bool:
        """Whether it can be done without a word."""
        return not cls.needs()

    def checked(self) -> Self:
        """The same with its fields in their plain form; :raises ConfigError: naming one that cannot be used"""
        checks = {name: check for name, check in _CHECKS.items() if name in self.__struct_fields__}
        return replace(self, **{name: check(getattr(self, name), name) for name, check in checks.items()})

    def decide(self, job: Job, now: datetime, rules: Rules, by: str | None) -> Change | None:
        """What it makes of the job; None: that was done before. Rerun and resolve need more than the job: the client
        does them (``client/api/actions.py``)."""
        raise NotImplementedError


ACTIONS: dict[Verb, type[Action]] = {}
"""What can be done to jobs, one and many."""

A = TypeVar("A", bound=type[Action])


def _action(
    verb: Verb,
    *,
    past: str,
    summary: str,
    label: str | None = None,
    example: Mapping[str, Any] | None = None,
    customers: bool = False,
    revives: bool = False,
    confirmed: bool = False,
) -> Callable[[A], A]:
    """Put an action into the table."""

    def add(kind: A) -> A:
        kind.verb, kind.past, kind.summary, kind.example = verb, past, summary, example or {}
        kind.label = label or verb.replace("_", " ").capitalize()
        kind.customers, kind.revives, kind.confirmed = customers, revives, confirmed
        ACTIONS[verb] = kind
        return kind

    return add


@_action(
    Verb.CANCEL,
    past="cancelled",
    summary="Cancel a job, or ask its worker to stop it (202)",
    customers=True,
    confirmed=True,
)
class CancelAction(Action, frozen=True):
    """End jobs; the worker that has one is asked to stop it."""

    def decide(self, job: Job, now: datetime, rules: Rules, by: str | None) -> Change | None:
        """End the job, or request that of its worker."""
        return cancel(job, now, rules, by=by)


@_action(
    Verb.RETRY,
    past="retried",
    summary="Retry a failed or cancelled job",
    example={"delay": 60},
    customers=True,
    revives=True,
)
class RetryAction(Action, frozen=True):
    """Retry failed or cancelled jobs, under their own ids and with a new budget."""

    delay: Duration = 0.0
    """Not before so many seconds from now."""

    def decide(self, job: Job, now: datetime, rules: Rules, by: str | None) -> Change:
        """Give the job a new budget."""
        return retry(job, now, delay=self.delay, by=by)


@_action(
    Verb.RERUN,
    past="rerun",
    summary="Do the work of an ended job again, as a new one",
    example={"priority": 75},
    customers=True,
    revives=True,
)
class RerunAction(Action, frozen=True):
    """Do the work of ended jobs again as new ones, with the same payload and options, or with others."""

    payload: dict[str, Any] | None = None
    """All arguments by name, in place of the old ones."""
    queue: Name | UnsetType = UNSET
    priority: GivenPriority | UnsetType = UNSET
    delay: Duration | UnsetType = UNSET
    not_before: Moment | UnsetType = UNSET
    not_after: Moment | UnsetType = UNSET
    timeout: Annotated[float, Meta(gt=0, le=MAX_DURATION_SECONDS)] | UnsetType | None = UNSET
    tags: tuple[str, ...] | UnsetType = UNSET
    metadata: dict[str, Any] | UnsetType = UNSET
    requires: dict[str, Any] | UnsetType = UNSET
    dedup: str | UnsetType | None = UNSET
    concurrency_key: str | UnsetType | None = UNSET
    customer: str | UnsetType = UNSET

    @property
    def options(self) -> Mapping[str, Any]:
        """Those that are to be others."""
        values = {name: getattr(self, name) for name in RerunAction.__struct_fields__ if name != "payload"}
        return {name: value for name, value in values.items() if value is not UNSET}

    def payload_for(self, job: Job) -> Mapping[str, Any] | None:
        """The payload of the new job; None: that of the old one."""
        return self.payload


@_action(Verb.DISCARD, past="discarded", summary="Put a completed or failed job away", customers=True, confirmed=True)
class DiscardAction(Action, frozen=True):
    """End completed or failed jobs as cancelled (discarded)."""

    def decide(self, job: Job, now: datetime, rules: Rules, by: str | None) -> Change:
        """Put the job away."""
        return discard(job, now, by=by)


class ErrorBody(ErrorInfo, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What went wrong."""


@_action(
    Verb.RESOLVE,
    past="resolved",
    summary="Set the outcome of a job by hand",
    example={"result": {"image": "cat-320.png"}},
)
class ResolveAction(Action, frozen=True):
    """Set the outcome of jobs by hand: ``error`` fails them, else ``result`` completes them."""

    result: Any = None
    error: str | ErrorBody | None = None

    @classmethod
    def bare(cls) -> bool:
        """No empty request completes a job."""
        return False

    def checked(self) -> Self:
        """With one of the two."""
        if self.error is not None and self.result is not None:
            raise ConfigError("resolve: a job ends with a result or with an error, not with both")
        if not isinstance(self.error, str | ErrorInfo | None):
            raise ConfigError(f"resolve: error must be text or an ErrorInfo, not {shown(self.error)}")
        return self

    def failure(self, rules: Rules) -> ErrorInfo | None:
        """The error as it is stored; None: the jobs complete."""
        error = ErrorInfo("Resolved", self.error) if isinstance(self.error, str) else self.error
        return None if error is None else error.cut(rules.error_limit)


@_action(Verb.RUN_NOW, past="put in line", summary="Put a scheduled or retrying job in line at once", customers=True)
class RunNowAction(Action, frozen=True):
    """Put scheduled or retrying jobs in line at once."""

    def decide(self, job: Job, now: datetime, rules: Rules, by: str | None) -> Change:
        """Let the job arrive."""
        return run_now(job, now, by=by)


@_action(
    Verb.POSTPONE, past="postponed", summary="Let a job wait for another time", example={"until": 3600}, customers=True
)
class PostponeAction(Action, frozen=True):
    """Let jobs wait for another time."""

    until: Moment | Duration
    """A moment, or so many seconds from now."""

    def decide(self, job: Job, now: datetime, rules: Rules, by: str | None) -> Change:
        """Let the job wait."""
        until = self.until if isinstance(self.until, datetime) else after(now, self.until)
        return postpone(job, until, now, by=by)


@_action(Verb.MOVE, past="moved", summary="Move a job to another queue", example={"queue": "images"})
class MoveAction(Action, frozen=True):
    """Move jobs that no worker has to another queue, with their arrival."""

    queue: Name

    def decide(self, job: Job, now: datetime, rules: Rules, by: str | None) -> Change | None:
        """Put the job into the queue."""
        return move(job, self.queue, now, by=by)


@_action(
    Verb.REPRIORITISE,
    past="reprioritised",
    summary="Give a job another priority",
    label="Priority",
    example={"priority": 75},
)
class ReprioritiseAction(Action, frozen=True):
    """Give jobs that no worker has another priority."""

    priority: GivenPriority

    def decide(self, job: Job, now: datetime, rules: Rules, by: str | None) -> Change | None:
        """Give the job the priority."""
        return reprioritise(job, named_priority(self.priority), now, by=by)
