"""The slots of a worker: the jobs that it owns, from the claim until their result is stored."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping, Sequence
from contextvars import copy_context
from datetime import datetime
from itertools import islice
from uuid import UUID

from headrace.core.job import Job
from headrace.runtime.host import Host
from headrace.runtime.totals import FinishTotals
from headrace.runtime.writes.writer import Writer
from headrace.worker.claim.buffer import MAX_READ_RUNS, Buffer, Pace
from headrace.worker.claim.collector import Collector
from headrace.worker.claim.permits import Lead, Permits
from headrace.worker.claim.suspects import Suspects
from headrace.worker.delayed_starts import Starts
from headrace.worker.execution.bulk import BulkCall
from headrace.worker.execution.errors import is_passing
from headrace.worker.execution.hooks import CallbackQueue
from headrace.worker.execution.resources import Resources
from headrace.worker.execution.run import STOP_TIMEOUT_SECONDS, Run
from headrace.worker.handler import Handler
from headrace.worker.owned_job import OwnedJob, Settled
from headrace.worker.process.pool import ProcessPool
from headrace.worker.process.threads import ThreadPool
from headrace.worker.tally import Tally
from headrace.worker.yielded_slots import YieldedSlots

__all__ = ["Slots"]

MAX_BUFFER_SECONDS = 1.0
TURN_SECONDS = 0.001
"""For how many seconds jobs that end at once are run before others on the loop have their turn."""
STARTS_PER_TURN = 8
"""How many tasks are begun before those begun last have had their turn: where handlers end at once, a few tasks run all
that is buffered."""
MAX_UNACKNOWLEDGED_JOBS = 3000
"""How many finishes may be on their way to the store; beyond that nothing new is started."""


class Slots:
    """The jobs that a worker owns and the runs of them: takes claimed jobs, starts runs, frees slots.

    ``may_start`` is called before each start, ``hungry`` whenever there is room for more jobs.
    """

    def __init__(
        self,
        handlers: Mapping[str, Handler],
        writer: Writer,
        host: Host,
        resources: Resources | None = None,
        *,
        concurrency: int,
        may_start: Callable[[], bool],
        hungry: Callable[[], None],
        sums: FinishTotals | None = None,
    ) -> None:
        self.host, self.concurrency = host, concurrency
        self.threads, self.children = ThreadPool("headrace-handler"), ProcessPool()
        self.resources = resources or Resources()
        self.cancel_grace, self.buffer = writer.engine.rules.cancel_grace, Buffer()
        self.runs: dict[OwnedJob, Run] = {}
        """The runs in their handlers, also after the end of their attempts: a job may be here more than once."""
        self.starts = Starts(self.runs, writer.engine.bus, host.clock)
        self.owned: dict[int, OwnedJob] = {}
        """All jobs that the worker owns: buffered, running, or with their end on the way to the store.

        The key is the id of the job as a number, which is hashed faster than the id itself.
        """
        self.tally = Tally(host.clock, sums or FinishTotals())
        self.freed = asyncio.Event()
        """Set whenever the worker no longer owns a job."""
        self._handlers, self._writer, self._may_start, self.hungry = handlers, writer, may_start, hungry
        self._load = writer.load
        self.lead = Lead(host.clock)
        """How long after its claim a job that spent a permit of a rate may begin."""
        self._begin_by = math.inf
        """When the first job that waits here for a slot must have begun (monotonic), or earlier."""
        self._on_settled = self.settled  # bound once, for all jobs
        self._pace = Pace(concurrency)
        self._ahead = 0
        self.unacknowledged = 0
        """Ends of attempts on their way to the store."""
        self.calls = self.members = 0
        """Calls of bulk handlers, each of which takes one slot, and the runs in them, which take none."""
        self.yielded = YieldedSlots(self)
        self.called_last = False
        self._moment = 0.0
        """When a handler was last done (monotonic)."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._dispatches = False
        """Whether the next ``dispatch`` is on its way."""
        self.keeper: asyncio.Task[None] | None = None
        """The task of the worker: cancelled when the loop is torn down, like every other."""
        self.variables = copy_context()
        """The context variables that a handler starts with: none from handlers that ran before it."""
        bulk = {handler.name: handler for handler in handlers.values() if handler.bulk is not None}
        self.collectors = [Collector(one, one.bulk, self) for one in bulk.values() if one.bulk is not None]
        self.suspects = Suspects(self)
        self.reactions = CallbackQueue(self.threads, self.variables, self._reacted, most=concurrency)
        self.stuck = Stuck(self.runs, min(STOP_TIMEOUT_SECONDS, writer.engine.rules.beat))

    @property
    def empty(self) -> bool:
        """Whether no job is owned, nothing is on its way to the store, and no callback is still to be called."""
        return not self.owned and not self.unacknowledged and not self.reactions

    # -- in

    def room(self) -> tuple[int, int]:
        """How many jobs to request, and how many of them could start at once."""
        if self._load.keeps(self.slot_freed) or not self._may_start():
            return 0, 0
        buffered = len(self.buffer)
        free = max(0, self.concurrency - self.busy - buffered - self.suspects.wants_slot)
        open_end = self.unacknowledged < MAX_UNACKNOWLEDGED_JOBS
        ahead = self._ahead = self._pace.ahead(self._busy_since()) if open_end else 0
        if free > 0:
            return free + ahead, free
        # Only when the buffer is half empty: many small claims would cost more than they bring.
        return (ahead - buffered, 0) if buffered * 2 <= ahead else (0, 0)

    def take(self, jobs: Sequence[Job], queue_priorities: Mapping[str, int], permits: Permits | None = None) -> None:
        """Buffer what was claimed and start what there is room for."""
        self.buffer.add(self.own(jobs, permits), queue_priorities)
        self.yielded.turn_away()
        self.dispatch()

    def own(
        self, jobs: Sequence[Job], permits: Permits | None = None, settled: Settled | None = None
    ) -> list[OwnedJob]:
        """Make an owned job of each claimed one; ``permits``: what those of them have spent that a rate counts;
        ``settled`` is called in place of the method of this name."""
        claimed, settled = [], settled or self._on_settled
        for job in jobs:
            number = job.id.int
            if number in self.owned:
                self._supersede(self.owned[number])
            owned = self.owned[number] = OwnedJob(job, self._handlers[job.spec.task], self._writer, settled)
            claimed.append(owned)
        if permits is not None:
            self._begin_by = min(self._begin_by, permits.by)
            for owned in claimed:
                if owned.job.id in permits.jobs:
                    owned.permits = permits
        return claimed

    def _supersede(self, old: OwnedJob) -> None:
        """Stop the old run of a job that the store took from this worker, and has now given to it again."""
        for line in self._lines():
            line.remove(lambda job: job.id == old.job.id)
        if old in self.runs:
            self.runs[old].stop("lost")

    def _busy_since(self) -> float | None:
        """How long the running handlers have been running, on average."""
        now = self.host.clock.monotonic()
        newest = islice(reversed(self.runs.items()), MAX_READ_RUNS)
        spans = [now - run.began for owned, run in newest if owned.started_at is not None and not run.yielded]
        return sum(spans) / len(spans) if spans else None

    # -- through

    def dispatch(self) -> None:
        """Give free slots to handlers that want theirs back, and then to what is buffered."""
        begun = 0
        if self.yielded.line:
            self.yielded.admit()
        if self.suspects.turned_away or len(self.suspects.waiting):
            self.suspects.begin()
        if self.collectors and not (self.called_last and len(self.buffer)):
            self._begin_calls()  # else it is the others' turn
        while self.has_slot and len(self._tasks) - len(self.runs) + self.members < len(self.buffer):
            if not self.may_begin():
                break
            if begun == STARTS_PER_TURN:
                self._dispatch_soon()
                break
            begun += 1
            self.called_last = False
            self._tasks.add(asyncio.create_task(self._run_jobs(), name="headrace-job", context=self.variables.copy()))
        if self.collectors:
            self._begin_calls()

    def _dispatch_soon(self) -> None:
        """Go on behind the tasks that were just begun."""

        def go_on() -> None:
            self._dispatches = False
            self.dispatch()

        if not self._dispatches:
            self._dispatches = True
            asyncio.get_running_loop().call_soon(go_on)

    def _begin_calls(self) -> None:
        """Make the calls of bulk handlers that are ready, as long as there are slots for them."""
        for collector in self.collectors:
            while collector.ready and self.has_slot and self.may_begin():
                self.called_last = True
                collector.begin()
            collector.call_back()

    def new_run(
        self, owned: OwnedJob, task: asyncio.Task[None], now: datetime, monotonic: float, call: BulkCall | None = None
    ) -> Run:
        """A new run of the job, registered here, to be executed in this task."""
        run = self.runs[owned] = Run(owned, self, task, now, monotonic, call)
        if self.tally.talks:
            self.tally.begins(owned)
        return run

    def called(self, seconds: float) -> None:
        """Free the slot of a call of a bulk handler, which took so many seconds."""
        self.calls -= 1
        self._pace.ran(seconds)
        self.slot_freed()

    @property
    def turns_over(self) -> bool:
        """Whether a slot is likely to come free soon."""
        return self._pace.ahead(self._busy_since()) > 0

    @property
    def has_slot(self) -> bool:
        """Whether one more could be started."""
        return len(self._tasks) + self.calls - self.yielded.count < self.concurrency

    @property
    def busy(self) -> int:
        """How many slots are at work."""
        return len(self.runs) - self.members + self.calls - self.yielded.count

    @property
    def waiting(self) -> int:
        """How many owned jobs have not begun."""
        return sum(len(line) for line in self._lines())

    def _lines(self) -> list[Buffer]:
        return [self.buffer, self.suspects.waiting, *(collector.waiting for collector in self.collectors)]

    def may_begin(self) -> bool:
        """Whether anything may be started now."""
        pressed = max(self.unacknowledged, len(self.reactions)) >= MAX_UNACKNOWLEDGED_JOBS
        return not (pressed or self._load.keeps(self.slot_freed)) and self._may_start()

    async def _run_jobs(self) -> None:
        """Run one job after another in one task, as long as they leave no trace in it: a task for each job would cost
        as much as all the rest."""
        task, clock, line, load = asyncio.current_task(), self.host.clock, self.yielded.line, self._load
        assert task is not None
        try:
            while self.may_begin():
                if self.collectors and not self.has_slot and any(one.ready for one in self.collectors):
                    return  # a call waits for a slot, and none would come free while there are other jobs
                if len(self.suspects.waiting) and not self.has_slot:
                    return  # likewise
                now, self._moment = clock.now(), clock.monotonic()
                turn = self._moment + TURN_SECONDS
                while self._moment < turn and load.bytes < load.most:
                    owned = None if line else self.buffer.pop()
                    if owned is None:
                        return
                    run = self.new_run(owned, task, now, self._moment)
                    await run.go()
                    if run.own_slot is not None or run.stop_requested or task.cancelling():
                        return
                    if copy_context() != self.variables:
                        return
                    now = owned.ended_at or now  # the next begins when this one is done
                await asyncio.sleep(0)
        except GeneratorExit as error:  # of a handler's, which has closed this task: see Run
            if is_passing(error):
                raise
        finally:
            self._tasks.discard(task)
            self.dispatch()

    def run_alone(self, owned: OwnedJob) -> None:
        """Run this job, and nothing after it, in a task of its own."""

        async def go() -> None:
            try:
                await run.go()
            except GeneratorExit as error:  # as in ``_run_jobs``
                if is_passing(error):
                    raise
            finally:
                self._tasks.discard(task)
                self.dispatch()

        clock = self.host.clock
        task = asyncio.create_task(go(), name="headrace-job", context=self.variables.copy())
        self._tasks.add(task)
        run = self.new_run(owned, task, clock.now(), clock.monotonic())

    def left(self, run: Run) -> None:
        """Free the slot of a run when its handler is done."""
        del self.runs[run.owned]
        if run.bulk_call is not None:
            self.members -= 1
            run.bulk_call.left(run)
            return
        self._moment = self.host.clock.monotonic()
        if run.own_slot is not None:  # how long others took says nothing about this worker
            run.own_slot.close()
        elif run.owned.started_at is not None:
            self._pace.ran(self._moment - run.since)  # a start that had to be written first takes its time, too
        buffered = len(self.buffer)
        if buffered * 2 <= self._ahead or self.busy + buffered < self.concurrency:
            self.hungry()

    def slot_freed(self) -> None:
        """Fill a slot that has come free, and have more claimed for it."""
        self.hungry()
        self.dispatch()

    def tick(self) -> None:
        """Do what cannot wait until a job ends: write late starts, stop at timeouts, give back what waits too long."""
        now, monotonic = self.host.clock.now(), self.host.clock.monotonic()
        for owned, run in list(self.runs.items()):
            run.tick(monotonic)
            if owned.job.cancel_requested_at is not None:  # learned from a conflict: the hint came before the claim
                run.stop("cancelled")
        self.starts.write_late()
        if monotonic > self._begin_by:
            self._release_late(monotonic)
        self.tally.sums.gather()
        self.tally.look()
        self.yielded.tick()
        self.stuck.look(monotonic)
        for collector in self.collectors:
            if collector.gives_up(now):
                self._release_all(collector.waiting)
        if self.suspects.gives_up(now):
            self._release_all(self.suspects.waiting)
        stands = self.busy >= self.concurrency or self._load.full
        if stands and self.buffer.waited(now) > MAX_BUFFER_SECONDS:
            self._release_all(self.buffer)  # handlers, or the store, have become slow: let other workers have these
        self.dispatch()

    # -- out

    def settled(self, owned: OwnedJob, stored: bool) -> None:
        """Count a job when its last change is stored or never will be, call its callbacks, and forget it."""
        if owned.ending is not None:  # otherwise it was given back, or cancelled, before it began
            self.unacknowledged -= 1
            self.tally.ended(owned, stored=stored)
        if stored and owned.handler.callbacks is not None:
            self.reactions.to(owned.job, owned.handler.callbacks)
        number = owned.job.id.int
        if self.owned.get(number) is owned:  # otherwise a later claim has given this worker the job again
            del self.owned[number]
        self.freed.set()
        if not self.owned:
            self.hungry()
        if self.unacknowledged == MAX_UNACKNOWLEDGED_JOBS - 1 and owned.ending is not None:
            self.dispatch()

    def _reacted(self) -> None:
        self.freed.set()
        if not self.reactions and not self.owned:
            self.hungry()
        if len(self.reactions) == MAX_UNACKNOWLEDGED_JOBS - 1:
            self.dispatch()

    def release_buffer(self) -> None:
        """Give back the jobs that were claimed ahead."""
        for line in self._lines():
            self._release_all(line)

    def _release_all(self, line: Buffer) -> None:
        for owned in line.empty():
            owned.release()

    def _release_late(self, monotonic: float) -> None:
        """Give back what has spent a permit of a rate and waited here for longer than it may."""
        for line in self._lines():
            for permits, owned in line.remove_late(monotonic):
                permits.left()  # from which the lead is learned
                owned.release()
        self._begin_by = min(line.begin_by for line in self._lines())

    def drop_buffer(self) -> list[OwnedJob]:
        """Take out the jobs that were claimed ahead, without writing anything about them."""
        owned_jobs = [owned for line in self._lines() for owned in line.empty()]
        for owned in owned_jobs:
            self.owned.pop(owned.job.id.int, None)
        return owned_jobs

    def cancel(self, id: UUID) -> None:
        """Stop the handler of this job, since its cancel was requested; give the job back if it has not begun."""
        owned = self.owned.get(id.int)
        if owned is not None and owned in self.runs:
            self.runs[owned].stop("cancelled")
            return
        for owned in [owned for line in self._lines() for owned in line.remove(lambda job: job.id == id)]:
            owned.release()  # decided again from the stored job, this ends it cancelled

    def close(self) -> None:
        """End the threads and child processes."""
        self.reactions.cancel()
        for collector in self.collectors:
            collector.close()
        self.threads.close()
        self.children.close()


class Stuck:
    """The runs that go on in their handlers although their attempts are over, and for how long already."""

    def __init__(self, runs: Mapping[OwnedJob, Run], timeout: float) -> None:
        """``timeout``: seconds a handler has to stop after its attempt is over."""
        self._runs, self._timeout = runs, timeout
        self._since: dict[Run, float] = {}
        self._now = 0.0

    def __len__(self) -> int:
        return sum(run.stuck for run in list(self._runs.values()))

    @property
    def hopeless(self) -> int:
        """How many handlers had time enough to stop, did not, and occupy a slot, as of the last check."""
        return sum(self._now - since >= self._timeout for run, since in self._since.items() if not run.yielded)

    def look(self, monotonic: float) -> None:
        """Check which handlers are stuck now."""
        self._now = monotonic
        self._since = {run: self._since.get(run, monotonic) for run in self._runs.values() if run.stuck}
