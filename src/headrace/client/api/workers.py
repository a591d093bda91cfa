"""Workers: those of the store and those in this process, why one gets nothing, and how to have one leave."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING
from uuid import UUID
from weakref import ref

import msgspec

from headrace.core import audit
from headrace.core.explain.explanation import Explanation
from headrace.core.explain.worker import MAX_QUEUE_JOBS, queues_to_look_at
from headrace.core.explain.worker import explain_worker as tell_worker
from headrace.core.job import Job
from headrace.core.limits.settings import group_of, limits_of
from headrace.core.query import Filter
from headrace.core.status import HELD, Status
from headrace.engine import WorkerRow
from headrace.engine.bus import Hint, Topic
from headrace.errors import UnknownWorker
from headrace.worker.drain import DRAIN, wish_about
from headrace.worker.worker import Worker

if TYPE_CHECKING:
    from headrace.client.session import Session

__all__ = ["LocalWorkers", "drain_worker", "explain_worker", "workers"]


async def drain_worker(session: Session, id: UUID, by: str | None) -> WorkerRow:
    """Wish that a worker leaves; the worker as it was then."""
    engine, now, rows = session.engine, session.host.clock.now(), await workers(session)
    row = next((one for one in rows if one.info.id == id), None)
    if row is None or row.beat.state == "dead":
        raise UnknownWorker(id)
    key, act = f"{DRAIN}{id}", audit.act("drain", now, by)
    if await wish_about(engine, id) is None:  # else, or if another is faster, it is wished already
        await engine.documents.put_setting(key, msgspec.json.encode({"by": by, "at": now}).decode(), 0, act)
    engine.bus.send(Hint(Topic.SETTINGS, (key,)))
    there = {f"{DRAIN}{one.info.id}" for one in rows}
    for wish in await engine.documents.settings(DRAIN):
        if wish.key not in there:  # a worker that was killed did not take it along
            await engine.documents.put_setting(wish.key, None, wish.rev)
    return row


class LocalWorkers:
    """Knows every worker that is still in use, and tells of each one as it is made; may be asked on any thread."""

    def __init__(self) -> None:
        self._made: tuple[ref[Worker], ...] = ()
        self._told: list[Callable[[Worker], object]] = []

    def add(self, worker: Worker) -> Worker:
        """The same worker, made known."""
        self._made = (*(one for one in self._made if one() is not None), ref(worker))
        for tell in self._told:
            tell(worker)
        return worker

    def tell(self, each: Callable[[Worker], object]) -> None:
        """Call this with every worker, those included that were made before."""
        self._told.append(each)
        for worker in self.all():
            each(worker)

    def all(self) -> list[Worker]:
        """Those that are still in use."""
        return [worker for one in self._made if (worker := one()) is not None]


_MAX_EXPLAINED_QUEUES = 20
"""Queues of which jobs are looked at to explain a worker."""


async def workers(session: Session) -> list[WorkerRow]:
    """Every worker the store knows, judged by its last beat."""
    now = session.host.clock.now()
    return [row.as_heard(now, session.engine.rules) for row in await session.engine.workers.list()]


async def explain_worker(session: Session, id: UUID) -> Explanation:
    """Why a worker is given jobs, or none."""
    engine, now = session.engine, session.host.clock.now()
    row = next((one for one in await workers(session) if one.info.id == id), None)
    if row is None:
        raise UnknownWorker(id)
    limits = limits_of((one.key, one.value) for one in await engine.documents.settings())
    counts, jobs = await engine.records.count(now, history=False), list[Job]()
    for queue in queues_to_look_at(row, counts, limits)[:_MAX_EXPLAINED_QUEUES]:
        wanted = Filter(status=frozenset({Status.QUEUED}), queue=frozenset({queue}))
        jobs += (await engine.records.find(wanted, now, MAX_QUEUE_JOBS)).items
    groups = {group_of(one) for one in jobs}
    usage = await engine.records.usage(list({bound for group in groups for bound in limits.paced(group)}))
    held: Sequence[Job] = ()
    if row.holds and row.info.customers is not None and row.info.customers.strict:
        held = (await engine.records.find(Filter(status=HELD, worker=frozenset({id})), now, MAX_QUEUE_JOBS)).items
    return tell_worker(row, now, counts, jobs, limits, usage, held)
