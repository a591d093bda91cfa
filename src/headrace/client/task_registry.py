"""Where tasks are registered: the decorator, and a home for tasks that have no App yet."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, Unpack, overload

from headrace.client.api.limit_settings import check_limits
from headrace.client.bulk_task import BulkDecorator, BulkTask, make_handler
from headrace.client.hooks import HOOKS, Hooks, own_hooks
from headrace.client.options import (
    ONE_SUBMIT,
    TEMPLATES,
    JobOptions,
    TaskOptions,
    check_options,
    check_templates,
    merged,
)
from headrace.client.task import AsyncTask, PlainTask, StreamTask, Task
from headrace.core.limits.settings import TaskRule
from headrace.core.schedule.rules import Continuous, Cron, Every
from headrace.core.stats.own_tasks import OWN_PREFIX, is_own
from headrace.core.times import Seconds
from headrace.errors import ConfigError, DuplicateTask, NotBound, shown
from headrace.runtime.host import Host
from headrace.worker.execution.context import Context
from headrace.worker.execution.resources import Maker, Resource
from headrace.worker.handler import Handler, Policy

if TYPE_CHECKING:
    from headrace.app import App

__all__ = ["Decorator", "Register", "Tasks", "check_defaults"]

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

_LIMITS = ("max_concurrency", "max_per_key", "rates")
_OWN = ("name", "aliases", "run_in", "schedule", "continuous", "bulk", *_LIMITS, *HOOKS)
_POLICY = (
    *("queue", "priority", "retry", "timeout", "heartbeat", "remote_heartbeat", "retention"),
    *("dedup_for", "on_duplicate", "tags", "metadata", "requires"),
)


class _Probe:
    """A type that no parameter has: what accepts it accepts anything, and so is no Context."""


class Decorator:
    """Makes tasks of functions: ``@app.task``, ``@app.task(queue="images")``, or kept under a name and reused."""

    def __init__(self, home: Tasks, options: Mapping[str, Any]) -> None:
        self._home, self._options = home, dict(options)
        check_options({name: value for name, value in options.items() if name not in _OWN}, template=True)

    # A coroutine function is a function too: the first that fits is meant, as the checkers themselves choose.
    @overload
    def __call__(  # type: ignore[overload-overlap]
        self, fn: Callable[Concatenate[_Probe, ...], AsyncIterator[R]], /
    ) -> StreamTask[..., R]: ...
    @overload
    def __call__(  # type: ignore[overload-overlap]
        self, fn: Callable[Concatenate[Context, P], AsyncIterator[R]], /
    ) -> StreamTask[P, R]: ...
    @overload
    def __call__(  # type: ignore[overload-overlap]
        self, fn: Callable[P, AsyncIterator[R]], /
    ) -> StreamTask[P, R]: ...
    @overload
    def __call__(  # type: ignore[overload-overlap]
        self, fn: Callable[Concatenate[_Probe, ...], Coroutine[Any, Any, R]], /
    ) -> AsyncTask[..., R]: ...
    @overload
    def __call__(  # type: ignore[overload-overlap]
        self, fn: Callable[Concatenate[Context, P], Coroutine[Any, Any, R]], /
    ) -> AsyncTask[P, R]: ...
    @overload
    def __call__(  # type: ignore[overload-overlap]
        self, fn: Callable[P, Coroutine[Any, Any, R]], /
    ) -> AsyncTask[P, R]: ...
    @overload
    def __call__(self, fn: Callable[Concatenate[_Probe, ...], R], /) -> PlainTask[..., R]: ...
    @overload
    def __call__(self, fn: Callable[Concatenate[Context, P], R], /) -> PlainTask[P, R]: ...
    @overload
    def __call__(self, fn: Callable[P, R], /) -> PlainTask[P, R]: ...
    @overload
    def __call__(self, fn: None = None, /, **options: Unpack[TaskOptions]) -> Decorator: ...

    def __call__(self, fn: Callable[..., Any] | None = None, /, **options: Any) -> Any:
        """Register the function; or, with options alone, a decorator that has them.

        :raises ConfigError: an option or the signature cannot be used
        :raises DuplicateTask: the name is taken
        """
        whole = self._options | options
        if fn is None:
            return Decorator(self._home, whole)
        return self._home._add(fn, whole)


class Register:
    """Tasks by name and alias; no name twice."""

    def __init__(self) -> None:
        self.tasks: dict[str, Task[Any, Any]] = {}
        self.hooks = Hooks()
        """What is around all of them."""

    def add(self, *tasks: Task[Any, Any]) -> None:
        """Take tasks in under all their names, all or none; :raises DuplicateTask: naming both places"""
        found: dict[str, Task[Any, Any]] = {}
        for task in tasks:
            for name in dict.fromkeys((task.name, *task.handler.aliases)):
                if is_own(name):  # no figure would count its jobs
                    raise ConfigError(f"a task must not be called {name!r}: headrace keeps {OWN_PREFIX!r} for its own")
                other = self.tasks.get(name) or found.get(name)
                if other is not None and other.handler is not task.handler:
                    places = f"{other.handler.place} and {task.handler.place}"
                    raise DuplicateTask(f"two tasks are called {name!r}: {places}; give one of them another name=")
                found[name] = task
        self.tasks.update(found)
        for task in tasks:
            self.hooks.attach(task.handler, task.hooks)


class Tasks:
    """A collection of tasks without an App, for libraries and against circular imports; ``app.include`` binds it."""

    def __init__(self, prefix: str = "", *, defaults: JobOptions | None = None) -> None:
        if not isinstance(prefix, str):
            raise ConfigError(f"prefix must be text, not {shown(prefix)}")
        self.prefix = prefix
        """Put before the name of every task."""
        self._defaults = check_defaults(defaults)
        self._app: App | None = None
        self._register = Register()

    @property
    def task(self) -> Decorator:
        """Registers the decorated function: ``@tasks.task`` or ``@tasks.task(queue="mail")``."""
        return Decorator(self, {})

    def bulk(self, *, size: int = 100, wait: Seconds = 0.05, **options: Unpack[TaskOptions]) -> BulkDecorator:
        """Like ``app.bulk``, for the App that will include these tasks."""
        return BulkDecorator(self, size, wait, options)

    def resource(self, fn: Maker[T]) -> Resource[T]:
        """Like ``app.resource``, for the App that will include these tasks."""
        resource: Resource[T] = Resource(fn)
        self._register.hooks.resources.append(resource)
        return resource

    @property
    def app(self) -> App:
        """The App that included it; :raises NotBound: none has"""
        if self._app is None:
            names = ", ".join(sorted({task.name for task in self._register.tasks.values()}))
            raise NotBound(f"these tasks belong to no App yet ({names}): app.include(tasks) first")
        return self._app

    @property
    def _host_or_none(self) -> Host | None:
        """The App's host, if there is an App."""
        return None if self._app is None else self._app.host

    def _bind(self, app: App, register: Register) -> None:
        """Belong to an App from now on, with what is here and what is still to come.

        :raises ConfigError: it belongs to another one
        :raises DuplicateTask: a name is taken there
        """
        if self._app is not None and self._app is not app:
            raise ConfigError("these tasks belong to another App already: a task is submitted to one App")
        tasks = list(dict.fromkeys(self._register.tasks.values()))
        register.add(*tasks)
        if register is not self._register:
            register.hooks.resources += self._register.hooks.resources
        self._app, self._register = app, register
        for task in tasks:
            _set_policy(task, app.defaults)
            task._resolved = None  # which is of one App

    def _add(self, fn: Callable[..., Any], options: Mapping[str, Any]) -> Task[Any, Any]:
        """Register a function; what the decorator does."""
        if isinstance(fn, Task):
            raise ConfigError(f"{shown(fn)} is a task already")
        if not callable(fn) or isinstance(fn, type):
            raise ConfigError(f"a task is made of a function, not of {shown(fn)}")
        hooks = own_hooks(options)
        job = {name: value for name, value in options.items() if name not in _OWN}
        checked = merged(self._defaults, check_options(job, template=True))
        for one in ONE_SUBMIT:
            if checked.get(one) is not None:
                more = "; app.webhooks.add subscribes to all jobs of a task" if one == "webhook" else ""
                raise ConfigError(f"{one} belongs to one submit: task.options({one}=...){more}")
        name = options.get("name", getattr(fn, "__name__", ""))
        handler = make_handler(
            fn,
            options.get("bulk"),
            name=f"{self.prefix}{name}" if name and isinstance(name, str) and name != "<lambda>" else name,
            aliases=options.get("aliases", ()),
            run_in=options.get("run_in"),
            policy=Policy(schedule=_rule(options), limits=_limits(options, checked)),
        )
        _check_schedule(handler, checked)
        if isinstance(handler.policy.schedule, Continuous):
            checked = {"timeout": None} | checked  # a run may take as long as it likes, unless the task has a timeout
        check_templates(checked, [one.name for one in handler.parameters])
        kind: type[Task[Any, Any]] = AsyncTask if handler.mode == "async" else PlainTask
        kind = StreamTask if handler.streams else BulkTask if handler.bulk is not None else kind
        task: Task[Any, Any] = kind(self, handler, checked, hooks)
        _set_policy(task, {} if self._app is None else self._app.defaults)
        self._register.add(task)
        return task


def check_defaults(defaults: JobOptions | None) -> dict[str, Any]:
    """Options that hold for many tasks; refuses those of one job; :raises ConfigError: naming the option"""
    if defaults is not None and not isinstance(defaults, Mapping):
        raise ConfigError(f"defaults must be a mapping of options, not {shown(defaults)}")
    checked = check_options(defaults or {})
    for name in (*TEMPLATES, *ONE_SUBMIT):
        if name in checked:
            raise ConfigError(f"{name} cannot be a default of many tasks: say it at the task or at the submit")
    return checked


def _set_policy(task: Task[Any, Any], defaults: Mapping[str, Any]) -> None:
    """Set what the jobs of a task get unless a submit says otherwise."""
    options = merged(defaults, task._options)
    fields = {name: options[name] for name in _POLICY if name in options}
    templates: dict[str, Any] = {name: options.get(place) for name, place in TEMPLATES.items()}
    old = task.handler.policy
    task.handler.policy = Policy(**fields, **templates, schedule=old.schedule, limits=old.limits)


def _limits(options: Mapping[str, Any], checked: Mapping[str, Any]) -> TaskRule:
    """How many of its jobs there may be at once and in a span of time."""
    given = {name: options[name] for name in _LIMITS if options.get(name) is not None}
    keyed = TEMPLATES["concurrency_key"] in checked
    if keyed:
        given = {"max_per_key": 1} | given
    return check_limits(given)


def _rule(options: Mapping[str, Any]) -> Any:
    """What makes the task submit itself: its schedule, or that it is continuous."""
    schedule, continuous = options.get("schedule"), options.get("continuous")
    if isinstance(schedule, Continuous):
        raise ConfigError("a Continuous is given as continuous=, not as schedule=")
    if continuous is None:
        return schedule
    if not isinstance(continuous, Continuous):
        raise ConfigError(f"continuous must be a Continuous, as in Continuous(instances=2), not {shown(continuous)}")
    if schedule is not None:
        raise ConfigError("schedule and continuous exclude each other: what runs all the time needs no fires")
    if options.get("retry") is not None:
        raise ConfigError("a continuous task is tried again after its cool_down: give it that instead of retry")
    if options.get("dedup") is not None:
        raise ConfigError("each instance of a continuous task has a dedup key of its own: leave dedup out")
    return continuous


def _check_schedule(handler: Handler, options: Mapping[str, Any]) -> None:
    schedule = handler.policy.schedule
    if schedule is None:
        return
    if not isinstance(schedule, Cron | Every | Continuous):
        raise ConfigError(f"task {handler.name!r}: schedule must be a Cron or an Every, not {shown(schedule)}")
    needed = ", ".join(one.name for one in handler.parameters if one.required)
    if needed:
        raise ConfigError(f"task {handler.name!r}: a schedule passes no arguments, but {needed} must be given")
    if not isinstance(schedule, Continuous) and schedule.overlap != "allow" and TEMPLATES["dedup"] in options:
        message = f"overlap={schedule.overlap!r} needs the dedup key of its jobs for itself; leave dedup out"
        raise ConfigError(f"task {handler.name!r}: {message}")
