"""A backend for ``django.tasks`` (Django 6): every enqueued task is a job, and a job is its result."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, cast
from uuid import UUID

from asgiref.sync import sync_to_async
from django.tasks.backends.base import BaseTaskBackend
from django.tasks.base import Task as DjangoTask
from django.tasks.base import TaskContext, TaskResult, TaskResultStatus
from django.tasks.exceptions import TaskResultDoesNotExist
from django.tasks.signals import task_enqueued, task_finished, task_started
from django.utils import timezone
from django.utils.json import normalize_json
from django.utils.module_loading import import_string

from headrace.client.task import Task
from headrace.contrib.django.project import project_app
from headrace.contrib.django.transactions import submit_then, waited
from headrace.core.attempt import Attempt, ErrorInfo
from headrace.core.job import Job
from headrace.core.status import HELD, Status
from headrace.worker.execution.context import Context
from headrace.worker.handler import Described

__all__ = ["MARK", "HeadraceBackend", "described", "errors_of", "status_of", "workers_of"]


MARK = "django.tasks"
"""The key in a job's metadata under which the enqueued task is kept."""


def described(error: BaseException) -> Described:
    """Return what is stored of an error: the path of its class, from which Django imports it."""
    kind = type(error)
    return Described({"class": f"{kind.__module__}.{kind.__qualname__}"})


def status_of(job: Job) -> str:
    """Return the status by the name that Django gives it."""
    if job.status is Status.COMPLETED:
        return "SUCCESSFUL"
    if job.ended:
        return "FAILED"
    return "RUNNING" if job.status in HELD else "READY"


def errors_of(job: Job, attempts: Sequence[Attempt]) -> list[Any]:
    """Return the errors of a job, oldest first; without its attempts, only the last one."""
    from django.tasks.base import TaskError

    found = [one.error for one in attempts if one.error is not None] or ([job.error] if job.error else [])
    return [TaskError(exception_class_path=_path(one), traceback=one.traceback or one.message) for one in found]


def _path(error: ErrorInfo) -> str:
    kept = (error.details or {}).get("class")
    return kept if isinstance(kept, str) else f"builtins.{error.type}"


def workers_of(job: Job, attempts: Sequence[Attempt]) -> list[str]:
    """Return the worker of every attempt, that of the running one last."""
    found = [str(one.worker) for one in attempts for _ in range(one.count)]
    return [*found, str(job.worker)] if job.status in HELD else found


class HeadraceBackend(BaseTaskBackend):
    """``TASKS = {"default": {"BACKEND": "headrace.contrib.django.HeadraceBackend", "OPTIONS": {"timeout": 60}}}``

    ``OPTIONS``: options of a headrace task. A job has the name of its function, and the worker of the project
    (``manage.py headrace worker``) runs it; it finds the tasks in the modules ``tasks`` of all applications.
    """

    supports_defer = True
    supports_async_task = True
    supports_get_result = True
    supports_priority = True

    def validate_task(self, task: DjangoTask) -> None:
        """Refuse a task that cannot run, and register its function for workers."""
        super().validate_task(task)
        self._task(task)

    def _task(self, task: DjangoTask) -> Task[Any, Any]:
        """Return the headrace task that runs the function."""
        app = project_app()
        known = app.tasks.get(task.module_path)
        if known is not None:
            return known
        make = _coroutine if inspect.iscoroutinefunction(task.func) else _plain
        run, on_end = make(type(self), self.alias, task.module_path), _ended(type(self), self.alias)
        made: Task[Any, Any] = cast("Any", app.task)(
            run, name=task.module_path, on_success=on_end, on_failed=on_end, on_cancelled=on_end, **self.options
        )
        made.handler.describe = described
        return made

    def enqueue(self, task: DjangoTask, args: Sequence[Any], kwargs: Mapping[str, Any]) -> TaskResult:
        """Store the job; within a transaction, as part of it, or after its commit: see ``transactions.submit``."""
        self.validate_task(task)
        after = task.run_after
        if after is not None and timezone.is_naive(after):
            after = timezone.make_aware(after)
        mark = {"backend": self.alias, "priority": task.priority, "takes_context": task.takes_context}
        draft = (
            self._task(task)
            .draft(normalize_json(list(args)), normalize_json(dict(kwargs)))
            .with_options(
                queue=task.queue_name,
                priority=(task.priority + 100) // 2,
                metadata={MARK: mark | ({} if after is None else {"run_after": after.isoformat()})},
                **({} if after is None else {"not_before": after}),
            )
        )

        def stored(job: Job) -> None:
            task_enqueued.send(type(self), task_result=self._result(task, job))

        job = submit_then(draft, stored)
        if job is not None:
            return self._result(task, job)
        later = self._result(task, draft._job(project_app().host.clock.now()))
        object.__setattr__(later, "enqueued_at", None)  # which the commit does
        return later

    def get_result(self, result_id: str) -> TaskResult:
        """Return the job as it is now; :raises TaskResultDoesNotExist:"""
        app = project_app()
        try:
            id = UUID(result_id)
        except ValueError:
            raise TaskResultDoesNotExist(result_id) from None

        async def read() -> tuple[Job, Sequence[Attempt]] | None:
            [job] = await app.jobs.get_many([id])
            return None if job is None else (job, (await app.jobs.history(id)).attempts)

        found = waited(app, read())
        if found is None or MARK not in found[0].metadata:
            raise TaskResultDoesNotExist(result_id)
        return self._result(_task_of(found[0]), *found)

    def _result(self, task: DjangoTask, job: Job, attempts: Sequence[Attempt] = ()) -> TaskResult:
        result = TaskResult(
            task=task,
            id=str(job.id),
            status=TaskResultStatus[status_of(job)],
            enqueued_at=job.spec.created_at,
            started_at=job.first_started_at or job.started_at,
            finished_at=job.finished_at,
            last_attempted_at=job.started_at,
            args=job.payload["args"],
            kwargs=job.payload["kwargs"],
            backend=self.alias,
            errors=errors_of(job, attempts),
            worker_ids=workers_of(job, attempts),
        )
        object.__setattr__(result, "_return_value", job.result)
        return result


def _task_of(job: Job) -> DjangoTask:
    """Return the task as it was enqueued."""
    mark = job.metadata[MARK]
    found: DjangoTask = import_string(job.task)
    after = mark.get("run_after")
    return found.using(
        priority=mark["priority"],
        queue_name=job.asked_queue,
        run_after=None if after is None else datetime.fromisoformat(after),
        backend=mark["backend"],
    )


# -- in a worker


def _begun(kind: type[HeadraceBackend], alias: str, path: str, ctx: Context) -> tuple[DjangoTask, list[Any]]:
    """Return the task, and the first arguments of its function."""
    task: DjangoTask = import_string(path)
    backend = kind(alias, {"QUEUES": []})
    result = backend.get_result(str(ctx.job.id)) if task.takes_context else backend._result(_task_of(ctx.job), ctx.job)
    task_started.send(kind, task_result=result)
    return task, [TaskContext(task_result=result)] if task.takes_context else []


def _plain(kind: type[HeadraceBackend], alias: str, path: str) -> Any:
    def run(ctx: Context, args: list[Any], kwargs: dict[str, Any]) -> Any:
        task, first = _begun(kind, alias, path, ctx)
        return normalize_json(task.func(*first, *args, **kwargs))

    return run


def _coroutine(kind: type[HeadraceBackend], alias: str, path: str) -> Any:
    async def run(ctx: Context, args: list[Any], kwargs: dict[str, Any]) -> Any:
        task, first = await sync_to_async(_begun)(kind, alias, path, ctx)
        return normalize_json(await task.func(*first, *args, **kwargs))

    return run


def _ended(kind: type[HeadraceBackend], alias: str) -> Callable[[Job], Awaitable[None]]:
    def send(job: Job) -> None:
        backend = kind(alias, {"QUEUES": []})
        task_finished.send(kind, task_result=backend._result(_task_of(job), job))

    async def notify(job: Job) -> None:
        await sync_to_async(send)(job)

    return notify
