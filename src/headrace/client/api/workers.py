"""``app.workers``: list, explain and drain the workers of the store, and find those of this process and those that are
gone."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Sequence
from functools import cache
from importlib.metadata import version
from typing import TYPE_CHECKING
from uuid import UUID
from weakref import ref

import msgspec

from headrace.client.api.filters import checked_limit
from headrace.client.api.limit_settings import announce_limits
from headrace.client.api.noun import Noun
from headrace.core import audit
from headrace.core.explain.explanation import Explanation
from headrace.core.explain.worker import MAX_QUEUE_JOBS, queues_to_look_at
from headrace.core.explain.worker import explain_worker as tell_worker
from headrace.core.job import Job, as_id
from headrace.core.limits.settings import group_of, limits_of
from headrace.core.query import Filter, Page
from headrace.core.status import HELD, Status
from headrace.engine import GoneWorker, WorkerRow
from headrace.engine.bus import Hint, Topic
from headrace.errors import UnknownWorker
from headrace.worker.drain import DRAIN, wish_about
from headrace.worker.handler import Handler
from headrace.worker.options import check_worker_options
from headrace.worker.worker import Worker

if TYPE_CHECKING:
    from headrace.app import App
    from headrace.client.session import Session

__all__ = ["LocalWorkers", "WorkersApi", "installed_version", "own_worker", "workers"]


@cache  # which reads and parses a file
def installed_version() -> str:
    """The version of headrace that is installed."""
    return version("headrace")


class LocalWorkers:
    """The workers that this App has made in this process and that are still in use; may be used on any thread."""

    def __init__(self) -> None:
        self._made: tuple[ref[Worker], ...] = ()
        self._listeners: list[Callable[[Worker], object]] = []

    def add(self, worker: Worker) -> Worker:
        """Add a worker, call the listeners with it, and return it."""
        self._made = (*(one for one in self._made if one() is not None), ref(worker))
        for call in self._listeners:
            call(worker)
        return worker

    def on_each(self, each: Callable[[Worker], object]) -> None:
        """Call a function with every worker: those that are there, and those still to come."""
        self._listeners.append(each)
        for worker in self.all():
            each(worker)

    def all(self) -> list[Worker]:
        """Those that are still in use."""
        return [worker for one in self._made if (worker := one()) is not None]


_MAX_EXPLAINED_QUEUES = 20
"""Maximum number of queues with jobs that are read to explain a worker."""


async def workers(session: Session) -> list[WorkerRow]:
    """Every worker the store knows, judged by its last beat."""
    now = session.host.clock.now()
    return [row.as_heard(now, session.engine.rules) for row in await session.engine.workers.list()]


class WorkersApi(Noun):
    """The workers of the store; ``app.worker`` makes one."""

    def __init__(self, app: App) -> None:
        super().__init__(app)
        self.local = LocalWorkers()
        """The workers that this App has made in this process."""

    async def list(self) -> builtins.list[WorkerRow]:
        """Every worker that the store knows, oldest first; not ``alive`` if it has missed its lease."""
        return await workers(self._session)

    async def gone(self, *, limit: int = 50, cursor: str | None = None) -> Page[GoneWorker]:
        """The workers that are gone, the last to go first, a page at a time: kept as long as failed jobs are.
        ``app.jobs.get_many(gone.lost)`` returns what became of the jobs that one held."""
        return await self._engine.workers.find_gone(checked_limit(limit), cursor)

    async def get_gone(self, id: UUID | str) -> GoneWorker:
        """A worker that is gone; :raises UnknownWorker: it is not, or its record was pruned"""
        worker = as_id(id)
        found = await self._engine.workers.get_gone(worker)
        if found is None:
            raise UnknownWorker(worker, f"no worker {worker} is on record as gone: headrace workers gone lists those")
        return found

    async def drain(self, id: UUID | str, *, by: str | None = None) -> WorkerRow:
        """Have a worker claim no more, finish what it runs, however long that takes, and leave: also one that runs
        elsewhere, within a beat. Returns the worker as it is now.

        :raises UnknownWorker: there is none, or it is dead
        """
        worker, engine, now, rows = as_id(id), self._engine, self._host.clock.now(), await self.list()
        row = next((one for one in rows if one.info.id == worker), None)
        if row is None or row.beat.state == "dead":
            raise UnknownWorker(worker)
        key, act = f"{DRAIN}{worker}", audit.act("drain", now, by)
        if await wish_about(engine, worker) is None:  # else, or if another is faster, it is wished already
            await engine.documents.put_setting(key, msgspec.json.encode({"by": by, "at": now}).decode(), 0, act)
        engine.bus.send(Hint(Topic.SETTINGS, (key,)))
        there = {f"{DRAIN}{one.info.id}" for one in rows}
        for wish in await engine.documents.settings(DRAIN):
            if wish.key not in there:  # a worker that was killed did not remove it
                await engine.documents.put_setting(wish.key, None, wish.rev)
        return row

    async def explain(self, id: UUID | str) -> Explanation:
        """Why a worker gets jobs, or none: its state, and what keeps it from the queued ones; :raises UnknownWorker:"""
        worker, engine, now = as_id(id), self._engine, self._host.clock.now()
        row = next((one for one in await self.list() if one.info.id == worker), None)
        if row is None:
            raise UnknownWorker(worker)
        limits = limits_of((one.key, one.value) for one in await engine.documents.settings())
        jobs: builtins.list[Job] = []
        counts = await engine.records.count(now, history=False)
        for queue in queues_to_look_at(row, counts, limits)[:_MAX_EXPLAINED_QUEUES]:
            wanted = Filter(status=frozenset({Status.QUEUED}), queue=frozenset({queue}))
            jobs += (await engine.records.find(wanted, now, MAX_QUEUE_JOBS)).items
        groups = {group_of(one) for one in jobs}
        usage = await engine.records.usage(list({bound for group in groups for bound in limits.paced(group)}))
        held: Sequence[Job] = ()
        if row.holds and row.info.customers is not None and row.info.customers.strict:
            own = Filter(status=HELD, worker=frozenset({worker}))
            held = (await engine.records.find(own, now, MAX_QUEUE_JOBS)).items
        return tell_worker(row, now, counts, jobs, limits, usage, held)


def own_worker(app: App, handlers: Sequence[Handler], *, queue: str, concurrency: int = 10) -> Worker:
    """A worker for tasks that are headrace's own and not of the App, such as the delivery of webhooks. It serves one
    queue, has no duties in the store, and does not know the tasks of the App."""
    session, options = app.session, check_worker_options({"concurrency": concurrency, "queues": [queue]})
    del options["tasks"]
    own = {handler.name: handler for handler in handlers}
    return Worker(
        session.engine,
        own,
        host=session.host,
        writer=session.writer,
        announce=lambda: app._announced(lambda: announce_limits(session.engine, {}, own)),
        version=installed_version(),
        **options,
    )
