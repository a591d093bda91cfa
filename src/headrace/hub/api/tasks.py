"""Operations about tasks: which exist, and the arguments of their jobs."""

from __future__ import annotations

from headrace.client.api.tasks import TaskInfo
from headrace.hub.api.documents import Listed, no_such
from headrace.hub.server.operation import Operation, OperationReply, OperationRequest

__all__ = ["OPERATIONS"]


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
}

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
)
