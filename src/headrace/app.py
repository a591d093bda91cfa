"""The App: it declares, submits, runs and opens; what exists in the store is under its noun (``app.jobs``)."""

from __future__ import annotations

import importlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any, Unpack
from uuid import UUID

import msgspec

from headrace.client.api.batches import BatchesApi
from headrace.client.api.jobs import JobsApi
from headrace.client.api.keys import KeysApi
from headrace.client.api.limit_settings import QUEUE, RATE, announce_limits, checked_queue, checked_rate, given
from headrace.client.api.limits import LimitInfo, LimitsApi
from headrace.client.api.positions import QueuePosition
from headrace.client.api.queues import QueueInfo, QueuesApi
from headrace.client.api.rates import RatesApi
from headrace.client.api.schedules import ScheduleInfo, SchedulesApi, announce_schedules
from headrace.client.api.stats import Stats, StatsApi
from headrace.client.api.store import Maintenance, StoreApi
from headrace.client.api.tasks import TaskInfo, TasksApi, register_tasks
from headrace.client.api.webhooks import WebhooksApi
from headrace.client.api.workers import WorkersApi, installed_version
from headrace.client.batch import BatchHandle
from headrace.client.bulk_task import BulkDecorator
from headrace.client.draft import Draft
from headrace.client.handle import JobHandle
from headrace.client.hooks import Hooked
from headrace.client.lifetime import Lifetime
from headrace.client.options import JobOptions, TaskOptions
from headrace.client.submission import by_name, submit
from headrace.client.submission.middleware import through
from headrace.client.task_registry import Decorator, Register, Tasks, check_defaults
from headrace.config import Secret
from headrace.core.limits.rate import Rate
from headrace.core.times import Seconds
from headrace.core.validation import checked_name
from headrace.engine import Check
from headrace.errors import ConfigError, StoreLost, Unavailable, shown
from headrace.maintenance import services
from headrace.runtime.clock import Clock
from headrace.runtime.retries import Pauses
from headrace.runtime.service import Service
from headrace.runtime.totals import FinishTotals
from headrace.worker.handler import Handler
from headrace.worker.options import Named, WorkerOptions, check_worker_options, chosen_handlers
from headrace.worker.worker import Worker

__all__ = ["App", "Check", "LimitInfo", "QueueInfo", "QueuePosition", "ScheduleInfo", "Stats", "TaskInfo"]

_log = logging.getLogger("headrace.app")

_FIRST_PAUSE_SECONDS, _MAX_PAUSE_SECONDS = 0.5, 30.0
"""Seconds between two tries to record the tasks."""


class App(Hooked, Lifetime):
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
        self._submit_middlewares = self._hooks.submit_middleware
        self._declared: dict[str, dict[str, Any]] = {}
        """What code says about queues and rates, by the key of its setting."""
        self._start_checks: list[Callable[[Any], None]] = []
        """Called with an ASGI application before ``lifespan`` opens this App; each raises ConfigError."""
        self.jobs: JobsApi = JobsApi(self)
        """Jobs: find, read, follow and explain them."""
        self.batches: BatchesApi = BatchesApi(self)
        """Batches that are stored."""
        self.queues: QueuesApi = QueuesApi(self)
        """Queues: list, pause and change them."""
        self.limits: LimitsApi = LimitsApi(self)
        """Limits of tasks, and how much of them is in use."""
        self.rates: RatesApi = RatesApi(self)
        """Rate limits."""
        self.schedules: SchedulesApi = SchedulesApi(self)
        """Schedules: make, pause and trigger them."""
        self.tasks: TasksApi = TasksApi(self)
        """The tasks of this App, by name, and those that workers have recorded."""
        self.workers: WorkersApi = WorkersApi(self)
        """Workers: list, explain and drain them."""
        self.webhooks: WebhooksApi = WebhooksApi(self)
        """Webhooks, and what was delivered to them."""
        self.keys: KeysApi = KeysApi(self)
        """Keys of the hub."""
        self.stats: StatsApi = StatsApi(self)
        """Counts, charts and durations."""
        self.store: StoreApi = StoreApi(self)
        """The store as a whole."""
        self._tasks = Tasks()
        self._tasks._bind(self, self._register)

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
        tasks._bind(self, self._register)

    def queue(
        self,
        name: str,
        *,
        priority: int | None = None,
        max_concurrency: int | None = None,
        rates: Sequence[str] | None = None,
        by_customer: bool | None = None,
    ) -> None:
        """Declare a queue's priority and limits; stored when a worker starts. ``app.queues.set`` overrides it.

        ``by_customer``: each customer has a subqueue of its own, so that workers can choose the customers they serve.

        :raises ConfigError: naming the argument
        """
        said = given(priority=priority, max_concurrency=max_concurrency, rates=rates, by_customer=by_customer)
        self._declared[QUEUE + checked_name(name, "a queue's name")] = checked_queue(said)

    def rate(self, name: str, rate: Rate) -> None:
        """Declare a rate limit, to be named in ``rates`` of tasks and queues; stored when a worker starts."""
        self._declared[RATE + checked_name(name, "a rate's name")] = msgspec.to_builtins(checked_rate(name, rate))

    @property
    def _handlers(self) -> Mapping[str, Handler]:
        """What a worker of this App runs, by name and by alias."""
        return {name: task.handler for name, task in self._register.tasks.items()}

    def _load(self) -> None:
        """Import the modules named by ``imports``, so that their tasks are registered;
        :raises ConfigError: there is no such module"""
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
            for check in self._start_checks:
                check(asgi)
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
        given: WorkerOptions = {"concurrency": concurrency, "queues": queues, "burst": burst, "grace": grace}
        options = check_worker_options({**given, "offers": offers or {}, "tasks": tasks})
        session, sums = self.session, FinishTotals()
        self._load()
        handlers = chosen_handlers(options.pop("tasks"), self._handlers)

        def duties(id: UUID, ended: UUID | None) -> Sequence[Service]:
            means = session.engine, session.writer, session.host
            return services(*means, id, follow=not burst, ended=ended, sums=sums)

        worker = Worker(
            session.engine,
            handlers,
            host=session.host,
            writer=session.writer,
            services=duties,
            announce=lambda: self._announced(self._announce),
            version=installed_version(),
            resources=self._resources,
            sums=sums,
            **options,
        )
        return self.workers.local.add(worker)

    async def _announced(self, announce: Callable[[], Awaitable[None]]) -> None:
        # A worker that starts while the store is away begins when it is back, like its registration.
        pauses = Pauses(self.host, _FIRST_PAUSE_SECONDS, _MAX_PAUSE_SECONDS)
        while True:
            try:
                return await announce()
            except StoreLost:
                raise
            except Unavailable as error:
                _log.warning("the tasks could not be recorded, trying on: %s", error)
                await pauses.sleep()

    async def _announce(self) -> None:
        session, now = self.session, self.host.clock.now()
        handlers = {task.handler.name: task.handler for task in self._register.tasks.values()}
        await register_tasks(session.engine, handlers.values())
        await announce_limits(session.engine, self._declared, handlers)
        await announce_schedules(session.engine, self._register.tasks.values(), self._register.tasks, now)

    # -- jobs

    async def submit(self, name: str, payload: Mapping[str, Any], /, **options: Unpack[JobOptions]) -> JobHandle[Any]:
        """Submit a task by name, without its function: policy and checks come from here, else from the store;
        :raises InvalidPayload: it does not fit the task"""
        return await (await self.draft(name, payload, **options)).submit()

    async def draft(self, name: str, payload: Mapping[str, Any], /, **options: Unpack[JobOptions]) -> Draft[Any]:
        """A draft of a task by name."""
        return await by_name.draft_by_name(self, name, payload, options)

    async def submit_each(self, drafts: Iterable[Draft[Any]]) -> list[JobHandle[Any] | Exception]:
        """Store drafts, of any tasks, each for itself: a handle, or why it was not stored, in the order of the drafts.
        Many are in one write all the same. ``submit_many`` is for those that belong together."""
        return await submit.submit_each(self, list(drafts))

    async def submit_many(self, drafts: Iterable[Draft[Any]]) -> list[JobHandle[Any]]:
        """Store drafts, of any tasks: one atomic write up to 1,000, chunks above, repeatable by id. Where some wait for
        others, a write is whole or not at all: if one of its drafts is refused, none is stored."""
        store, given = partial(submit.submit_many, self), list(drafts)
        return await through(self, given, store) if self._submit_middlewares else await store(given)

    def batch(self, *, on_complete: Draft[Any] | None = None, on_failure: Draft[Any] | None = None) -> BatchHandle:
        """A batch to fill: ``async with app.batch() as batch: batch.add(draft)``; stored when the block ends.

        ``on_complete`` is submitted once when all of its jobs have ended, ``on_failure`` if not all of them completed.
        """
        return BatchHandle(self, on_complete=on_complete, on_failure=on_failure)

    def maintenance(self) -> Maintenance:
        """Sweeping, pruning and planning for a program that is not a worker: ``async with app.maintenance():``. Workers
        do it anyway. Of all that could, one does each of them at a time."""
        return Maintenance(self.session)
