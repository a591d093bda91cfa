"""What a handler knows about its run, and how it reaches its caller."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager
from contextvars import ContextVar, Token
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal, ParamSpec, Protocol, TypeVar, cast, overload
from uuid import UUID

from msgspec.structs import replace

from headrace.core.attempt import Progress
from headrace.core.codec.value import progress_details
from headrace.core.job import Job
from headrace.core.validation import checked_moment
from headrace.errors import NoContext, NotOpen, NotSupported, Stopped, shown
from headrace.runtime import slot as waiting
from headrace.worker.execution.resources import Resource
from headrace.worker.execution.steps import run_step, run_step_blocking

if TYPE_CHECKING:
    from headrace.worker.execution.completion import Completion
    from headrace.worker.execution.writers import EntryWriter

__all__ = ["Caller", "Context", "Stopping", "Transaction"]

P = ParamSpec("P")
T = TypeVar("T")

Stopping = Literal["cancelled", "timed_out", "lost", "shutdown"]

_counting = threading.Lock()
_current = cast("ContextVar[Context | None]", waiting.current)


class Transaction:
    """A transaction of the engine's own, for what a handler writes beside the end of its job."""

    def __init__(self, encode: Callable[[Any], str]) -> None:
        self.connection: Any = None
        """The engine's own kind of connection (asyncpg, apsw), within the transaction."""
        self.result_text: str | None = None
        self._encode = encode

    def complete(self, result: Any = None) -> None:
        """End the job with this result when the block ends: the last statement before the commit;
        :raises InvalidResult: the result is not what the handler promised"""
        self.result_text = self._encode(result)


class Awaited(Protocol[T]):
    """A task with jobs that others wait for."""

    async def _results_for(self, job: Job) -> list[T]:
        """The results of its jobs that this one waited for."""
        ...


class Caller:
    """The caller of a handler, as its Context reaches it: the run of a worker, a child process, a test harness.

    This class itself stands for a direct call of the function.
    """

    __slots__ = ()

    of_one = True
    """Whether the handler is called for one job, the parent of the jobs that it submits."""

    def report(self, report: Progress) -> None:
        """Keep how far the handler is."""

    async def flush(self) -> None:
        """Wait until everything reported so far is stored."""

    def acted(self) -> None:
        """Have the start recorded: the handler did something visible to others."""

    def log(self, data: str) -> None:
        """Add a line to the log of the job."""

    def sign(self) -> None:
        """Note that the handler is at work."""

    def begins_within(self) -> float | None:
        """How many seconds are left to call the handler, below 0 none; None: it may be called whenever that is."""
        return None

    def begun(self) -> None:
        """Note that the handler was called before in this run: it may be called again whenever that is."""

    def took(self, seconds: float) -> None:
        """Note how long the function of the handler took."""

    def entry_writer(self) -> EntryWriter | None:
        """The writer of what the run adds to its job; None: nothing is kept;
        :raises NotSupported: it cannot be reached from here"""
        return None

    def slot(self) -> waiting.Slot | None:
        """The slot that the run occupies, to be yielded while it waits for other jobs; None: it occupies none."""
        return None

    def completer(self) -> Completion:
        """What completes the job within a transaction; :raises NotSupported: nothing can do that here"""
        raise NotSupported(
            "only a worker's own threads can complete a job in a transaction: not a function that was called directly"
            ' or by a test harness, nor one with run_in="process"'
        )

    def resource(self, resource: Resource[T]) -> T:
        """What the worker has open under this definition; :raises NotOpen, NotSupported: nothing is open here"""
        raise NotOpen(
            f"resource {resource.name!r} is not open: this function was called directly; a worker and"
            f" headrace.testing.harness open it, or use `async with {resource.name}.open() as value:` yourself"
        )


_NOBODY = Caller()


class Context:
    """The current run of a job, for its handler: progress, steps, results, stop requests."""

    __headrace_context__ = True
    __slots__ = ("_caller", "_calls", "_trace", "attempt", "job", "started_at", "stopping")
    _trace: dict[str, str]  # headers of the span of this run; not set where there is none

    def __init__(self, job: Job, attempt: int, started_at: datetime, caller: Caller = _NOBODY) -> None:
        self.job = job
        """The stored record, as it was when the run began. The start of a first attempt may be stored with its end: the
        number of this attempt is ``attempt``, not ``job.attempt``."""
        self.attempt = attempt
        """The number of this attempt, from 1."""
        self.stopping: Stopping | None = None
        """Why the handler should stop, once it should."""
        self.started_at = started_at
        """When the handler was called."""
        self._caller = caller
        self._calls: Counter[str] | None = None

    @classmethod
    def current(cls) -> Context:
        """The Context of the handler this code runs in; :raises NoContext: outside a handler."""
        if (current := _current.get()) is None:
            raise NoContext("Context.current() was called outside a handler")
        return current

    @classmethod
    def _current_or_none(cls) -> Context | None:
        """The Context of the handler this code runs in, if it runs in one."""
        return _current.get()

    @classmethod
    def _detached(cls, job: Job) -> Context:
        """A Context for calling a task's function directly: reports go nowhere, nothing requests that it stops."""
        return cls(job, max(job.attempt, 1), job.created_at)

    @property
    def job_id(self) -> UUID:
        """The job's id."""
        return self.job.id

    @property
    def epoch(self) -> int:
        """Grows whenever the job gains or loses an owner."""
        return self.job.epoch

    @property
    def deadline(self) -> datetime | None:
        """When this attempt times out."""
        timeout = self.job.spec.timeout
        return None if timeout is None else self.started_at + timedelta(seconds=timeout)

    @property
    def fence(self) -> str:
        """``<job id>:<epoch>``, for conditional writes elsewhere: a later owner's is greater in its epoch."""
        return f"{self.job.id}:{self.job.epoch}"

    @property
    def idempotency_key(self) -> str:
        """The same in every attempt of this job."""
        return str(self.job.id)

    def progress(
        self,
        percent: float,
        message: str | None = None,
        *,
        step: str | None = None,
        estimated_completion: datetime | None = None,
        details: Mapping[str, Any] | None = None,
    ) -> None:
        """Say how far the work is (0 to 100); cheap to call often, from any thread, and in a child process.

        ``estimated_completion``: when it will be done, as far as can be said (an aware datetime). ``details``: anything
        else worth reporting, as JSON of at most 16 KiB, with numbers that are finite, whole ones within ±2⁵³. A report
        replaces the one before it: what it leaves out is gone.

        :raises ConfigError: the moment is not aware, or the details are not JSON, too large, or have greater numbers
        """
        if not 0 <= percent <= 100:  # also refuses NaN
            raise ValueError(f"progress must be from 0 to 100, not {shown(percent)}")
        report = Progress(float(percent), message, step)
        if estimated_completion is not None or details is not None:
            report = replace(
                report,
                estimated_completion=checked_moment(estimated_completion, "estimated_completion"),
                # Decoded: the handler may go on with its own.
                details=None if details is None else progress_details(details, "details"),
            )
        self._caller.report(report.cut())

    def heartbeat(self) -> None:
        """Say that the handler is at work, so that a job with a ``heartbeat`` does not time out; cheap to call often,
        from any thread, and in a child process. Progress, lines of the log, items and steps say it as well."""
        self._caller.sign()

    def check(self) -> None:
        """Stop here if the run should stop: how a thread or process handler co-operates;
        :raises Stopped: the job was cancelled, timed out, lost, or its worker is shutting down."""
        if self.stopping is not None:
            raise Stopped(self.stopping)

    async def flush(self) -> None:
        """Wait until everything reported so far is stored."""
        await self._caller.flush()

    @overload
    async def step(
        self, name: str, fn: Callable[P, Coroutine[Any, Any, T]], /, *args: P.args, **kwargs: P.kwargs
    ) -> T: ...
    @overload
    async def step(self, name: str, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T: ...

    async def step(self, name: str, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Call the function, keep its result with the job, and return it: durable when this returns.

        A later attempt is given what was kept, and the function is not called again. A plain function is called in a
        thread. The name distinguishes the steps of this job; a step that raised may be tried again.

        :raises ConfigError: the name was there before in this attempt
        :raises InvalidResult: the result is not JSON, or not what the function promised
        :raises Stopped: the run should stop, or the job has another owner by now
        """
        return await run_step(self, name, fn, args, kwargs)

    def step_sync(self, name: str, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """``step`` for plain handlers: the function is called on this very thread; raises the same."""
        value: T = run_step_blocking(self, name, fn, args, kwargs)
        return value

    async def results(self, task: Awaited[T]) -> list[T]:
        """What the jobs of this task returned that this one waited for (``after``), in the order they were named.

        :raises JobFailed, JobCancelled: one of them did not succeed, which ``after_when="ended"`` allows
        :raises JobNotFound: one was pruned since: this job had ended, and was retried later than its retention
        """
        return await task._results_for(self.job)

    def _place(self, call: str) -> int:
        """How many calls like this one the run has made before; also when its threads make them at once."""
        with _counting:
            if self._calls is None:
                self._calls = Counter()
            self._calls[call] += 1
            return self._calls[call] - 1

    def _places(self) -> Counter[str]:
        """The calls the run has made so far."""
        return Counter(self._calls)

    def _rewind(self, places: Counter[str]) -> None:
        """The handler is called again in this attempt, from where those were its calls: it finds the jobs it submitted
        and the steps it kept."""
        with _counting:
            self._calls = Counter(places)
        if (writer := self._caller.entry_writer()) is not None:
            writer.stepped.clear()

    @property
    def stream_position(self) -> int:
        """How many items of this job's stream earlier attempts have kept. A generator that reads this before its first
        item goes on behind them; one that does not begins the stream anew."""
        if (writer := self._caller.entry_writer()) is None:
            return 0
        writer.resumes = True
        return writer.position

    def resource(self, resource: Resource[T]) -> T:
        """What the resource yielded when the worker opened it: ``pool = ctx.resource(db)``; from any thread.

        :raises NotOpen: outside a worker, or the resource is of another App
        :raises NotSupported: in a child process (``run_in="process"``)
        """
        return self._caller.resource(resource)

    async def complete(self, result: Any = None, *, connection: Any) -> None:
        """End the job with this result as part of the transaction that is open on the connection.

        What the handler wrote there and the end of its job are committed together, or not at all: call it last, then
        commit. Afterwards what the handler returns is ignored, and what it raises only logged. After a rollback the
        attempt goes on.

        :raises Stale: another worker owns the job now; do not catch it, so that the transaction rolls back
        :raises NotSupported: the engine, or this kind of connection, or this kind of handler cannot do it
        :raises InvalidResult: the result is not what the handler promised
        """
        await self._caller.completer().complete(self, result, connection)

    def complete_sync(self, result: Any = None, *, connection: Any) -> None:
        """``complete`` for plain handlers: the connection is used on this very thread; raises the same."""
        self._caller.completer().complete_blocking(self, result, connection)

    def transaction(self) -> AbstractAsyncContextManager[Transaction]:
        """A transaction on a connection of the engine's: ``async with ctx.transaction() as tx:``. Write through
        ``tx.connection``, and call ``tx.complete(result)`` to end the job with it."""
        return self._caller.completer().transaction(self)

    def _entered(self) -> Token[Context | None]:
        """Make this the current Context of the running task or thread, until ``left``."""
        return _current.set(self)

    @staticmethod
    def _left(token: Token[Context | None]) -> None:
        """The handler is done: what its task or thread does next has nothing to do with it."""
        _current.reset(token)
