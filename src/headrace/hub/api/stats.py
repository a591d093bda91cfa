"""Operations about figures: counts of the whole store, charts of finished work, failures in groups, and alerts."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import msgspec

from headrace.client.api.stats import Stats
from headrace.core.stats.alerts.alert import Alert
from headrace.core.stats.charts import Charts
from headrace.core.stats.errors import RecentError
from headrace.core.stats.failures import FailureGroup
from headrace.core.stats.rollup import Step
from headrace.core.status import Reason
from headrace.hub.api.documents import Listed
from headrace.hub.api.filters import SaidStatus, filters_in
from headrace.hub.server.operation import Operation, OperationReply, OperationRequest

__all__ = ["OPERATIONS", "ChartsAsked", "ErrorsAsked", "FailuresAsked"]


class ChartsAsked(msgspec.Struct, frozen=True, kw_only=True):
    """Which charts; by default those of the last hour."""

    task: str | None = None
    queue: str | None = None
    since: Annotated[datetime, msgspec.Meta(tz=True)] | None = None
    until: Annotated[datetime, msgspec.Meta(tz=True)] | None = None
    step: Step | None = None
    """The duration of a point; by default one that fits the span."""


class FailuresAsked(msgspec.Struct, frozen=True, kw_only=True):
    """Which failures; each given parameter must match."""

    status: tuple[SaidStatus, ...] | None = None
    """By default jobs that failed, and jobs that are retried after a failure."""
    reason: tuple[Reason, ...] | None = None
    task: tuple[str, ...] | None = None
    queue: tuple[str, ...] | None = None
    customer: tuple[str, ...] | None = None
    tag: str | None = None
    created_after: Annotated[datetime, msgspec.Meta(tz=True)] | None = None
    created_before: Annotated[datetime, msgspec.Meta(tz=True)] | None = None
    finished_after: Annotated[datetime, msgspec.Meta(tz=True)] | None = None
    finished_before: Annotated[datetime, msgspec.Meta(tz=True)] | None = None
    type: tuple[str, ...] | None = None
    """The same as ``task``."""
    customer_id: tuple[str, ...] | None = None
    """The same as ``customer``."""
    limit: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 50
    """Maximum groups: the largest."""


class ErrorsAsked(msgspec.Struct, frozen=True, kw_only=True):
    """Which errors of attempts; by default those of the last hour."""

    task: str | None = None
    queue: str | None = None
    since: Annotated[datetime, msgspec.Meta(tz=True)] | None = None
    until: Annotated[datetime, msgspec.Meta(tz=True)] | None = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 50
    """Maximum errors: the commonest."""


async def stats(ask: OperationRequest) -> OperationReply:
    """Return counts and metrics of the user's jobs."""
    return OperationReply(await ask.hub.app.stats.counts())


async def charts(ask: OperationRequest) -> OperationReply:
    """Return charts of what workers finished."""
    return OperationReply(await ask.hub.app.stats.charts(**msgspec.structs.asdict(ask.query)))


async def failures(ask: OperationRequest) -> OperationReply:
    """Return jobs that failed alike, in groups."""
    found = await ask.hub.app.jobs.failures(limit=ask.query.limit, **filters_in(ask, ask.query))
    return OperationReply(Listed(tuple(found)))


async def alerts(ask: OperationRequest) -> OperationReply:
    """Return what is wrong now, each with a remedy."""
    return OperationReply(Listed(tuple(await ask.hub.app.stats.alerts())))


async def errors(ask: OperationRequest) -> OperationReply:
    """Return the errors of attempts, also of jobs that succeeded later."""
    return OperationReply(Listed(tuple(await ask.hub.app.stats.errors(**msgspec.structs.asdict(ask.query)))))


_POINT = {
    "at": "2026-11-16T10:00:00Z",
    "seconds": 60,
    "completed": 118,
    "failed": 2,
    "timed_out": 0,
    "lost": 0,
    "snoozed": 0,
    "released": 0,
    "cancelled": 0,
    "retried": 2,
    "waiting": {"count": 120, "mean": 0.21, "p50": 0.1, "p95": 0.6, "p99": 1.2},
    "running": {"count": 120, "mean": 1.9, "p50": 1.7, "p95": 3.4, "p99": 4.8},
}

_WINDOW = {
    "jobs": 10,
    "average_queue_time": 0.21,
    "average_processing_time": 1.9,
    "success_rate": 0.99,
    "retry_rate": 0.04,
    "worker_utilisation": 0.38,
}

OPERATIONS = (
    Operation(
        path="/api/stats",
        summary="The user's jobs by status, the ledger, workers, the oldest queued job, and the six metrics",
        scope="read",
        do=stats,
        gives={200: Stats},
        answered={
            "statuses": {"queued": 4, "running": 2, "completed": 1812, "failed": 3},
            "ledger": {
                "accepted": 1821,
                "live": 6,
                "ended": 1815,
                "pruned": 0,
                "completed": 1812,
                "failed": 3,
                "cancelled": 0,
                "pruned_completed": 0,
                "pruned_failed": 0,
                "pruned_cancelled": 0,
                "pruned_unknown": 0,
            },
            "workers_alive": 1,
            "oldest_queued": "2026-11-16T10:03:15Z",
            "workers_silent": 0,
            "silent_since": None,
            "metrics": {
                "queue_depth": 4,
                "windows": {"5m": _WINDOW, "1h": {**_WINDOW, "jobs": 118}, "24h": {**_WINDOW, "jobs": 1815}},
            },
            "own_statuses": {"completed": 36},
            "own_workers_alive": 1,
        },
    ),
    Operation(
        path="/api/charts",
        summary="What workers finished, by task, queue and time, and how long it took",
        scope="read",
        do=charts,
        query=ChartsAsked,
        gives={200: Charts},
        answered={
            "since": "2026-11-16T10:00:00Z",
            "until": "2026-11-16T10:01:00Z",
            "step": "minute",
            "series": [{"task": "resize", "queue": "images", "total": _POINT, "points": [_POINT]}],
        },
    ),
    Operation(
        path="/api/failures",
        summary="Jobs that failed alike, in groups, the largest first",
        scope="read",
        bounded="found",
        do=failures,
        query=FailuresAsked,
        gives={200: Listed[FailureGroup]},
        answered={
            "items": [
                {
                    "fingerprint": "3f0c1d9a77e2",
                    "task": "resize",
                    "type": "ServiceTimeoutError",
                    "place": "images.py:resize",
                    "message": "the service did not answer within 30 s",
                    "jobs": 3,
                    "failed": 3,
                    "first_seen": "2026-11-16T09:12:00Z",
                    "last_seen": "2026-11-16T10:01:30Z",
                    "example": "019a8b41-7d20-7f0a-9b1c-2f6f0a3f1f52",
                }
            ]
        },
    ),
    Operation(
        path="/api/alerts",
        summary="What is wrong now, failures first, each with a remedy; the same as headrace doctor finds in the store",
        scope="read",
        do=alerts,
        gives={200: Listed[Alert]},
        answered={
            "items": [
                {
                    "kind": "failing_task",
                    "level": "fail",
                    "subject": "resize",
                    "message": "task resize: 31 attempts failed within the hour, 66% of all",
                    "remedy": "look at its errors: headrace failures --recent --task resize",
                }
            ]
        },
    ),
    Operation(
        path="/api/errors",
        summary="The errors of attempts, also of jobs that succeeded later, the commonest first",
        scope="read",
        do=errors,
        query=ErrorsAsked,
        gives={200: Listed[RecentError]},
        answered={
            "items": [
                {
                    "fingerprint": "3f0c1d9a77e2",
                    "task": "resize",
                    "type": "ServiceTimeoutError",
                    "place": "images.py:resize",
                    "attempts": 31,
                    "last_seen": "2026-11-16T10:01:00Z",
                    "example": "019a8b41-7d20-7f0a-9b1c-2f6f0a3f1f52",
                }
            ]
        },
    ),
)
