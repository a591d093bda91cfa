"""Tasks of the project, in the manner of headrace and, where Django has it, of Django."""

import json
import threading
from functools import partial
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

    def _note(name: str, sender: type, task_result: Any, **more: Any) -> None:
        """Write down a signal, in whichever process it is sent."""
        said = [name, sender.__name__, task_result.id, task_result.status, task_result.is_finished]
        with open("signals.txt", "a") as file:
            file.write(json.dumps(said) + "\n")

    for _name, _signal in {"enqueued": task_enqueued, "started": task_started, "finished": task_finished}.items():
        _signal.connect(partial(_note, _name), weak=False)

    @task
    def add(a: int, b: int = 1) -> int:
        return a + b

    @task(takes_context=True)
    async def attempt(context: TaskContext) -> list[Any]:
        return [context.task_result.id, context.attempt]

    @task
    def told() -> None:
        """Is enqueued within a transaction."""

    class Broken(Exception):
        pass

    @task
    def broken() -> None:
        raise Broken("as ever")
