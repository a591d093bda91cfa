"""Operations about scaling: how many slots queues need, also in the form that autoscalers read."""

from __future__ import annotations

from typing import Annotated

import msgspec

from headrace.client.api.scale import QueueScale
from headrace.core.defaults import SCALE_WAIT_SECONDS
from headrace.core.times import duration
from headrace.hub.api.documents import Name
from headrace.hub.server.operation import Operation, OperationReply, OperationRequest

__all__ = ["OPERATIONS", "ScaleAdvice"]

_Wait = Annotated[str, msgspec.Meta(pattern=r"^[0-9]{1,6}(\.[0-9]{1,3})?(ms|s|m|min|h)?$", examples=["30s"])]
_Profile = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{12}$")]
_DEFAULT = f"{SCALE_WAIT_SECONDS:.0f}s"


class ScaleAsked(msgspec.Struct, frozen=True, kw_only=True):
    """Which advice."""

    wait: _Wait = _DEFAULT
    """How long jobs may wait: ``30s``, ``1.5m``, or seconds."""
    queue: Name | None = None
    """Only this queue, also if it has no jobs."""


class QueueScaleAsked(msgspec.Struct, frozen=True, kw_only=True):
    """Which advice about one queue."""

    wait: _Wait = _DEFAULT
    """How long jobs may wait: ``30s``, ``1.5m``, or seconds."""
    profile: _Profile | None = None
    """Only jobs with this set of requirements."""


class ScaleAdvice(msgspec.Struct, frozen=True):
    """How many slots each queue needs."""

    wait: float
    """The wanted waiting time, in seconds."""
    items: tuple[QueueScale, ...]


async def scale(ask: OperationRequest) -> OperationReply:
    """Return how many slots each queue needs."""
    wait = duration(ask.query.wait)
    found = await ask.hub.app.stats.scale(wait=wait, queue=ask.query.queue)
    return OperationReply(ScaleAdvice(wait, tuple(found)))


async def scale_queue(ask: OperationRequest) -> OperationReply:
    """Return how many slots one queue needs."""
    [found] = await ask.hub.app.stats.scale(wait=duration(ask.query.wait), queue=ask.path["queue"])
    return OperationReply(found if ask.query.profile is None else found.of(ask.query.profile))


_FIGURES = {
    "backlog": 40,
    "more": False,
    "running": 8,
    "oldest_age": 12.5,
    "arrival_rate": 1.6,
    "service_rate": 0.2,
    "slots": 8,
    "slots_needed": 12,
    "expected_wait": 25.6,
}

_QUEUE = {
    "queue": "images",
    "paused": False,
    **_FIGURES,
    "requirements": [{"profile": "44136fa355b3", "requires": {}, "tasks": ["resize"], **_FIGURES}],
}

OPERATIONS = (
    Operation(
        path="/api/scale",
        summary="How many slots each queue needs for a wanted waiting time, and how many there are",
        scope="read",
        do=scale,
        query=ScaleAsked,
        gives={200: ScaleAdvice},
        answered={"wait": 30.0, "items": [_QUEUE]},
    ),
    Operation(
        path="/api/scale/{queue:path}",
        summary="How many slots a queue needs: for autoscalers, which read the number at slots_needed",
        scope="read",
        do=scale_queue,
        query=QueueScaleAsked,
        gives={200: QueueScale},
        answered=_QUEUE,
        path_examples={"queue": "images"},
    ),
)
