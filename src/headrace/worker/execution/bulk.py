"""One call of a bulk handler: many jobs in one slot, each with a run of its own."""

from __future__ import annotations

import asyncio
import copy
import logging
from collections.abc import Sequence
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar, cast

from headrace.core.attempt import Progress
from headrace.errors import HeadraceError, InvalidResult, NotSupported
from headrace.worker.execution.call import is_late
from headrace.worker.execution.context import Caller, Context
from headrace.worker.execution.resources import Resource
from headrace.worker.execution.run import STOP_TIMEOUT_SECONDS, Run
from headrace.worker.owned_job import OwnedJob
from headrace.worker.yielded_slots import RunSlot

if TYPE_CHECKING:
    from headrace.worker.claim.collector import Collector
    from headrace.worker.execution.completion import Completion
    from headrace.worker.execution.writers import EntryWriter
    from headrace.worker.slots import Slots

__all__ = ["BulkCall", "check_outcomes"]

_log = logging.getLogger("headrace.worker")

T = TypeVar("T")


def check_outcomes(answer: Any, n: int, name: str) -> list[Any]:
    """What a bulk handler returned, one outcome for each item; :raises InvalidResult: it is not that"""
    if not isinstance(answer, list | tuple):
        raise InvalidResult(f"{name}: a bulk handler returns a list of outcomes, not {type(answer).__name__}")
    if len(answer) != n:
        raise InvalidResult(f"{name}: {len(answer)} outcomes for {n} items: which is whose cannot be known")
    return list(answer)


_Outcome = tuple[Any, BaseException | None, TracebackType | None]
"""The result of a call for one job, or its error and traceback: not every kind of error can be set on a future."""


class _Member:
    """The part of one job in a call: its item, its context, and the outcome that its run waits for."""

    __slots__ = ("ctx", "item", "outcome")

    def __init__(self, ctx: Context, item: Any) -> None:
        self.ctx, self.item = ctx, item
        self.outcome: asyncio.Future[_Outcome] = asyncio.get_running_loop().create_future()


class BulkCall:
    """One call of a bulk handler. Each job has its own run, attempt, fence and end; all runs wait here for outcomes."""

    def __init__(self, collector: Collector, slots: Slots, owned_jobs: Sequence[OwnedJob]) -> None:
        self._collector, self._slots = collector, slots
        self._live: set[Run] = set()
        """Runs that are not over."""
        self._members: dict[Run, _Member] = {}
        self._ctx: Context | None = None
        self._task: asyncio.Task[None] | None = None
        self._stopped = self._over = False
        name, loop = collector.handler.name, asyncio.get_running_loop()
        self.own_slot = RunSlot(slots.yielded, loop, "async", name, self._nobody_stays)
        """The one slot of all."""
        self._began = slots.host.clock.monotonic()
        # To each run the handler looks like any other: it is called with one item and returns the result of that.
        handler = copy.copy(collector.handler)
        handler.fn, handler.takes_context = self._outcome, True
        now = slots.host.clock.now()
        slots.calls += 1
        for owned in owned_jobs:
            owned.handler = handler
            self._live.add(self._launch(owned, now))

    # -- the runs

    def _launch(self, owned: OwnedJob, now: datetime) -> Run:
        """Run a job in a task of its own, without a slot: the call has one for all."""

        async def go() -> None:
            await run.go()

        slots = self._slots
        task = asyncio.create_task(go(), name="headrace-job", context=slots.variables.copy())
        run = slots.new_run(owned, task, now, self._began, self)
        slots.members += 1
        return run

    async def _outcome(self, ctx: Context, **arguments: Any) -> Any:
        """The outcome of the call for one run, which calls this in place of the function."""
        if self._task is not None:
            raise HeadraceError(f"{self._collector.handler.name}: a bulk call is made once; call_next was called again")
        run, (item,) = cast("Run", ctx._caller), arguments.values()
        member = self._members[run] = _Member(ctx, item)
        self._call_when_all_are_here()
        try:
            value, error, trace = await member.outcome
        except asyncio.CancelledError:
            await self._stop_if_nobody_stays(ctx)
            raise
        if error is not None:
            # With its first traceback only: many jobs may share it, and its traceback grows whenever it is raised.
            raise error.with_traceback(trace)
        return value

    def _call_when_all_are_here(self) -> None:
        # Some must have their start stored first, or are held up by a middleware; some never come.
        if self._task is None and self._members and len(self._members) == len(self._live):
            self._task = asyncio.create_task(
                self._perform(list(self._members.values())), name="headrace-bulk", context=self._slots.variables.copy()
            )
            self._task.add_done_callback(lambda task: self._end())

    async def _stop_if_nobody_stays(self, ctx: Context) -> None:
        """Stop one job. The call goes on for the others; if there are none, its end is awaited as that of any handler.
        The timeout of the whole call is the shortest of its jobs, and so is the heartbeat."""
        if ctx.stopping == "timed_out":
            late = cast("Run", ctx._caller).late
            for run in list(self._live):
                run.stop("timed_out", late)
        if self._task is None or self._ctx is None or not self._nobody_stays():
            return
        if not self._stopped:
            self._stopped, self._ctx.stopping = True, ctx.stopping
            self._task.cancel()
        timeout = self._slots.cancel_grace if ctx.stopping == "cancelled" else STOP_TIMEOUT_SECONDS
        done, _ = await asyncio.wait([self._task], timeout=timeout)
        if not done:
            _log.warning("bulk handler %s goes on although its jobs were stopped", self._collector.handler.name)

    def _nobody_stays(self) -> bool:
        return all(run.stop_requested for run in self._live)

    # -- the call

    async def _perform(self, members: Sequence[_Member]) -> None:
        handler, bulk = self._collector.handler, self._collector.bulk
        members = [member for member in members if self._in_time(member)]
        if not members:
            return
        first, items = members[0].ctx, [member.item for member in members]
        ctx = self._ctx = Context(first.job, first.attempt, first.started_at, _AllJobs(members, self.own_slot))
        entered, began = ctx._entered(), self._slots.host.clock.monotonic()
        try:
            answer = await (bulk.fn(ctx, items) if bulk.takes_context else bulk.fn(items))
            values = check_outcomes(answer, len(items), handler.name)
            outcomes: list[_Outcome] = [
                (None, one, one.__traceback__) if isinstance(one, Exception) else (one, None, None) for one in values
            ]
        except asyncio.CancelledError:
            for member in members:
                member.outcome.cancel()
            return
        except BaseException as error:  # a handler's SystemExit must not end the worker
            outcomes = [(None, error, error.__traceback__)] * len(members)
        finally:
            ctx._left(entered)
        took = self._slots.host.clock.monotonic() - began
        for member, outcome in zip(members, outcomes, strict=True):
            member.ctx._caller.took(took)
            if not member.outcome.done():  # a job that was stopped meanwhile does not wait for its outcome
                member.outcome.set_result(outcome)

    def _in_time(self, member: _Member) -> bool:
        """Whether the job may still begin; one that a rate counts and that is too late leaves the call."""
        run = cast("Run", member.ctx._caller)
        if not is_late(member.ctx):
            return True
        run.stop("shutdown")
        return False

    def abandon(self) -> None:
        """Cancel the call, because the worker stops."""
        if self._task is not None:
            self._task.cancel()

    def _end(self) -> None:
        """Free the slot, once the handler is done and every job has left."""
        if not self._live and (self._task is None or self._task.done()) and not self._over:
            self._over, self._ctx = True, None
            self.own_slot.close()
            self._members.clear()  # else every call would leave a circle of references for the garbage collector
            self._collector.calls.discard(self)
            self._slots.called(self._slots.host.clock.monotonic() - self._began)

    def left(self, run: Run) -> None:
        """Take out a run that is over, and make the call if all the others wait for it."""
        self._live.discard(run)
        if self._task is None:
            self._members.pop(run, None)
        self._call_when_all_are_here()
        self._end()


class _AllJobs(Caller):
    """The caller of a bulk handler: does for all jobs of the call what its Context requests."""

    of_one = False

    def __init__(self, members: Sequence[_Member], slot: RunSlot) -> None:
        self._callers, self._slot = [member.ctx._caller for member in members], slot

    def slot(self) -> RunSlot:
        return self._slot

    def report(self, report: Progress) -> None:
        for caller in self._callers:
            caller.report(report)

    async def flush(self) -> None:
        await asyncio.gather(*(caller.flush() for caller in self._callers))

    def acted(self) -> None:
        for caller in self._callers:
            caller.acted()

    def log(self, data: str) -> None:
        for caller in self._callers:
            caller.log(data)

    def sign(self) -> None:
        for caller in self._callers:
            caller.sign()

    def entry_writer(self) -> EntryWriter | None:
        raise NotSupported("a bulk handler runs many jobs at once: durable steps and streams belong to one")

    def completer(self) -> Completion:
        raise NotSupported("a bulk handler runs many jobs at once: only one can be completed in a transaction")

    def resource(self, resource: Resource[T]) -> T:
        return self._callers[0].resource(resource)
