"""Operations about workers: list them and those that are gone, explain why one gets no jobs, and drain one."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

import msgspec

from headrace.core.explain.explanation import Fact
from headrace.core.lifecycle.departure import How
from headrace.core.matching.customers import Customers
from headrace.core.status import Status
from headrace.engine import GoneWorker, WorkerRow
from headrace.http.problems import Problem
from headrace.hub.api.documents import Listed, no_such
from headrace.hub.server.operation import Operation, OperationReply, OperationRequest, operations_of

__all__ = ["OPERATIONS", "GoneWorkerPage", "GoneWorkerView", "LostJob", "WorkerExplanation", "WorkerView"]


class WorkerView(msgspec.Struct, frozen=True, kw_only=True):
    """A worker as the store knows it."""

    id: UUID
    """New at each start."""
    name: str | None
    """The name that a remote worker gives itself (``worker_id``)."""
    host: str
    pid: int
    version: str
    state: str
    """``running``; ``draining``: it finishes its jobs; ``blocked``: its event loop is blocked; ``silent``: no heartbeat
    within its lease; ``dead``."""
    alive: bool
    started_at: datetime
    heard_at: datetime
    """Its last heartbeat."""
    concurrency: int
    busy: int
    buffered: int
    holds: int
    """How many jobs it holds, according to the store."""
    done: int
    """Attempts finished since its start."""
    failed: int
    """Those of them that failed."""
    busy_share: float | None
    """The share of its slots that was busy, from 0 to 1, on average over the last 5 minutes."""
    busy_share_ever: float | None
    """The same since its start."""
    claimed_at: datetime | None
    """When it last got a job."""
    polled_at: datetime | None
    """When it last polled for jobs, whether there were any or not."""
    memory: int | None
    """Bytes that its process and its child processes have in RAM."""
    stuck_threads: int
    """Threads that outlived their attempts."""
    clock_apart: float
    """Seconds that the clock of its machine is ahead of the store's."""
    tasks: tuple[str, ...]
    queues: tuple[str, ...] | None
    """None: all."""
    offers: dict[str, Any]
    """Its capabilities, for jobs with requirements."""
    customers: Customers | None
    """The customers that it takes jobs of; None: all."""
    own: bool
    """Whether it runs nothing but headrace's own tasks, such as deliveries of webhooks: no figure counts it then."""

    @classmethod
    def of(cls, row: WorkerRow) -> WorkerView:
        """Return a worker as callers see it."""
        parts = row.info, row.beat, row.beat.utilisation, row
        fields = {name: getattr(one, name) for one in parts for name in cls.__struct_fields__ if hasattr(one, name)}
        return cls(**fields, heard_at=row.beat_at)


class LostJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job that a worker held at its end, and what became of it."""

    job_id: UUID
    task: str | None
    """null: it is no longer kept."""
    status: Status | None
    """Its status by now; null: it is no longer kept."""


class GoneWorkerView(msgspec.Struct, frozen=True, kw_only=True):
    """A worker that is gone."""

    id: UUID
    name: str | None
    host: str
    pid: int
    version: str
    started_at: datetime
    heard_at: datetime
    """Its last heartbeat."""
    gone_at: datetime
    how: How
    """How it was known: ``stopped`` (it left in good order), ``replaced`` (by another of its name), ``ended`` (its
    process has), ``silent`` (no heartbeat for a lease), ``cut_off`` (it did not come back to a hub)."""
    by: UUID | None
    """The worker or the program that found it; null: no other did."""
    silent: float | None
    """Seconds without a heartbeat, where that was how."""
    done: int
    """Attempts that it had finished."""
    lost: int
    """How many jobs it held at its end."""
    lost_jobs: tuple[UUID, ...]
    """The first of them, at most 100."""

    @classmethod
    def of(cls, gone: GoneWorker) -> GoneWorkerView:
        """Return the record of a worker as callers see it."""
        info, left = gone.row.info, gone.departure
        same = {name: getattr(info, name) for name in ("id", "name", "host", "pid", "version", "started_at")}
        return cls(
            **same,
            heard_at=gone.row.beat_at,
            gone_at=left.at,
            how=left.how,
            by=left.by,
            silent=left.silent,
            done=gone.row.beat.done,
            lost=gone.row.holds,
            lost_jobs=gone.lost,
        )


class GoneWorkerPage(msgspec.Struct, frozen=True):
    """Some workers that are gone, and where the next ones begin."""

    items: tuple[GoneWorkerView, ...]
    cursor: str | None
    """Pass it for the next page; null at the end."""


class GoneWorkersAsked(msgspec.Struct, frozen=True, kw_only=True):
    """A page of workers that are gone."""

    limit: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 50
    cursor: str | None = None


class WorkerExplanation(msgspec.Struct, frozen=True):
    """Why something is as it is: for people, and fact by fact for programs."""

    text: str
    facts: tuple[Fact, ...]


async def list_workers(ask: OperationRequest) -> OperationReply:
    """Return every worker."""
    return OperationReply(Listed(tuple(map(WorkerView.of, await ask.hub.app.workers.list()))))


async def get_worker(ask: OperationRequest) -> OperationReply:
    """Return one worker."""
    id = _id(ask)
    row = next((one for one in await ask.hub.app.workers.list() if one.info.id == id), None)
    if row is None:
        raise _nobody(ask)
    return OperationReply(WorkerView.of(row))


async def list_gone_workers(ask: OperationRequest) -> OperationReply:
    """Return the workers that are gone, the last to go first."""
    page = await ask.hub.app.workers.gone(limit=ask.query.limit, cursor=ask.query.cursor)
    return OperationReply(GoneWorkerPage(tuple(map(GoneWorkerView.of, page.items)), page.cursor))


async def get_gone_worker(ask: OperationRequest) -> OperationReply:
    """Return one worker that is gone."""
    return OperationReply(GoneWorkerView.of(await ask.hub.app.workers.get_gone(_id(ask))))


async def lost_jobs(ask: OperationRequest) -> OperationReply:
    """Return what became of the jobs that a worker held at its end."""
    app = ask.hub.app
    ids = (await app.workers.get_gone(_id(ask))).lost
    jobs = zip(ids, await app.jobs.get_many(ids), strict=True)
    return OperationReply(
        Listed(
            tuple(
                LostJob(job_id=id, task=None, status=None)
                if job is None
                else LostJob(job_id=id, task=job.task, status=job.status)
                for id, job in jobs
            )
        )
    )


async def explain_worker(ask: OperationRequest) -> OperationReply:
    """Return why a worker gets jobs, or none."""
    found = await ask.hub.app.workers.explain(_id(ask))
    return OperationReply(WorkerExplanation(str(found), found.facts))


async def drain_worker(ask: OperationRequest) -> OperationReply:
    """Have a worker finish its jobs, and stop."""
    id = _id(ask)
    row = next((one for one in await ask.hub.app.workers.list() if one.info.id == id), None)
    if row is not None and row.info.own:
        raise Problem(
            409, "own-worker", "A hub needs this worker", "it delivers webhooks for a hub: stop the hub instead"
        )
    return OperationReply(WorkerView.of(await ask.hub.app.workers.drain(id, by=ask.caller.name)), 202)


def _id(ask: OperationRequest) -> UUID:
    try:
        return UUID(ask.path["id"])
    except ValueError:
        raise _nobody(ask) from None


def _nobody(ask: OperationRequest) -> Exception:
    return no_such("worker", f"the store knows no worker {ask.path['id']!r}")


_ID = "019a8b40-11aa-7d52-b7a4-1b8b6f0d7c31"
_VIEW = {
    "id": _ID,
    "name": None,
    "host": "gpu-01",
    "pid": 4711,
    "version": "0.1.0",
    "state": "running",
    "alive": True,
    "started_at": "2026-11-16T08:00:00Z",
    "heard_at": "2026-11-16T10:03:10Z",
    "concurrency": 10,
    "busy": 3,
    "buffered": 1,
    "holds": 4,
    "done": 1812,
    "failed": 12,
    "busy_share": 0.31,
    "busy_share_ever": 0.274,
    "claimed_at": "2026-11-16T10:03:07Z",
    "polled_at": "2026-11-16T10:03:09Z",
    "memory": 84934656,
    "stuck_threads": 0,
    "clock_apart": 0.002,
    "tasks": ["resize"],
    "queues": None,
    "offers": {"gpu_memory_gb": 16},
    "customers": None,
    "own": False,
}
_FACT = {
    "code": "worker_free",
    "text": "It is alive, and 3 of its 10 slots are busy.",
    "data": {"state": "running", "busy": 3, "concurrency": 10, "holds": 4},
}

_GONE = {
    **{name: _VIEW[name] for name in ("id", "name", "host", "pid", "version", "started_at", "heard_at", "done")},
    "gone_at": "2026-11-16T10:03:41Z",
    "how": "silent",
    "by": "019a8b40-22bb-7d52-b7a4-1b8b6f0d7c32",
    "silent": 31.0,
    "lost": 1,
    "lost_jobs": ["019a8b3f-7c1e-7f4b-9a52-3d8f6c1e2b4a"],
}
_LOST = {"job_id": "019a8b3f-7c1e-7f4b-9a52-3d8f6c1e2b4a", "task": "resize", "status": "completed"}
_gone = operations_of("/api/gone-workers/{id}", {"id": _ID}, GoneWorkerView, _GONE)

_worker = operations_of("/api/workers/{id}", {"id": _ID}, WorkerView, _VIEW)

OPERATIONS = (
    Operation(
        path="/api/workers",
        summary="Every worker the store knows, oldest first",
        scope="read",
        do=list_workers,
        gives={200: Listed[WorkerView]},
        answered={"items": [_VIEW]},
    ),
    _worker("GET", "One worker", "read", get_worker),
    Operation(
        path="/api/gone-workers",
        summary="Workers that are gone, the last to go first; kept as long as failed jobs are",
        scope="read",
        do=list_gone_workers,
        query=GoneWorkersAsked,
        gives={200: GoneWorkerPage},
        answered={"items": [_GONE], "cursor": None},
    ),
    _gone("GET", "One worker that is gone", "read", get_gone_worker),
    _gone(
        "GET /jobs",
        "What became of the jobs that a worker held when it went",
        "read",
        lost_jobs,
        gives={200: Listed[LostJob]},
        answered={"items": [_LOST]},
    ),
    _worker(
        "GET /explain",
        "Why a worker is given jobs, or none",
        "read",
        explain_worker,
        gives={200: WorkerExplanation},
        answered={"text": _FACT["text"], "facts": [_FACT]},
    ),
    _worker(
        "POST /drain",
        "Have a worker claim no more, finish what it runs however long that takes, and leave",
        "act",
        drain_worker,
        gives={202: WorkerView},
        refuses=(404, 409),
    ),
)
