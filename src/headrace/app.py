"""The App: everything people, programs and the command line do with headrace is a method of it."""

from __future__ import annotations

import importlib
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from datetime import tzinfo
from functools import cache, partial
from importlib.metadata import version
from typing import Any, Literal, TypeVar, Unpack
from uuid import UUID

from headrace.client.api import jobs as jobs_
from headrace.client.api import queues as queues_
from headrace.client.api import stats, workers
from headrace.client.api import store as store_
from headrace.client.api import tasks as tasks_
from headrace.client.api.actions import ActingOnMany
from headrace.client.api.entries import StepResult, item_page, log_end, log_page, steps
from headrace.client.api.filters import Filters, checked_limit, filter_of
from headrace.client.api.keys import Keyed
from headrace.client.api.limit_settings import announce_limits
from headrace.client.api.limits import Limited, LimitInfo, LimitUsage, usage
from headrace.client.api.positions import QueuePosition, position
from headrace.client.api.queues import QueueInfo
from headrace.client.api.schedules import ScheduleInfo, Scheduling, announce_schedules
from headrace.client.api.stats import Moment, Stats, StoreSnapshot, charts, estimated_processing_time, rollups, standing
from headrace.client.api.store import Maintenance, ping, shared_secret, verify
from headrace.client.api.tasks import TaskInfo, note_submit, register_tasks
from headrace.client.api.webhooks import Webhooked
from headrace.client.api.workers import LocalWorkers, drain_worker
from headrace.client.batch import BatchHandle
from headrace.client.bulk_task import BulkDecorator
from headrace.client.draft import Draft
from headrace.client.handle import JobHandle
from headrace.client.hooks import Hooked
from headrace.client.options import JobOptions, TaskOptions
from headrace.client.submission import by_name, direct, submit
from headrace.client.submission.middleware import submit_here_through, submit_through, through
from headrace.client.submission.transaction import submit_here
from headrace.client.task import Task
from headrace.client.task_registry import Decorator, Register, Tasks, check_defaults
from headrace.config import Secret
from headrace.core.attempt import History
from headrace.core.batch import Batch
from headrace.core.entry import LogLine
from headrace.core.explain.explanation import Explanation
from headrace.core.job import Job, as_id
from headrace.core.lifecycle.retention import may_be_pruned
from headrace.core.query import Page
from headrace.core.stats.charts import By, Charts
from headrace.core.stats.rollup import Rollup, Step
from headrace.core.stats.verification import Invariant, Verification
from headrace.core.times import Seconds
from headrace.core.updates import ResumeToken
from headrace.core.validation import checked_key
from headrace.engine import Check, WorkerRow
from headrace.errors import ConfigError, StoreLost, Unavailable, shown
from headrace.maintenance import services
from headrace.runtime.clock import Clock
from headrace.runtime.service import Service
from headrace.runtime.totals import FinishTotals
from headrace.runtime.watch.feed import Feed
from headrace.runtime.watch.followers import Reader
from headrace.runtime.watch.stream import StreamItem
from headrace.worker.handler import Handler
from headrace.worker.options import Named, WorkerOptions, check_worker_options, chosen_handlers
from headrace.worker.worker import Worker

__all__ = ["App", "Check", "LimitInfo", "QueueInfo", "QueuePosition", "ScheduleInfo", "Stats", "TaskInfo"]

_log = logging.getLogger("headrace.app")

_version = cache(version)  # which reads and parses a file

R = TypeVar("R")


class App(Hooked, ActingOnMany, Scheduling, Limited, Keyed, Webhooked):
    """A job system: its tasks and its store. Constructing touches no file, socket or loop.

    Open it with ``async with app:``; entering is counted, and an App may be entered again, also on another loop.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        key: str | None = None,
        secret: str | None = None,
        namespace: str | None = None,
        imports: Sequence[str] = (),
        defaults: JobOptions | None = None,
        clock: Clock | None = None,
    ) -> None:
        """
        :raises ConfigError: naming the argument
        """
        if isinstance(imports, str):
            raise ConfigError(f"imports must be a sequence of module names, not {shown(imports)}")
        hidden = {
            name: Secret(one) if isinstance(one, str) else one for name, one in (("key", key), ("secret", secret))
        }
        super().__init__({"url": url, **hidden, "namespace": namespace, "imports": tuple(imports) or None}, clock)
        self.defaults: Mapping[str, Any] = check_defaults(defaults)
        """Options of every job, unless a task or a submit sets others."""
        self._register = Register()
        self._hooks = self._register.hooks
        self._declared = {}
        self.local_workers = LocalWorkers()
        """The workers that this App has made in this process."""
        self._tasks = Tasks()
        self._tasks.bind(self, self._register)

    # -- tasks

    @property
    def task(self) -> Decorator:
        """Registers the decorated function: ``@app.task`` or ``@app.task(queue="images")``."""
        return self._tasks.task

    def bulk(self, *, size: int = 100, wait: Seconds = 0.05, **options: Unpack[TaskOptions]) -> BulkDecorator:
        """Registers a coroutine function that does many jobs in one call: ``async def index(docs: list[Doc])``.

        Each job has one item (``index.submit(doc)``). A worker collects up to ``size`` of them, or as many as come
        within ``wait`` seconds after the first. The i-th of the returned list is the result of the i-th item, or an
        Exception.

        :raises ConfigError: naming what cannot be used
        """
        return self._tasks.bulk(size=size, wait=wait, **options)

    def include(self, tasks: Tasks) -> None:
        """Add a collection of tasks, including those that are registered in it later.

        :raises DuplicateTask: a name is taken
        :raises ConfigError: the collection belongs to another App
        """
        if not isinstance(tasks, Tasks):
            raise ConfigError(f"include takes a Tasks collection, not {shown(tasks)}")
        tasks.bind(self, self._register)

    @property
    def by_name(self) -> Mapping[str, Task[Any, Any]]:
        """The tasks of this App, by name and by alias."""
        return self._register.tasks

    @property
    def handlers(self) -> Mapping[str, Handler]:
        """What a worker of this App runs, by name and by alias."""
        return {name: task.handler for name, task in self._register.tasks.items()}

    def load(self) -> None:
        """Import the modules named by ``imports``, so that their tasks are registered.

        :raises ConfigError: there is no such module
        """
        for name in self.settings.imports:
            try:
                importlib.import_module(name)
            except ModuleNotFoundError as error:
                if error.name is None or not f"{name}.".startswith(f"{error.name}."):
                    raise
                raise ConfigError(f"imports: there is no module {name!r}; is its directory on the path?") from None

    # -- working

    def lifespan(
        self, *, worker: bool = False, **options: Unpack[WorkerOptions]
    ) -> Callable[[Any], AbstractAsyncContextManager[None]]:
        """For ASGI frameworks: ``FastAPI(lifespan=app.lifespan(worker=True, concurrency=5))`` opens the App, and runs a
        worker with these options, which are those of ``app.worker``. It stops when the server does, with its grace.

        :raises ConfigError: an option cannot be used, or there is no worker to have it
        """
        if options and not worker:
            raise ConfigError(f"lifespan: {', '.join(options)} is for a worker: say worker=True to have one")
        check_worker_options(options)

        @asynccontextmanager
        async def span(asgi: Any) -> AsyncIterator[None]:
            async with AsyncExitStack() as stack:
                await stack.enter_async_context(self)
                if worker:
                    await stack.enter_async_context(self.worker(**options))
                yield

        return span

    def worker(
        self,
        *,
        concurrency: int = 10,
        queues: Sequence[str] | None = None,
        burst: bool = False,
        grace: Seconds = 15.0,
        offers: Mapping[str, Any] | None = None,
        tasks: Sequence[Named | str] | None = None,
    ) -> Worker:
        """A worker for the tasks of this App: ``async with app.worker():``, or ``await app.worker().run()``.

        ``run`` is for a program that is a worker: SIGTERM and SIGINT stop it in good order. The block leaves signals to
        the program: whatever ends the block stops the worker. ``offers``: what it has for jobs that require something.
        ``tasks``: only these, by name or as they are.

        :raises ConfigError: naming the option
        :raises UnknownTask: one of ``tasks`` is none of this App
        """
        options = check_worker_options(
            {
                "concurrency": concurrency,
                "queues": queues,
                "burst": burst,
                "grace": grace,
                "offers": offers or {},
                "tasks": tasks,
            },
        )
        session, sums = self.session, FinishTotals()
        self.load()
        handlers = chosen_handlers(options.pop("tasks"), self.handlers)

        def duties(id: UUID, ended: UUID | None) -> Sequence[Service]:
            means = session.engine, session.lanes, session.host
            return services(*means, id, follow=not burst, ended=ended, sums=sums)

        worker = Worker(
            session.engine,
            handlers,
            host=session.host,
            lanes=session.lanes,
            services=duties,
            announce=lambda: self._announced(self.announce),
            version=_version("headrace"),
            resources=self.resources,
            sums=sums,
            **options,
        )
        return self.local_workers.add(worker)

    def own_worker(self, handlers: Sequence[Handler], *, queue: str, concurrency: int = 10) -> Worker:
        """A worker for tasks that are headrace's own and not of this App, such as the delivery of webhooks.

        It serves one queue, sees to nothing else in the store, and does not know the tasks of this App.
        """
        session, options = self.session, check_worker_options({"concurrency": concurrency, "queues": [queue]})
        del options["tasks"]
        own = {handler.name: handler for handler in handlers}
        return Worker(
            session.engine,
            own,
            host=session.host,
            lanes=session.lanes,
            announce=lambda: self._announced(lambda: announce_limits(session.engine, {}, own)),
            version=_version("headrace"),
            **options,
        )

    async def _announced(self, announce: Callable[[], Awaitable[None]]) -> None:
        # A worker that starts while the store is away begins when it is back, like its registration.
        pause = 0.5
        while True:
            try:
                return await announce()
            except StoreLost:
                raise
            except Unavailable as error:
                _log.warning("the tasks could not be recorded, trying on: %s", error)
                await self.host.sleep(pause)
                pause = min(pause * 2, 30.0)

    async def announce(self) -> None:
        """Record the tasks and schedules of this App in the store; a worker does so at its start."""
        session, now = self.session, self.host.clock.now()
        handlers = {task.handler.name: task.handler for task in self._register.tasks.values()}
        await register_tasks(session.engine, handlers.values())
        await announce_limits(session.engine, self._declared, handlers)
        await announce_schedules(session.engine, self._register.tasks.values(), self._register.tasks, now)

    # -- jobs

    async def submit(self, name: str, payload: Mapping[str, Any], /, **options: Unpack[JobOptions]) -> JobHandle[Any]:
        """Submit a task by name, without its function: policy and checks come from here, else from the store.

        :raises InvalidPayload: it does not fit the task
        """
        return await (await self.draft(name, payload, **options)).submit()

    async def draft(self, name: str, payload: Mapping[str, Any], /, **options: Unpack[JobOptions]) -> Draft[Any]:
        """A draft of a task by name."""
        return await by_name.draft_by_name(self, name, payload, options)

    async def draft_with_warnings(
        self, name: str, payload: Mapping[str, Any], /, **options: Unpack[JobOptions]
    ) -> tuple[Draft[Any], tuple[str, ...]]:
        """A draft of a task by name, and as text what ``draft`` would warn of: for programs that pass it on."""
        draft, warning = await by_name.draft_and_warning(self, name, payload, options)
        return draft, () if warning is None else (warning,)

    async def note_submit(self, task: str, id: UUID | str, *, by: str | None) -> None:
        """Keep in the audit of a task that somebody submitted this job of it: for programs through which people do."""
        await note_submit(self.engine, task, as_id(id), by, self.host.clock.now())

    async def submit_each(self, drafts: Iterable[Draft[Any]]) -> list[JobHandle[Any] | Exception]:
        """Store drafts, of any tasks, each for itself: a handle, or why it was not stored, in the order of the drafts.

        Many are in one write all the same. ``submit_many`` is for those that belong together.
        """
        return await submit.submit_each(self, list(drafts))

    async def submit_many(self, drafts: Iterable[Draft[Any]]) -> list[JobHandle[Any]]:
        """Store drafts, of any tasks: one atomic write up to 1,000, chunks above, repeatable by id.

        Where some wait for others, a write is whole or not at all: if one of its drafts is refused, none is stored.
        """
        store, given = partial(submit.submit_many, self), list(drafts)
        return await through(self, given, store) if self.submit_middlewares else await store(given)

    def submit_draft(self, draft: Draft[R]) -> Coroutine[Any, Any, JobHandle[R]]:
        """Store the job of one draft; ``client.draft.submit()`` is this."""
        if self.submit_middlewares:
            return submit_through(self, draft, partial(submit.submit_all, self))
        return submit.submit(self.session, draft)

    def submit_draft_sync(self, draft: Draft[R]) -> JobHandle[R]:
        """``submit_draft`` for callers without an event loop; ``client.draft.submit_sync()`` is this."""
        connection = draft.options.get("connection")
        if connection is None:
            return direct.submit(self, draft)
        if self.submit_middlewares:
            return submit_here_through(self, draft, connection)
        return submit_here(self, [draft], connection)[0]

    def batch(self, *, on_complete: Draft[Any] | None = None, on_failure: Draft[Any] | None = None) -> BatchHandle:
        """A batch to fill: ``async with app.batch() as batch: batch.add(draft)``; stored when the block ends.

        ``on_complete`` is submitted once when all of its jobs have ended, ``on_failure`` if not all of them completed.
        """
        return BatchHandle(self, on_complete=on_complete, on_failure=on_failure)

    def batch_handle(self, id: UUID | str) -> BatchHandle:
        """A batch by its id; nothing is looked up yet."""
        return BatchHandle(self, as_id(id))

    async def batches(self, *, limit: int = 50, cursor: str | None = None, customer: str | None = None) -> Page[Batch]:
        """Every batch that is kept, newest first, a page at a time; ``customer``: those whose jobs are all of one."""
        whose = None if customer is None else checked_key(customer, "customer")
        return await self.engine.families.find_batches(checked_limit(limit), cursor, whose)

    def handle(self, id: UUID | str) -> JobHandle[Any]:
        """A job by its id; nothing is looked up yet."""
        return JobHandle(self, as_id(id))

    async def get(self, id: UUID | str) -> Job:
        """The job as it stands; :raises JobNotFound:"""
        return await jobs_.get(self.session, as_id(id))

    async def get_many(self, ids: Iterable[UUID | str]) -> list[Job | None]:
        """Jobs as they stand, in the order of their ids; None where there is none."""
        return await jobs_.get_many(self.session, [as_id(id) for id in ids])

    def may_be_pruned(self, id: UUID | str) -> bool:
        """Whether a job of this id that is not here may have been pruned: it would be older than jobs are kept."""
        return may_be_pruned(as_id(id), self.settings.retention(), self.host.clock.now())

    async def history(self, id: UUID | str) -> History:
        """Its attempts and the acts on it; :raises JobNotFound:"""
        await self.get(id)
        return (await self.engine.records.history(as_id(id))).timed()

    def watch(self, id: UUID | str) -> AsyncGenerator[Job, None]:
        """The job as it is, then whenever it changed, until it ended; :raises JobNotFound:"""
        return self.session.watcher.follow(as_id(id))

    async def position(self, job: Job | UUID | str) -> QueuePosition | None:
        """Where a job stands in its queue, and when it may start; None: it is not in line. :raises JobNotFound:"""
        return await position(self.session, job if isinstance(job, Job) else await self.get(job))

    async def follow(
        self,
        job: Job | UUID | str,
        since: ResumeToken | None = None,
        *,
        entries: bool = True,
        wake: Callable[[], None] | None = None,
    ) -> Reader:
        """Follow a job with all that is told of it: its changes, log lines, stream items and place in its queue.

        ``async with await app.follow(id) as reader: async for news in reader``. ``since``: the mark of the last news
        that were read, also by another process: these go on behind it. However many follow a job here, the store is
        asked once. A reader that is slow misses what the job was in between, but no entry, and not the end. ``wake``:
        called whenever there may be news, for ``reader.take``. ``job``: its id, or the job as it was just read.

        :raises JobNotFound:
        """
        seen = job if isinstance(job, Job) else await self.get(job)
        return self.session.audience.follow(seen, since, entries=entries, wake=wake)

    def feed(self, **filters: Unpack[Filters]) -> Feed:
        """The changes of the jobs that match, as they happen: ``async for changed in app.feed(task="resize")``.

        ``changed.jobs`` are the jobs as they are now, each once; ``changed.dropped`` is how many changes were left out
        because there were too many at once. The filters are those of ``jobs``.
        """
        return self.session.feed(filter_of(filters))

    def logs(
        self, id: UUID | str, *, follow: bool = False, attempt: int | None = None
    ) -> AsyncGenerator[LogLine, None]:
        """The log lines of the job's handler, oldest first; ``follow``: also new ones, until the job has ended.

        :raises JobNotFound:
        """
        return jobs_.logs(self.session, as_id(id), follow, attempt)

    async def log_page(
        self, id: UUID | str, *, attempt: int | None = None, limit: int = 100, cursor: str | None = None
    ) -> Page[LogLine]:
        """The log lines of the job's handler, oldest first, a page at a time; a page is 4 MiB at most.

        There is a cursor as long as more may come: with that of the last page, go on later.

        :raises JobNotFound:
        """
        return await log_page(self.session, as_id(id), checked_limit(limit), cursor, attempt)

    async def log_end(self, id: UUID | str, *, limit: int = 100) -> tuple[list[LogLine], bool]:
        """The last lines of the job's log, 4 MiB at most, the oldest of them first, and whether there are earlier ones.

        :raises JobNotFound:
        """
        await self.get(id)
        return await log_end(self.session, as_id(id), checked_limit(limit))

    async def item_page(self, id: UUID | str, *, limit: int = 100, cursor: str | None = None) -> Page[StreamItem[Any]]:
        """The items of the job's stream as plain JSON values, a page at a time; pages and cursors as of ``log_page``.

        It begins where the stream last began anew. Where that happens behind a cursor, the first item of the new
        beginning is marked ``restarted``: what was read before counts no more.

        :raises JobNotFound:
        """
        return await item_page(self.session, as_id(id), checked_limit(limit), cursor)

    async def steps(self, id: UUID | str) -> list[StepResult]:
        """What the durable steps of a job returned, in their order; :raises JobNotFound:"""
        await self.get(id)
        return await steps(self.session, as_id(id))

    async def explain(
        self, id: UUID | str, *, to: str | None = None, zone: tzinfo | None = None, hide_errors: bool = False
    ) -> Explanation:
        """Why the job is in its status and what it waits for: text, and ``facts`` as data; :raises JobNotFound:

        ``to``: a customer who is told, and must not learn of other jobs than its own, nor on which machines workers
        are. ``zone``: in which moments are told; None is that of this machine. ``hide_errors``: say where errors are
        found, and not what they are.
        """
        return await jobs_.explain(self.session, as_id(id), to, zone, hide_errors)

    async def explain_worker(self, id: UUID | str) -> Explanation:
        """Why a worker is given jobs, or none: how it is, and what keeps it from those that are queued.

        :raises UnknownWorker:
        """
        return await workers.explain_worker(self.session, as_id(id))

    # -- everything else

    async def stats(self) -> Stats:
        """Counts of the whole store: jobs by status, ledger, live workers, oldest queued job."""
        return await stats.stats(self.session)

    async def standing(self) -> StoreSnapshot:
        """How the store stands, read as cheaply as can be, however many jobs it keeps: for who asks every second."""
        return await standing(self.session)

    async def queues(self, *, history: bool = True) -> list[QueueInfo]:
        """Every queue that has jobs or settings, in the order workers serve them.

        ``history``: count also jobs that completed or were cancelled; without them it is cheap, however many these are.
        """
        return await queues_.queues(self.session, history=history)

    async def usage(self) -> LimitUsage:
        """How many jobs workers hold of each queue, task and concurrency key, and what is left of each rate."""
        return await usage(self.session)

    async def charts(
        self,
        *,
        task: str | None = None,
        queue: str | None = None,
        since: Moment | None = None,
        until: Moment | None = None,
        step: Step | Literal["minute", "hour", "day"] | None = None,
        by: By = "series",
    ) -> Charts:
        """What workers finished, by task, queue and time, and how long it took; by default, of the last hour.

        ``by``: what has a series of its own: each task in each queue, each ``task``, each ``queue``, or ``all``
        together. ``since``, ``until``: a moment, or how long ago it was (seconds or a timedelta). Minutes are kept for
        6 hours, hours for 7 days, days for 90. Approximate: a worker that is killed takes along what it finished since
        its last beat.
        """
        return await charts(self.session, since, until, step, by, task=task, queue=queue)

    async def rollups(self, since: Moment, until: Moment = 0.0) -> list[Rollup]:
        """What charts are made of: what was finished, added up by task, queue and time, in rows of a minute, an hour or
        a day; also those that are only partly within the time. There may be several rows of the same minute."""
        return await rollups(self.session, since, until)

    async def estimated_processing_time(self, task: str, *, quantile: float = 0.5) -> float | None:
        """How many seconds a run of this task takes, by those of the last 7 days: half take less; None if unknown."""
        return await estimated_processing_time(self.session, task, quantile)

    async def workers(self) -> list[WorkerRow]:
        """Every worker the store knows, oldest first; not ``alive`` if it was not heard of for its lease."""
        return await workers.workers(self.session)

    async def drain_worker(self, id: UUID | str, *, by: str | None = None) -> WorkerRow:
        """Have a worker claim no more, finish what it runs, however long that takes, and leave: also one that runs
        elsewhere, within a beat; the worker as it is now. Whoever started it may start another. ``by``: for ``audit``.

        :raises UnknownWorker: there is none, or it is dead
        """
        return await drain_worker(self.session, as_id(id), by)

    async def tasks(self) -> list[TaskInfo]:
        """Every task of this App, and every other that a worker has registered."""
        return await tasks_.tasks(self.session, self.handlers.values())

    async def knows_task(self, name: str) -> bool:
        """Whether this App or a worker of its store has a task of this name."""
        return name in self.by_name or await self.session.find_task(name) is not None

    def maintenance(self) -> Maintenance:
        """Sweeping, pruning and planning for a program that is not a worker: ``async with app.maintenance():``.

        Workers do it anyway. Of all who would, one does each of them at a time.
        """
        return Maintenance(self.session)

    async def ping(self, *, write: bool = False) -> None:
        """Return if the store answers, and if asked for takes a write; :raises EngineError: it does not"""
        await ping(self.session, write=write)

    async def prune(self) -> int:
        """Remove every ended job whose retention is over; how many."""
        return await store_.prune(self.session)

    async def migrate(self, *, plan: bool = False) -> list[str]:
        """Migrate the store's schema (``plan``: only list the steps); the App need not be open."""
        engine = self.new_engine()
        with self._saying_whose():
            return await engine.migrate(plan=plan)

    async def verify(self, *, each: Callable[[Invariant], object] | None = None) -> Verification:
        """Compare what the store keeps twice, while workers go on; ``each`` is called with every book as it is done."""
        return await verify(self.session, each)

    async def doctor(self, *, store: bool = True) -> list[Check]:
        """Check the store, the workers and the settings; each finding has a remedy.

        ``store``: also what the store says of itself, which may take long; without it this may be asked often.
        """
        return await store_.doctor(self.session, store=store)

    async def shared_secret(self, name: str) -> bytes:
        """A secret that all processes of this store share, to sign with: derived from ``HEADRACE_SECRET`` where that is
        set, else made when it is first asked for, and kept in the store; :raises SecretMismatch: theirs is another"""
        return await shared_secret(self.session.vault, name)
