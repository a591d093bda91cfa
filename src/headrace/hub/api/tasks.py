"""Operations about tasks: which exist, and the arguments of their jobs; pause and resume."""

from __future__ import annotations

from datetime import datetime

import msgspec

from headrace.client.api.limit_settings import LIMIT
from headrace.client.api.tasks import TaskInfo
from headrace.core.limits.settings import limits_of
from headrace.hub.api.documents import Listed, no_such, warnings_about
from headrace.hub.server.operation import Operation, OperationReply, OperationRequest, operations_of

__all__ = ["OPERATIONS", "TaskPause"]


class TaskPause(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a task is paused: workers start none of its jobs, in any queue."""

    name: str
    paused: bool
    paused_by: str | None = None
    paused_at: datetime | None = None
    warnings: tuple[str, ...] = ()
    """Possible typing errors, such as an unknown name."""


async def list_tasks(ask: OperationRequest) -> OperationReply:
    """Return every task that the caller may submit."""
    return OperationReply(Listed(tuple(await _tasks(ask))))


async def get_task(ask: OperationRequest) -> OperationReply:
    """Return one task."""
    name = ask.path["name"]
    found = next((one for one in await _tasks(ask) if one.name == name), None)
    if found is None:
        raise no_such("task", f"neither this hub nor any worker of its store has a task {name!r}")
    return OperationReply(found)


async def pause_task(ask: OperationRequest) -> OperationReply:
    """Pause a task: start none of its jobs."""
    await ask.hub.app.tasks.pause(ask.path["name"], by=ask.caller.name)
    return await _pause(ask)


async def resume_task(ask: OperationRequest) -> OperationReply:
    """Resume a task: start its jobs again."""
    await ask.hub.app.tasks.resume(ask.path["name"], by=ask.caller.name)
    return await _pause(ask)


async def _pause(ask: OperationRequest) -> OperationReply:
    app, name = ask.hub.app, ask.path["name"]
    settings = await app.session.engine.documents.settings(LIMIT + name)
    rule = limits_of((one.key, one.value) for one in settings).task(name)
    warnings = await warnings_about(app, "task", name)
    return OperationReply(
        TaskPause(name=name, paused=rule.paused, paused_by=rule.paused_by, paused_at=rule.paused_at, warnings=warnings)
    )


async def _tasks(ask: OperationRequest) -> list[TaskInfo]:
    """Return all tasks; a key that is bound to some tasks sees only these."""
    tasks, bound = await ask.hub.app.tasks.list(), ask.caller.tasks
    return tasks if bound is None else [one for one in tasks if one.name in bound]


_VIEW = {
    "name": "resize",
    "queue": "images",
    "priority": 70,
    "timeout": 60.0,
    "schema": {
        "type": "object",
        "properties": {"image": {"type": "string"}, "width": {"type": "integer", "default": 800}},
        "required": ["image"],
        "additionalProperties": False,
    },
    "here": False,
    "retention": None,
    "heartbeat": 60.0,
    "paused": False,
    "paused_by": None,
    "paused_at": None,
}

_PAUSE = {"name": "resize", "paused": False, "paused_by": None, "paused_at": None, "warnings": []}

_task = operations_of("/api/tasks/{name:path}", {"name": "resize"}, TaskPause, _PAUSE)

OPERATIONS = (
    Operation(
        path="/api/tasks",
        summary="Every task that this hub or a worker has, with the schema of its payload",
        scope="read",
        bounded="nothing",
        do=list_tasks,
        gives={200: Listed[TaskInfo]},
        answered={"items": [_VIEW]},
    ),
    Operation(
        path="/api/tasks/{name:path}",
        summary="One task, with the schema of its payload",
        scope="read",
        bounded="nothing",
        do=get_task,
        gives={200: TaskInfo},
        refuses=(404,),
        answered=_VIEW,
        path_examples={"name": "resize"},
    ),
    _task(
        "POST /pause",
        "Pause a task in all queues: none of its jobs are started, running ones go on",
        "act",
        pause_task,
        answered=_PAUSE | {"paused": True, "paused_by": "ops", "paused_at": "2026-11-16T10:05:00Z"},
    ),
    _task("POST /resume", "Resume a paused task", "act", resume_task),
)
