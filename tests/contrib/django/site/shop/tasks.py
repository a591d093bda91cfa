"""Tasks of the project, in the manner of headrace and, where Django has it, of Django."""

import threading
from typing import Any

import django
from django.db import connection

from headrace.contrib.django import project_app

app = project_app()


@app.task
def send(order: int) -> list[Any]:
    """The thread, whether it began with a connection, and what the database says."""
    begun = connection.connection is not None
    with connection.cursor() as cursor:
        cursor.execute("SELECT 40 + %s", [order])
        return [threading.get_ident(), begun, cursor.fetchone()[0]]


@app.task
async def later(order: int) -> int:
    return order


if django.VERSION >= (6,):
    from django.tasks import TaskContext, task
    from django.tasks.signals import task_enqueued, task_finished, task_started

    TOLD = list[Any]()
    for _signal in (task_enqueued, task_started, task_finished):
        _signal.connect(lambda task_result, signal, **more: TOLD.append(task_result.status), weak=False)

    @task
    def add(a: int, b: int = 1) -> int:
        return a + b

    @task(takes_context=True)
    async def attempt(context: TaskContext) -> list[Any]:
        return [context.task_result.id, context.attempt]

    @task
    def told() -> list[str]:
        return [str(one) for one in TOLD]

    class Broken(Exception):
        pass

    @task
    def broken() -> None:
        raise Broken("as ever")
