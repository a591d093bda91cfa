"""Operations about queues: show, pause, resume, set."""

from __future__ import annotations

from typing import Annotated

import msgspec

from headrace.app import App
from headrace.client.api.known_names import strange_name
from headrace.client.api.queues import QUEUE_CURSOR, QueueInfo, page_of_queues
from headrace.core.defaults import MAX_COUNT
from headrace.core.status import Status
from headrace.hub.api.documents import Amount, Name, no_such, warnings_about
from headrace.hub.server.operation import Operation, OperationReply, OperationRequest, operations_of

__all__ = ["OPERATIONS", "QueueSettings", "QueueView"]


class QueueView(QueueInfo, frozen=True):
    """A queue: its settings, and its jobs counted by status."""

    warnings: tuple[str, ...] = ()
    """After a change: possible typing errors, such as an unknown name."""


class QueueSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """New settings of a queue; omitted ones stay as they are."""

    priority: Annotated[int, msgspec.Meta(ge=-MAX_COUNT, le=MAX_COUNT)] | None = None
    """A queue with a higher number is served first."""
    max_concurrency: Amount | None = None
    """Maximum of its jobs that run at once, in all workers together."""
    rates: tuple[Name, ...] | None = None
    """The rates that limit its jobs; an empty list: none."""
    by_customer: bool | None = None
    """Whether each customer has a waiting list of its own."""


class QueuesAsked(msgspec.Struct, frozen=True, kw_only=True):
    """A page of queues."""

    limit: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 100
    cursor: Annotated[str, msgspec.Meta(pattern=QUEUE_CURSOR)] | None = None


class QueuePage(msgspec.Struct, frozen=True):
    """Some queues, and where the next ones begin."""

    items: tuple[QueueInfo, ...]
    cursor: str | None
    """Pass it for the next page; null at the end."""


async def list_queues(ask: OperationRequest) -> OperationReply:
    """Return the queues that have jobs or settings."""
    asked: QueuesAsked = ask.query
    page = page_of_queues(await ask.hub.app.queues.list(), asked.limit, asked.cursor)
    return OperationReply(QueuePage(page.items, page.cursor))


async def get_queue(ask: OperationRequest) -> OperationReply:
    """Return one queue."""
    app, name = ask.hub.app, ask.path["name"]
    stored = any(one.name == name for one in await app.queues.list())
    if not stored and (strange := await strange_name(app, "queue", name)):
        raise no_such("queue", strange)
    return OperationReply(await _view(app, name))


async def pause_queue(ask: OperationRequest) -> OperationReply:
    """Pause a queue: start none of its jobs."""
    await ask.hub.app.queues.pause(ask.path["name"], by=ask.caller.name)
    return await _changed(ask)


async def resume_queue(ask: OperationRequest) -> OperationReply:
    """Resume a queue: start its jobs again."""
    await ask.hub.app.queues.resume(ask.path["name"], by=ask.caller.name)
    return await _changed(ask)


async def set_queue(ask: OperationRequest) -> OperationReply:
    """Change the settings of a queue."""
    said: QueueSettings = ask.body
    await ask.hub.app.queues.set(ask.path["name"], **msgspec.structs.asdict(said), by=ask.caller.name)
    return await _changed(ask)


async def reset_queue(ask: OperationRequest) -> OperationReply:
    """Drop the settings that were made while running."""
    await ask.hub.app.queues.reset(ask.path["name"], by=ask.caller.name)
    return OperationReply(await _view(ask.hub.app, ask.path["name"]))


async def forget_queue(ask: OperationRequest) -> OperationReply:
    """Delete the stored settings of a queue."""
    await ask.hub.app.queues.forget(ask.path["name"], by=ask.caller.name)
    return OperationReply(status=204)


async def _changed(ask: OperationRequest) -> OperationReply:
    app, name = ask.hub.app, ask.path["name"]
    view = await _view(app, name)
    return OperationReply(msgspec.structs.replace(view, warnings=await warnings_about(app, "queue", name, view.rates)))


async def _view(app: App, name: str) -> QueueView:
    found = next((one for one in await app.queues.list() if one.name == name), QueueInfo(name, 0, False, {}, None))
    return QueueView(**msgspec.structs.asdict(found))


_VIEW = {
    "name": "images",
    "priority": 10,
    "paused": False,
    "counts": {Status.QUEUED: 4, Status.RUNNING: 2},
    "oldest": "2026-11-16T10:03:15Z",
    "max_concurrency": 20,
    "rates": ["stripe"],
    "paused_by": None,
    "paused_at": None,
    "by_customer": False,
    "unreadable": None,
    "own_counts": {},
    "own_oldest": None,
    "warnings": [],
}

_queue = operations_of("/api/queues/{name:path}", {"name": "images"}, QueueView, _VIEW)

OPERATIONS = (
    Operation(
        path="/api/queues",
        summary="The queues, in the order workers serve them",
        scope="read",
        do=list_queues,
        query=QueuesAsked,
        gives={200: QueuePage},
        answered={"items": [{name: value for name, value in _VIEW.items() if name != "warnings"}], "cursor": None},
    ),
    _queue("GET", "One queue", "read", get_queue),
    _queue(
        "PATCH",
        "Change a queue; what is set here overrides the code until it is reset",
        "admin",
        set_queue,
        body=QueueSettings,
        example={"priority": 10, "max_concurrency": 20, "rates": ["stripe"]},
    ),
    _queue(
        "POST /pause",
        "Pause a queue: none of its jobs are started, running ones go on",
        "act",
        pause_queue,
        answered=_VIEW | {"paused": True, "paused_by": "ops", "paused_at": "2026-11-16T10:05:00Z"},
    ),
    _queue("POST /resume", "Resume a paused queue", "act", resume_queue),
    _queue(
        "POST /reset", "Drop what was set while running, a pause included; the code applies again", "admin", reset_queue
    ),
    _queue(
        "DELETE",
        "Delete all stored settings of a queue, those from code included; its jobs stay",
        "admin",
        forget_queue,
    ),
)
