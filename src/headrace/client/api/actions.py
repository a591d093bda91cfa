"""Actions on jobs: on one, and on all that match a filter, with a dry run that counts them.

The core decides each action, and the audit records who did it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Unpack, cast
from uuid import UUID

from headrace.client.api.jobs import get
from headrace.client.draft import KEY_OPTIONS, SPEC_OPTIONS
from headrace.client.handle import JobHandle
from headrace.client.lifetime import Lifetime
from headrace.client.options import JobOptions, check_options, refuse_function
from headrace.client.submission.by_name import draft_by_name
from headrace.core.attempt import ErrorInfo
from headrace.core.change import Change
from headrace.core.codec.json import Codec
from headrace.core.codec.value import encode_value
from headrace.core.job import Job, as_id
from headrace.core.lifecycle import actions
from headrace.core.lifecycle.transitions import check
from headrace.core.query import Filter, matches
from headrace.core.status import Status, Verb
from headrace.core.times import Seconds, seconds
from headrace.core.validation import checked_moment, checked_name, checked_note, whole
from headrace.engine import Duplicated
from headrace.errors import ConfigError, Duplicate, EngineError, JobNotFound, TransitionRefused, shown

if TYPE_CHECKING:
    from headrace.app import App
from collections.abc import AsyncGenerator, Awaitable
from typing import Literal

import msgspec

from headrace.client.api.filters import Filters, filter_of
from headrace.core.codec.record import Record
from headrace.core.lifecycle.transitions import TRANSITIONS
from headrace.errors import HeadraceError, InvalidPayload, InvalidResult, TooManyProfiles

__all__ = ["ACTS", "Acting", "ActingOnMany", "ActionResult", "Do", "act_on_all", "answered", "only_if"]


_log = logging.getLogger("headrace.app")

_ANY = Codec(Any)
_NOT_OF_RERUN = frozenset({"after", "after_when", "on_parent_failure", "request_key"})
_OF_RERUN = frozenset({*SPEC_OPTIONS, *KEY_OPTIONS, "delay", "not_before", "not_after"}) - _NOT_OF_RERUN

Decide = Callable[[Job, datetime], Change | None]


class Acting(Lifetime):
    """The half of an App that acts on jobs. ``by``, everywhere: who does it, for the audit."""

    async def cancel(self, id: UUID | str, *, by: str | None = None) -> Job:
        """End a job, or ask its worker to stop it; :raises JobNotFound, TransitionRefused:"""
        rules = self.session.engine.rules
        return await self._decide(id, by, lambda job, now: actions.cancel(job, now, rules, by=by))

    async def retry(self, id: UUID | str, *, delay: Seconds = 0.0, by: str | None = None) -> Job:
        """Retry a failed or cancelled job, with a new budget; ``delay``: not before so long from now.

        :raises JobNotFound, TransitionRefused, Duplicate, TooManyProfiles:
        """
        wait = seconds(delay, "delay")
        return await self._decide(id, by, lambda job, now: actions.retry(job, now, delay=wait, by=by))

    async def discard(self, id: UUID | str, *, by: str | None = None) -> Job:
        """End a completed or failed job as ``cancelled (discarded)``; :raises JobNotFound, TransitionRefused:"""
        return await self._decide(id, by, lambda job, now: actions.discard(job, now, by=by))

    async def postpone(self, id: UUID | str, until: datetime | Seconds, *, by: str | None = None) -> Job:
        """Let a job wait for another time: a moment, or so long from now; :raises JobNotFound, TransitionRefused:"""
        moment = checked_moment(until, "until") if isinstance(until, datetime) else None
        wait = 0.0 if isinstance(until, datetime) else seconds(until, "until")

        def decide(job: Job, now: datetime) -> Change:
            return actions.postpone(job, _after(now, wait) if moment is None else moment, now, by=by)

        return await self._decide(id, by, decide)

    async def run_now(self, id: UUID | str, *, by: str | None = None) -> Job:
        """Put a scheduled or retrying job in line at once; :raises JobNotFound, TransitionRefused:"""
        return await self._decide(id, by, lambda job, now: actions.run_now(job, now, by=by))

    async def move(self, id: UUID | str, queue: str, *, by: str | None = None) -> Job:
        """Move a job that no worker holds to another queue, with its arrival; :raises JobNotFound, TransitionRefused:

        ``job.queue`` is the new one then, and ``job.asked_queue`` the one it was submitted to.
        """
        queue = checked_name(queue, "queue")
        return await self._decide(id, by, lambda job, now: actions.move(job, queue, now, by=by))

    async def reprioritise(self, id: UUID | str, priority: int, *, by: str | None = None) -> Job:
        """Give a job that no worker holds another priority, 0 to 100; :raises JobNotFound, TransitionRefused:

        ``job.priority`` is the new one then, and ``job.asked_priority`` the one it was submitted with.
        """
        priority = whole(priority, "priority", 0, 100)
        return await self._decide(id, by, lambda job, now: actions.reprioritise(job, priority, now, by=by))

    async def resolve(
        self, id: UUID | str, *, result: Any = None, error: str | ErrorInfo | None = None, by: str | None = None
    ) -> Job:
        """Set the outcome of a job by hand: ``error`` fails it, else ``result`` completes it.

        :raises JobNotFound, TransitionRefused, InvalidResult:
        """
        if error is not None and result is not None:
            raise ConfigError("resolve: a job ends with a result or with an error, not with both")
        if not isinstance(error, str | ErrorInfo | None):
            raise ConfigError(f"resolve: error must be text or an ErrorInfo, not {shown(error)}")
        info = ErrorInfo("Resolved", error) if isinstance(error, str) else error
        info = None if info is None else info.cut(self.session.engine.rules.error_limit)
        job = await get(self.session, as_id(id))
        # Before the result is looked at: whoever errs about the job is told so.
        check(job, Verb.RESOLVE, Status.COMPLETED if info is None else Status.FAILED)
        # Without a result the job is completed with none, whatever the task returns.
        task = None if result is None else cast("App", self).tasks.get(job.task)
        handler = None if task is None else task.handler
        text = encode_value(_ANY, result, "result") if handler is None else handler.encode_result(result)
        return await self._decide(
            id, by, lambda job, now: actions.resolve(job, now, result_text=text, error=info, by=by)
        )

    async def rerun(
        self,
        id: UUID | str,
        *,
        payload: Mapping[str, Any] | None = None,
        by: str | None = None,
        **options: Unpack[JobOptions],
    ) -> JobHandle[Any]:
        """Do the work of an ended job again as a new one, with the same payload and options, or with others.

        ``payload``: all arguments by name, in place of the old ones. :raises JobNotFound, TransitionRefused:

        :raises ConfigError, InvalidPayload: an option or the payload cannot be used
        """
        app, session = cast("App", self), self.session
        checked_note(by, "by")
        changed = _options_of_rerun(options)
        old = (await session.engine.jobs.get([as_id(id)]))[0]
        if old is None:
            raise JobNotFound(as_id(id))
        check(old, Verb.RERUN)  # before the payload is looked at: whoever errs about the job is told so
        if changed and old.task.startswith("headrace."):
            raise TransitionRefused(
                old, Verb.RERUN, "it is headrace's own, which is done again as it is: name no options"
            )
        text = None
        if payload is not None:
            draft = await draft_by_name(app, old.task, payload, options)
            text, keys = draft.payload_text, ("dedup", "concurrency_key")
            # Where a key is a template of the parameters, it is that of the new ones.
            changed = {name: draft.options[name] for name in keys if draft.options.get(name) is not None} | changed
        now = await session.lanes.now()
        delay, due = changed.pop("delay", None), changed.pop("not_before", None)
        raises = changed.get("on_duplicate") == "raise"
        job = actions.rerun(
            old,
            app.host.new_id(),
            now,
            payload_text=text,
            not_after=changed.pop("not_after", None),
            available_at=due if delay is None else _after(now, delay),
            changed=changed,
        )
        answer = await session.lanes.submits.insert(job)
        if isinstance(answer, Duplicated):
            if raises:
                raise Duplicate(answer.job)
        else:
            await self._note_rerun(old.id, answer.job.id, by)
        duplicate, replaced = isinstance(answer, Duplicated), isinstance(answer, Duplicated) and answer.replaced
        return JobHandle(app, answer.job.id, last=answer.job, duplicate=duplicate, replaced=replaced)

    async def _note_rerun(self, old: UUID, new: UUID, by: str | None) -> None:
        try:
            await self.session.lanes.decide(old, lambda job, now: actions.note_rerun(job, new, now, by=by))
        except (EngineError, JobNotFound) as error:
            # The new job is stored, and names the old one.
            _log.warning("job %s was rerun as %s, but that could not be put on its record: %s", old, new, error)

    async def _decide(self, id: UUID | str, by: str | None, decide: Decide) -> Job:
        checked_note(by, "by")  # also where nothing comes of it
        only = _ONLY_IF.get()
        return await self.session.lanes.decide(as_id(id), decide if only is None else _judging(decide, *only))


_ONLY_IF: ContextVar[tuple[Verb, Filter] | None] = ContextVar("headrace_only_if", default=None)


@contextmanager
def only_if(verb: Verb, filter: Filter) -> Iterator[None]:
    """Within this, jobs are acted on only if they match, as of the moment of the act."""
    token = _ONLY_IF.set((verb, filter))
    try:
        yield
    finally:
        _ONLY_IF.reset(token)


def _judging(decide: Decide, verb: Verb, filter: Filter) -> Decide:
    def judged(job: Job, now: datetime) -> Change | None:
        change = decide(job, now)
        # What need not be done, such as a cancel that came with its parent's, is done whatever the job is now.
        if change is not None and not matches(job, filter, now):
            raise TransitionRefused(job, verb, f"it is {job.status} now, and no longer among those that were chosen")
        return change

    return judged


def _options_of_rerun(options: Mapping[str, Any]) -> dict[str, Any]:
    for name in options:
        if name not in _OF_RERUN and name in JobOptions.__annotations__:
            raise ConfigError(f"rerun: {name} has no place here: the new job has no family, and answers no request")
    return dict(refuse_function(check_options(options)))


def _after(now: datetime, wait: float) -> datetime:
    try:
        return now + timedelta(seconds=wait)
    except OverflowError:
        raise ConfigError(f"{wait:g} s from now is after the last day of the calendar") from None


ID_PAGE_JOBS = 200
"""So many jobs are read at a time while those that match are looked for; of each only the id is kept."""

ACTS = (
    Verb.CANCEL,
    Verb.RETRY,
    Verb.RERUN,
    Verb.DISCARD,
    Verb.POSTPONE,
    Verb.RUN_NOW,
    Verb.MOVE,
    Verb.REPRIORITISE,
    Verb.RESOLVE,
)
"""What can be done to many jobs."""

Do = Callable[[UUID], Awaitable[Job]]
"""Does it to one job."""


class ActionResult(msgspec.Struct, Record, frozen=True, kw_only=True):
    """What came of an act on one job."""

    id: UUID
    answer: Literal["done", "requested", "refused", "not_found"]
    """``requested``: a worker has the job, and is asked to stop it."""
    job: Job | None = None
    """As it is now, of a rerun the new one; None if there is none."""
    error: str | None = None
    """Of a refusal, the name of its error, as in ``headrace.errors``."""
    message: str | None = None


class ActingOnMany(Acting):
    """Of the App: acts on many jobs.

    ``filter`` is a mapping with the filters of ``jobs``. Without a ``status`` it is those that the act can begin from.
    The oldest are first. Each job is judged by itself, and acted on only if it matches still: it may have moved on.
    """

    async def dry_run(self, act: Verb | str, filter: Filters) -> int:
        """How many jobs this act would be tried on: ``await app.dry_run("retry", {"task": "resize"})``."""
        return await self.session.engine.records.count_matching(_filter(act, filter), self.session.host.clock.now())

    def cancel_all(self, filter: Filters, *, by: str | None = None) -> AsyncGenerator[ActionResult, None]:
        """Cancel all that match: ``async for one in app.cancel_all({"task": "resize"}): print(one.id, one.answer)``."""
        return act_on_all(self, Verb.CANCEL, filter, lambda id: self.cancel(id, by=by))

    def retry_all(
        self, filter: Filters, *, delay: Seconds = 0.0, by: str | None = None
    ) -> AsyncGenerator[ActionResult, None]:
        """Retry all that match."""
        return act_on_all(self, Verb.RETRY, filter, lambda id: self.retry(id, delay=delay, by=by))

    def rerun_all(
        self,
        filter: Filters,
        *,
        payload: Mapping[str, Any] | None = None,
        by: str | None = None,
        **options: Unpack[JobOptions],
    ) -> AsyncGenerator[ActionResult, None]:
        """Do the work of all that match again, as new jobs."""

        async def do(id: UUID) -> Job:
            handle = await self.rerun(id, payload=payload, by=by, **options)
            return handle.last or await handle.refresh()

        return act_on_all(self, Verb.RERUN, filter, do)

    def discard_all(self, filter: Filters, *, by: str | None = None) -> AsyncGenerator[ActionResult, None]:
        """Discard all that match."""
        return act_on_all(self, Verb.DISCARD, filter, lambda id: self.discard(id, by=by))

    def postpone_all(
        self, filter: Filters, until: datetime | Seconds, *, by: str | None = None
    ) -> AsyncGenerator[ActionResult, None]:
        """Let all that match wait for another time."""
        return act_on_all(self, Verb.POSTPONE, filter, lambda id: self.postpone(id, until, by=by))

    def run_now_all(self, filter: Filters, *, by: str | None = None) -> AsyncGenerator[ActionResult, None]:
        """Put all that match in line at once."""
        return act_on_all(self, Verb.RUN_NOW, filter, lambda id: self.run_now(id, by=by))

    def move_all(self, filter: Filters, queue: str, *, by: str | None = None) -> AsyncGenerator[ActionResult, None]:
        """Move all that match to another queue."""
        return act_on_all(self, Verb.MOVE, filter, lambda id: self.move(id, queue, by=by))

    def reprioritise_all(
        self, filter: Filters, priority: int, *, by: str | None = None
    ) -> AsyncGenerator[ActionResult, None]:
        """Give all that match another priority."""
        return act_on_all(self, Verb.REPRIORITISE, filter, lambda id: self.reprioritise(id, priority, by=by))

    def resolve_all(
        self,
        filter: Filters,
        *,
        result: Any = None,
        error: str | ErrorInfo | None = None,
        by: str | None = None,
    ) -> AsyncGenerator[ActionResult, None]:
        """Set the outcome of all that match."""
        return act_on_all(self, Verb.RESOLVE, filter, lambda id: self.resolve(id, result=result, error=error, by=by))


async def act_on_all(app: ActingOnMany, verb: Verb, filter: Filters, do: Do) -> AsyncGenerator[ActionResult, None]:
    """Do it to all that match, one after the other; what came of each."""
    checked = _filter(verb, filter)
    for id in await _found(app, checked):
        with only_if(verb, checked):
            acted = await answered(app, verb, UUID(bytes=id), do)
        yield acted


async def answered(app: ActingOnMany, verb: Verb, id: UUID, do: Do) -> ActionResult:
    """Act on one job; what came of it, whatever the job is."""
    try:
        job = await do(id)
    except JobNotFound as error:
        return ActionResult(id=id, answer="not_found", error="JobNotFound", message=str(error))
    except (TransitionRefused, Duplicate) as error:
        # A key held by another job is a refusal too: the message names the holder, the job is unchanged.
        job = error.job if error.job.id == id else await cast(Any, app).get(id)
        return _refused(job, id, error)
    except (InvalidPayload, InvalidResult, TooManyProfiles) as error:
        # It does not fit the task of this job, or its customer, but perhaps those of another.
        return _refused(await cast(Any, app).get(id), id, error)
    asked = verb is Verb.CANCEL and not job.ended
    return ActionResult(id=id, answer="requested" if asked else "done", job=job)


def _refused(job: Job, id: UUID, error: HeadraceError) -> ActionResult:
    return ActionResult(id=id, answer="refused", job=job, error=type(error).__name__, message=str(error))


async def _found(app: ActingOnMany, filter: Filter) -> list[bytes]:
    """The ids of those that match, the oldest first: a job that waits for others is retried after them, or it would be
    ended for their sake once more."""
    records, now = app.session.engine.records, app.session.host.clock.now()
    found, cursor = list[bytes](), None
    while True:
        page = await records.find(filter, now, ID_PAGE_JOBS, cursor)
        found += [job.id.bytes for job in page.items]
        cursor = page.cursor
        if cursor is None:
            found.reverse()
            return found


def _filter(act: Verb | str, filter: Filters) -> Filter:
    """The jobs that an act is tried on.

    :raises ConfigError: there is no such act, or no filter
    """
    if act not in ACTS:
        raise ConfigError(f"{shown(act)} is nothing that can be done to jobs: {', '.join(ACTS)} are")
    if not isinstance(filter, Mapping) or not filter:
        raise ConfigError('an act on many jobs needs a filter, as in {"status": "failed", "task": "resize"}')
    given: dict[str, Any] = {name: value for name, value in filter.items() if value is not None}
    return filter_of(cast(Filters, {"status": sorted(TRANSITIONS[Verb(act)])} | given))
