"""Jobs that workers behind this hub have failed and that are due again: another worker that waits is to try them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec

from headrace.core.job import Job
from headrace.core.lifecycle.suspects import requirements_of
from headrace.core.matching.fit import MAX_HOLD_SECONDS
from headrace.engine import Profiles
from headrace.hub.remote_workers.remote_worker import RemoteWorker

__all__ = ["LastFailures"]

_HOLD = timedelta(seconds=MAX_HOLD_SECONDS)
_MAX_WORKERS = 1000
_MAX_JOBS_PER_WORKER = 100
"""Failed jobs that are remembered: of more, the oldest are forgotten, and any worker may try them first."""


class _FailedJob(msgspec.Struct, frozen=True):
    task: str
    requires: dict[str, Any]
    due: datetime


class LastFailures:
    """Which jobs each worker was the last to fail, until they are given out again or that is overdue."""

    def __init__(self) -> None:
        self._by_worker: dict[tuple[str | None, str | None], dict[UUID, _FailedJob]] = {}
        self._worker_of: dict[UUID, tuple[str | None, str | None]] = {}

    def note(self, worker: RemoteWorker, job: Job) -> None:
        """Note that the worker failed a job, which is to be tried again."""
        self.given(job)
        jobs = self._by_worker.pop(worker.who, {})
        self._by_worker[worker.who] = jobs  # the newest is last
        jobs[job.id] = _FailedJob(job.task, requirements_of(job), job.available_at)
        self._worker_of[job.id] = worker.who
        if len(jobs) > _MAX_JOBS_PER_WORKER:
            del self._worker_of[next(iter(jobs))], jobs[next(iter(jobs))]
        if len(self._by_worker) > _MAX_WORKERS:
            for id in self._by_worker.pop(next(iter(self._by_worker))):
                del self._worker_of[id]

    def given(self, job: Job) -> None:
        """Note that a job was given to a worker."""
        who = self._worker_of.pop(job.id, None)
        if who is not None:
            del self._by_worker[who][job.id]

    def profiles(self, worker: RemoteWorker, known: Profiles | None, now: datetime) -> frozenset[int]:
        """Return the profiles of due jobs that this worker was the last to fail."""
        failed = self._by_worker.get(worker.who)
        if not failed or known is None:
            return frozenset()
        for id in [id for id, one in failed.items() if one.due + _HOLD <= now]:
            del failed[id], self._worker_of[id]
        return frozenset(_profiles(failed, known, now))


def _profiles(failed: dict[UUID, _FailedJob], known: Profiles, now: datetime) -> Iterator[int]:
    for one in failed.values():
        if one.due <= now:
            yield from (each.id for each in known.profiles if each.task == one.task and each.requires == one.requires)
