"""What people and programs do to jobs through an App: each act is decided in the core and audited with who did it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Unpack, cast
from uuid import UUID

from headrace.client.jobs import draft_by_name, get
from headrace.client.lifetime import Lifetime
from headrace.core import acts
from headrace.core.bounds import checked_moment, checked_name, checked_note, whole
from headrace.core.change import Change
from headrace.core.codec.codec import Codec
from headrace.core.codec.value import encode_value
from headrace.core.job import ErrorInfo, Job
from headrace.core.query import Filter, matches
from headrace.core.retry import Seconds, seconds
from headrace.core.status import Status, Verb
from headrace.core.table import check
from headrace.draft import KEY_OPTIONS, SPEC_OPTIONS
from headrace.engine import Duplicated
from headrace.errors import ConfigError, Duplicate, EngineError, JobNotFound, TransitionRefused, shown
from headrace.handle import JobHandle, as_id
from headrace.options import JobOptions, check_options, refuse_function

if TYPE_CHECKING:
    from headrace.app import App

__all__ = ["Acting", "only_if"]

_log = logging.getLogger("headrace.app")

_ANY = Codec(Any)
_NOT_OF_RERUN = frozenset({"after", "after_when", "on_parent_failure", "request_key"})
_OF_RERUN = frozenset({*SPEC_OPTIONS, *KEY_OPTIONS, "delay", "not_before", "not_after"}) - _NOT_OF_RERUN

Decide = Callable[[Job, datetime], Change | None]


class Acting(Lifetime):
    """The half of an App that acts on jobs. ``by``, everywhere: who does it, for the audit."""

    async def cancel(self, id: UUID | str, *, by: str | None = None) -> Job:
        """End a job, or ask its worker to stop it; :raises JobNotFound, TransitionRefused:"""
        rules = self.engine.rules
        return await self._decide(id, by, lambda job, now: acts.cancel(job, now, rules, by=by))

    async def retry(self, id: UUID | str, *, delay: Seconds = 0.0, by: str | None = None) -> Job:
        """Retry a failed or cancelled job, with a new budget; ``delay``: not before so long from now.

        :raises JobNotFound, TransitionRefused, Duplicate, TooManyProfiles:
        """
        wait = seconds(delay, "delay")
        return await self._decide(id, by, lambda job, now: acts.retry(job, now, delay=wait, by=by))

    async def discard(self, id: UUID | str, *, by: str | None = None) -> Job:
        """End a completed or failed job as ``cancelled (discarded)``; :raises JobNotFound, TransitionRefused:"""
        return await self._decide(id, by, lambda job, now: acts.discard(job, now, by=by))

    async def postpone(self, id: UUID | str, until: datetime | Seconds, *, by: str | None = None) -> Job:
        """Let a job wait for another time: a moment, or so long from now; :raises JobNotFound, TransitionRefused:"""
        moment = checked_moment(until, "until") if isinstance(until, datetime) else None
        wait = 0.0 if isinstance(until, datetime) else seconds(until, "until")

        def decide(job: Job, now: datetime) -> Change:
            return acts.postpone(job, _after(now, wait) if moment is None else moment, now, by=by)

        return await self._decide(id, by, decide)

    async def run_now(self, id: UUID | str, *, by: str | None = None) -> Job:
        """Put a scheduled or retrying job in line at once; :raises JobNotFound, TransitionRefused:"""
        return await self._decide(id, by, lambda job, now: acts.run_now(job, now, by=by))

    async def move(self, id: UUID | str, queue: str, *, by: str | None = None) -> Job:
        """Move a job that no worker holds to another queue, with its arrival; :raises JobNotFound, TransitionRefused:

        ``job.queue`` is the new one then, and ``job.asked_queue`` the one it was submitted to.
        """
        queue = checked_name(queue, "queue")
        return await self._decide(id, by, lambda job, now: acts.move(job, queue, now, by=by))

    async def reprioritise(self, id: UUID | str, priority: int, *, by: str | None = None) -> Job:
        """Give a job that no worker holds another priority, 0 to 100; :raises JobNotFound, TransitionRefused:

        ``job.priority`` is the new one then, and ``job.asked_priority`` the one it was submitted with.
        """
        priority = whole(priority, "priority", 0, 100)
        return await self._decide(id, by, lambda job, now: acts.reprioritise(job, priority, now, by=by))

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
        info = None if info is None else info.cut(self.engine.rules.error_limit)
        job = await get(self.session, as_id(id))
        # Before the result is looked at: whoever errs about the job is told so.
        check(job, Verb.RESOLVE, Status.COMPLETED if info is None else Status.FAILED)
        # Without a result the job is completed with none, whatever the task returns.
        task = None if result is None else cast("App", self).by_name.get(job.task)
        handler = None if task is None else task.handler
        text = encode_value(_ANY, result, "result") if handler is None else handler.encode_result(result)
        return await self._decide(id, by, lambda job, now: acts.resolve(job, now, result_text=text, error=info, by=by))

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
        job = acts.rerun(
            old,
            app.new_id(),
            now,
            payload_text=text,
            not_after=changed.pop("not_after", None),
            available_at=due if delay is None else _after(now, delay),
            changed=changed,
        )
        answer = await session.lanes.insert(job)
        if isinstance(answer, Duplicated):
            if raises:
                raise Duplicate(answer.job)
        else:
            await self._note_rerun(old.id, answer.job.id, by)
        duplicate, replaced = isinstance(answer, Duplicated), isinstance(answer, Duplicated) and answer.replaced
        return JobHandle(app, answer.job.id, last=answer.job, duplicate=duplicate, replaced=replaced)

    async def _note_rerun(self, old: UUID, new: UUID, by: str | None) -> None:
        try:
            await self.session.lanes.decide(old, lambda job, now: acts.note_rerun(job, new, now, by=by))
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
