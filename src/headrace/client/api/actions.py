"""Actions on one job: the core decides each, and the audit records who did it; ``JobSet`` does them to many.

Two need more than the core has: rerun makes a new job, with a payload and options that are checked like those of a
submit; resolve encodes its result as the task does.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal
from uuid import UUID

import msgspec

from headrace.client.draft import KEY_OPTIONS, SPEC_OPTIONS
from headrace.client.options import JobOptions, check_options, refuse_function
from headrace.client.submission.by_name import draft_by_name
from headrace.core.change import Change
from headrace.core.codec.json import Codec
from headrace.core.codec.record import Record
from headrace.core.codec.value import encode_value
from headrace.core.job import Job, as_id
from headrace.core.lifecycle import actions
from headrace.core.lifecycle.actions import Action, RerunAction, ResolveAction, after
from headrace.core.lifecycle.transitions import check
from headrace.core.query import Filter, matches
from headrace.core.stats.own_tasks import is_own
from headrace.core.status import Status, Verb
from headrace.core.validation import checked_note
from headrace.engine import Duplicated, Inserted
from headrace.errors import (
    ConfigError,
    Duplicate,
    EngineError,
    HeadraceError,
    InvalidPayload,
    InvalidResult,
    JobNotFound,
    TooManyProfiles,
    TransitionRefused,
)

if TYPE_CHECKING:
    from headrace.app import App

__all__ = ["ActionResult", "AnyRerun", "act", "rerun", "result_of"]


_log = logging.getLogger("headrace.app")

_ANY = Codec(Any)
_NOT_OF_RERUN = frozenset({"after", "after_when", "on_parent_failure", "request_key"})
_OF_RERUN = frozenset({*SPEC_OPTIONS, *KEY_OPTIONS, "delay", "not_before", "not_after"}) - _NOT_OF_RERUN

Decide = Callable[[Job, datetime], Change | None]


class ActionResult(msgspec.Struct, Record, frozen=True, kw_only=True):
    """What came of an action on one job."""

    id: UUID
    answer: Literal["done", "requested", "refused", "not_found"]
    """``requested``: a worker has the job, and gets a request to stop it."""
    job: Job | None = None
    """As it is now, of a rerun the new one; None if there is none."""
    error: str | None = None
    """Of a refusal, the name of its error, as in ``headrace.errors``."""
    message: str | None = None


async def act(app: App, id: UUID | str, action: Action, by: str | None, only: Filter | None = None) -> Job:
    """Do it to one job, and return that as it is now; of a rerun, the new one. ``only``: if it matches at that moment;
    :raises JobNotFound, TransitionRefused, Duplicate, TooManyProfiles, InvalidPayload, InvalidResult, ConfigError:"""
    if isinstance(action, RerunAction):
        return (await rerun(app, id, action, by)).job
    checked_note(by, "by")  # also where nothing comes of it
    decide = await _decision(app, as_id(id), action.checked(), by)

    def judged(job: Job, now: datetime) -> Change | None:
        change = decide(job, now)
        # What need not be done, such as a cancel that came with its parent's, is done whatever the job is now.
        if change is not None and only is not None and not matches(job, only, now):
            why = f"it is {job.status} now, and no longer among those that were chosen"
            raise TransitionRefused(job, action.verb, why)
        return change

    return await app.session.writer.decide(as_id(id), judged)


async def result_of(app: App, id: UUID, action: Action, by: str | None, only: Filter | None = None) -> ActionResult:
    """Do it to one job; what came of it, whatever the job is."""
    try:
        job = await act(app, id, action, by, only)
    except JobNotFound as error:
        return ActionResult(id=id, answer="not_found", error="JobNotFound", message=str(error))
    except (TransitionRefused, Duplicate) as error:
        # A key held by another job is a refusal too: the message names the holder, the job is unchanged.
        return _refused(error.job if error.job.id == id else await app.jobs.get(id), id, error)
    except (InvalidPayload, InvalidResult, TooManyProfiles) as error:
        # It does not fit the task of this job, or its customer, but perhaps those of another.
        return _refused(await app.jobs.get(id), id, error)
    requested = action.verb is Verb.CANCEL and not job.ended
    return ActionResult(id=id, answer="requested" if requested else "done", job=job)


def _refused(job: Job, id: UUID, error: HeadraceError) -> ActionResult:
    return ActionResult(id=id, answer="refused", job=job, error=type(error).__name__, message=str(error))


async def _decision(app: App, id: UUID, action: Action, by: str | None) -> Decide:
    rules = app.session.engine.rules
    if not isinstance(action, ResolveAction):
        return lambda job, now: action.decide(job, now, rules, by)
    error, job = action.failure(rules), await app.jobs.get(id)
    # Before the result is checked: an error about the job comes first.
    check(job, Verb.RESOLVE, Status.COMPLETED if error is None else Status.FAILED)
    # Without a result the job is completed with none, whatever the task returns.
    task = None if action.result is None else app.tasks.get(job.task)
    text = encode_value(_ANY, action.result, "result") if task is None else task.handler.encode_result(action.result)
    return lambda job, now: actions.resolve(job, now, result_text=text, error=error, by=by)


# -- rerun


class AnyRerun(RerunAction, frozen=True):
    """A rerun with any option that a submit has."""

    given: JobOptions = msgspec.field(default_factory=JobOptions)
    arguments: Mapping[str, Any] = {}
    """Some of the arguments, in place of those of the payload."""

    @property
    def options(self) -> Mapping[str, Any]:
        """As they were given."""
        return self.given

    def payload_for(self, job: Job) -> Mapping[str, Any] | None:
        """The payload with the arguments laid over it."""
        if not self.arguments:
            return self.payload
        return (job.payload if self.payload is None else self.payload) | dict(self.arguments)


async def rerun(app: App, id: UUID | str, action: RerunAction, by: str | None) -> Inserted | Duplicated:
    """Do the work of an ended job again as a new one, with the same payload and options, or with others.

    :raises JobNotFound, TransitionRefused:
    :raises ConfigError, InvalidPayload: an option or the payload cannot be used
    """
    checked_note(by, "by")
    session, options = app.session, action.options
    changed = _options_of_rerun(options)
    old = await app.jobs.get(id)
    check(old, Verb.RERUN)  # before the payload is checked: an error about the job comes first
    if changed and is_own(old.task):
        raise TransitionRefused(old, Verb.RERUN, "it is headrace's own, which is done again as it is: name no options")
    payload, text = action.payload_for(old), None
    if payload is not None:
        draft = await draft_by_name(app, old.task, payload, options)
        text, keys = draft.payload_text, ("dedup", "concurrency_key")
        # Where a key is a template of the parameters, it is that of the new ones.
        changed = {name: draft.options[name] for name in keys if draft.options.get(name) is not None} | changed
    now = await session.writer.now()
    delay, due = changed.pop("delay", None), changed.pop("not_before", None)
    raises = changed.get("on_duplicate") == "raise"
    job = actions.rerun(
        old,
        app.host.new_id(),
        now,
        payload_text=text,
        not_after=changed.pop("not_after", None),
        available_at=due if delay is None else after(now, delay),
        changed=changed,
    )
    answer = await session.writer.inserts.insert(job)
    if not isinstance(answer, Duplicated):
        await _note_rerun(app, old.id, answer.job.id, by)
    elif raises:
        raise Duplicate(answer.job)
    return answer


async def _note_rerun(app: App, old: UUID, new: UUID, by: str | None) -> None:
    try:
        await app.session.writer.decide(old, lambda job, now: actions.note_rerun(job, new, now, by=by))
    except (EngineError, JobNotFound) as error:
        # The new job is stored, and names the old one.
        _log.warning("job %s was rerun as %s, but that could not be put on its record: %s", old, new, error)


def _options_of_rerun(options: Mapping[str, Any]) -> dict[str, Any]:
    for name in options:
        if name not in _OF_RERUN and name in JobOptions.__annotations__:
            raise ConfigError(f"rerun: {name} has no place here: the new job has no family, and answers no request")
    return dict(refuse_function(check_options(options)))
