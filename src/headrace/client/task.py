"""A task: a function that can be submitted. Every setting of a submit goes through ``options``."""

from __future__ import annotations

import asyncio
import copy
import functools
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterable, Mapping
from contextlib import aclosing, suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, Self, TypeVar, Unpack, cast
from uuid import UUID

import msgspec

from headrace.client.draft import Draft, asked_in
from headrace.client.handle import JobHandle, StreamHandle
from headrace.client.hooks import Hooks
from headrace.client.options import (
    TEMPLATES,
    JobOptions,
    check_key,
    check_options,
    fill_templates,
    merged,
    refuse_function,
)
from headrace.client.submission import direct
from headrace.client.submission.parentage import is_found_again, new_id
from headrace.client.submission.submit import submit
from headrace.core.codec.value import StreamRef
from headrace.core.job import Job, Spec, as_id
from headrace.core.lifecycle import submission
from headrace.core.status import Status, Verb
from headrace.errors import (
    ConfigError,
    Duplicate,
    EngineError,
    InvalidPayload,
    JobCancelled,
    JobFailed,
    JobNotFound,
    NotOpen,
    TransitionRefused,
)
from headrace.runtime.host import Host
from headrace.runtime.slot import current
from headrace.runtime.watch.stream import Stream, StreamItem
from headrace.worker.execution.context import Context
from headrace.worker.handler import Handler

if TYPE_CHECKING:
    from headrace.app import App
    from headrace.client.task_registry import Tasks

__all__ = ["AsyncTask", "PlainTask", "StreamTask", "Task"]

P = ParamSpec("P")
_OWNER = "run"
"""The person on record who cancels a job that its owner abandoned."""

_ELSEWHERE = {
    "delay": "{0}.submit(...)",
    "apply_async": "{0}.options(delay=60, queue=...).submit(...)",
    "enqueue": "{0}.submit(...)",
    "aenqueue": "{0}.submit(...)",
    "send": "{0}.submit(...)",
    "send_with_options": "{0}.options(delay=60, queue=...).submit(...)",
    "kiq": "{0}.submit(...)",
    "defer": "{0}.submit(...)",
    "defer_async": "{0}.submit(...)",
}
"""What other job systems call a submit, and what it is here."""

R_co = TypeVar("R_co", covariant=True)
T_co = TypeVar("T_co", covariant=True)


class Task(Generic[P, R_co]):
    """A registered function with its policy; made by ``@app.task``."""

    __name__: str

    def __init__(self, home: Tasks, handler: Handler, options: Mapping[str, Any], hooks: Hooks | None = None) -> None:
        self._home, self._options = home, options
        self.hooks = hooks or Hooks()
        """What is around this task alone."""
        self._resolved: tuple[App, Mapping[str, Any], dict[str, Any] | None] | None = None
        """Its App, its options over the defaults of that, and what a spec takes of them, if no template has to be
        filled."""
        self.handler = handler
        """What a worker runs."""
        functools.update_wrapper(self, handler.fn)

    def __repr__(self) -> str:
        return f"<Task {self.name!r} at {self.handler.place}>"

    if not TYPE_CHECKING:  # to a type checker, every name would exist

        def __getattr__(self, name: str) -> Any:
            kind, own = type(self).__name__, vars(self).get("__name__", "task")
            message = f"{kind!r} object has no attribute {name!r}"
            if name in _ELSEWHERE:
                ours = _ELSEWHERE[name].format(own)
                sync = ours.replace("submit(", "submit_sync(")
                message += f": to submit a job, await {ours}, or call {sync} where there is no event loop"
            raise AttributeError(message, name=name, obj=self)

    @property
    def name(self) -> str:
        """The name its jobs carry."""
        return self.handler.name

    @property
    def fn(self) -> Callable[..., Any]:
        """The function itself."""
        return self.handler.fn

    @property
    def app(self) -> App:
        """The App it is submitted to; :raises NotBound: its collection was not included in one"""
        return self._home.app

    # -- submitting

    def options(self, **options: Unpack[JobOptions]) -> Self:
        """The same task with these options; later ones win, ``retry`` is replaced whole;
        :raises ConfigError: naming the option"""
        return self._with_options(options)

    def _with_options(self, options: Mapping[str, Any]) -> Self:
        """Like ``options``, for options that are data."""
        changed = copy.copy(self)
        own = self.handler.policy.retry.function
        changed._options = merged(self._options, refuse_function(check_options(options), own))
        changed._resolved = None
        return changed

    async def submit(self, *args: P.args, **kwargs: P.kwargs) -> JobHandle[R_co]:
        """Store a job that calls the function with these arguments; durable when this returns.

        :raises InvalidPayload: the arguments do not fit the signature
        :raises Duplicate: the dedup key is held and ``on_duplicate`` says so
        """
        return await submit(self._draft_bound(self.handler.bind(args, kwargs)))

    def submit_sync(self, *args: P.args, **kwargs: P.kwargs) -> JobHandle[R_co]:
        """``submit`` for callers without an event loop; a ``connection`` is used on this very thread;
        :raises SyncInAsync: this thread has a running event loop"""
        return direct.submit(self.draft(*args, **kwargs))

    def draft(self, *args: P.args, **kwargs: P.kwargs) -> Draft[R_co]:
        """A job with an id that is not stored yet: submitting it twice inserts it once."""
        return self._draft_bound(self.handler.bind(args, kwargs))

    def _draft_bound(self, arguments: Mapping[str, Any], now: datetime | None = None) -> Draft[R_co]:
        """Like ``draft``, with arguments by parameter name; ``now`` spares reading the clock for each of many."""
        handler = self.handler
        app, options, asked = self._resolved or self._resolve()
        text = handler.encode_bound(arguments)
        if asked is None:
            options = fill_templates(options, lambda: handler.defaults | msgspec.json.decode(text, type=dict[str, Any]))
        name, host = handler.name, app.host
        if current.get() is None:  # as in most programs that submit
            id = host.dice.new_id(now or host.clock.now())
        else:
            id = new_id(app, name, text, options, now)
        return Draft(app, id, name, text, options, handler, asked)

    def _resolve(self) -> tuple[App, Mapping[str, Any], dict[str, Any] | None]:
        """What is the same for all drafts, found out once: most tasks are submitted often, with the same options."""
        app = self.app
        options = merged(app.defaults, self._options)
        check_key(self._options, options)
        templates = any(place in options for place in TEMPLATES.values())
        self._resolved = app, options, None if templates else asked_in(options)
        return self._resolved

    async def map(self, items: Iterable[tuple[Any, ...] | Mapping[str, Any]]) -> list[JobHandle[R_co]]:
        """Submit many: a tuple is positional, a mapping is keywords. All are checked before the first is stored;
        :raises TypeError: naming the index of what is neither"""
        now = self.app.host.clock.now()
        drafts = [self._draft_of(item, index, now) for index, item in enumerate(items)]
        return cast("list[JobHandle[R_co]]", await self.app.submit_many(drafts))

    def _draft_of(self, item: Any, index: int, now: datetime) -> Draft[R_co]:
        if isinstance(item, tuple):
            args, kwargs = item, {}
        elif isinstance(item, Mapping):
            args, kwargs = (), dict(item)
        else:
            raise TypeError(f"{self.name}.map: item {index} must be a tuple or a mapping, not {type(item).__name__}")
        try:
            return self._draft_bound(self.handler.bind(args, kwargs), now)
        except InvalidPayload as error:
            error.args = (f"item {index}: {error}",)
            raise

    async def run(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Submit and wait for the result. The caller owns the job: cancelling the caller cancels it.

        :raises JobFailed, JobCancelled:
        :raises ConfigError: within a transaction, where nothing can be waited for
        """
        draft = self.draft(*args, **kwargs)
        if draft.options.get("connection") is not None:
            raise ConfigError("connection: run waits for the result, and there is no job to wait for before the commit")
        submitting = asyncio.ensure_future(draft.submit())
        try:
            handle = await asyncio.shield(submitting)
            await self._revive(handle)
            return await handle.result()
        except asyncio.CancelledError:
            if not is_found_again(draft):
                await asyncio.shield(self._abandon(submitting, draft.id))
            raise

    async def _abandon(self, submitting: asyncio.Future[JobHandle[Any]], id: UUID) -> None:
        """Cancel a job that its owner abandoned, once it is there."""
        # A write under way cannot be called back: the job is cancelled when it is there. A duplicate is not ours and
        # has another id.
        await asyncio.wait([submitting])
        if submitting.cancelled() or submitting.exception() is not None:
            return
        try:
            await self.app.jobs.handle(id).cancel(by=_OWNER)
        except (JobNotFound, TransitionRefused, EngineError):
            pass

    async def _revive(self, handle: JobHandle[Any]) -> None:
        """Retry a job that an earlier attempt of a handler abandoned: now a caller wants it."""
        if handle.last is None or handle.last.status is not Status.CANCELLED or handle.duplicate:
            return
        cancels = [event for event in (await self.app.jobs.history(handle.id)).events if event.verb == Verb.CANCEL]
        if cancels and cancels[-1].by == _OWNER:
            with suppress(TransitionRefused, Duplicate):
                await handle.retry(by=_OWNER)

    def handle(self, id: UUID | str) -> JobHandle[R_co]:
        """A job of this task by its id; nothing is read yet."""
        return JobHandle(self.app, as_id(id), handler=self.handler)

    async def _results_for(self, job: Job) -> list[R_co]:
        """What ``ctx.results(task)`` gives: the results of those jobs of this task that the job waited for."""
        names, engine = {self.name, *self.handler.aliases}, self.app.session.engine
        first: Job | None = job
        while first is not None and not first.after and first.rerun_of is not None:
            # A rerun is outside the family, with the same work.
            first = (await engine.jobs.get([first.rerun_of]))[0]
        after = () if first is None else first.after
        results = list[R_co]()
        for id, one in zip(after, await engine.jobs.get(after), strict=True):
            if one is None:  # kept as long as a live job may need it, but this one had ended, and was retried
                raise JobNotFound(id, f"job {id}, which this one waited for, was pruned, and its result with it")
            if one.task in names:
                handle = JobHandle[R_co](self.app, one.id, last=one, handler=self.handler)
                results.append(await handle.result())
        return results

    # -- calling

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Any:
        """Call the function here and now; a Context, if it takes one, reports nowhere."""
        if self.handler.takes_context:
            return self.fn(self._detached(args, kwargs), *args, **kwargs)
        return self.fn(*args, **kwargs)

    def _detached(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Context:
        host = self._home._host_or_none or Host()
        now = host.clock.now()
        try:
            text = self.handler.encode(args, kwargs)
        except InvalidPayload:
            text = "{}"  # a direct call may pass what could never be stored, such as a test's stand-in
        return Context._detached(
            submission.submit(host.dice.new_id(now), Spec(task=self.name, created_at=now), text, now)
        )


class AsyncTask(Task[P, R_co]):
    """A task of a coroutine function."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R_co]:
        """Call the function here; a Context, if it takes one, reports nowhere."""
        return cast("Coroutine[Any, Any, R_co]", super().__call__(*args, **kwargs))


class PlainTask(Task[P, R_co]):
    """A task of a plain function, run in a thread or a process."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        """Call the function here; a Context, if it takes one, reports nowhere."""
        return cast("R_co", super().__call__(*args, **kwargs))


class StreamTask(Task[P, int], Generic[P, T_co]):
    """A task of an asynchronous generator of ``T_co``: its items are kept as they come, its result is their number."""

    async def submit(self, *args: P.args, **kwargs: P.kwargs) -> StreamHandle[T_co]:
        """Store a job that streams what the function yields; durable when this returns. Raises like any submit."""
        handle = await super().submit(*args, **kwargs)
        return StreamHandle(self.app, handle.id, last=handle.last, duplicate=handle.duplicate, handler=self.handler)

    def handle(self, id: UUID | str) -> StreamHandle[T_co]:
        """A job of this task by its id; nothing is read yet."""
        return StreamHandle(self.app, as_id(id), handler=self.handler)

    def stream(self, *args: P.args, **kwargs: P.kwargs) -> Stream[T_co]:
        """Submit, and read the items while it runs. The reader owns the job: to stop reading cancels it. Nothing is
        submitted before the first item is read."""
        return _Owned(self, self.draft(*args, **kwargs))

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> AsyncIterator[T_co]:
        """Call the function here; a Context, if it takes one, reports nowhere."""
        return cast("AsyncIterator[T_co]", super().__call__(*args, **kwargs))


class _Owned(Stream[T_co]):
    """The stream of a job that is submitted when it is read, and cancelled when that is left off."""

    def __init__(self, task: StreamTask[Any, T_co], draft: Draft[int]) -> None:
        if draft.options.get("connection") is not None:
            raise ConfigError("connection: stream reads the items, and there is no job to run before the commit")
        super().__init__(lambda: task.app.session.writer.entry_reader, draft.id, task.handler.decode_item)
        self._task, self._draft = task, draft

    def reference(self) -> StreamRef:
        raise InvalidPayload(
            self._task.name, "a stream that is passed on must be of a job: (await submit(...)).stream()"
        )

    async def _read(self) -> AsyncGenerator[StreamItem[T_co] | int, None]:
        submitting, over = asyncio.ensure_future(self._draft.submit()), False
        try:
            handle = await asyncio.shield(submitting)
            self.id = handle.id  # of another job, if the dedup key was taken
            await self._task._revive(handle)
            async with aclosing(super()._read()) as found:
                try:
                    async for item in found:
                        yield item
                    over = True
                except (JobFailed, JobCancelled):
                    over = True
                    raise
        finally:
            if not over and not is_found_again(self._draft):
                with suppress(NotOpen):  # left behind when the App was: there is no way to reach the job any more
                    await asyncio.shield(self._task._abandon(submitting, self._draft.id))
