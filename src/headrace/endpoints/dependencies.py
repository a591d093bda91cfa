"""Dependencies that are resolved where the handler runs: ``db: Annotated[Session, InWorker(get_session)]``.

What a dependency returns during the request is stored with the job, so it must be JSON. A database session is not:
marked so, it is made in the worker when the job runs, and closed afterwards.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from typing import Annotated, Any, get_args, get_origin

from headrace.errors import ConfigError
from headrace.worker.execution.context import Context
from headrace.worker.execution.resources import Resource
from headrace.worker.handler import is_context, read_hints

__all__ = ["InWorker", "MadeInWorker", "Plan", "in_worker", "plan_of"]


class InWorker:
    """Marks a parameter that gets its value in the worker: from a function, or from a resource of the App.

    A function that yields is resumed when the handler is done. Its own parameters may be marked likewise, or with the
    framework's ``Depends``, or be the Context of the run.
    """

    def __init__(self, dependency: Callable[..., Any] | Resource[Any]) -> None:
        if not callable(dependency) and not isinstance(dependency, Resource):
            raise ConfigError(
                f"InWorker takes a function or a resource, as in InWorker(get_session), not {dependency!r}"
            )
        self.dependency = dependency

    def __repr__(self) -> str:
        return f"InWorker({getattr(self.dependency, '__qualname__', self.dependency)})"


class MadeInWorker:
    """The base of classes with all that a handler needs in the worker, as its first parameter, behind the Context.

    The parameters of such a class, as those of a dataclass, are marked ``InWorker``. An instance is made where the
    handler runs. It is no part of ``submit``, neither at run time nor for type checkers.
    """


class Plan:
    """How to make one value: the function, and the values that it needs."""

    def __init__(self, make: Any, parameters: Mapping[str, Plan], context: str | None) -> None:
        self.make, self.parameters, self.context = make, parameters, context
        fn = make if inspect.isroutine(make) or isinstance(make, type) else type(make).__call__
        self.is_async = inspect.iscoroutinefunction(fn) or inspect.isasyncgenfunction(fn)
        self.yields = inspect.isgeneratorfunction(fn) or inspect.isasyncgenfunction(fn)

    @property
    def any_async(self) -> bool:
        """Whether it, or a value that it needs, can only be made on a loop."""
        return self.is_async or any(one.any_async for one in self.parameters.values())


def in_worker(hint: Any, default: Any = None) -> InWorker | None:
    """Return the mark of a parameter; None: it has none."""
    if isinstance(hint, type) and issubclass(hint, MadeInWorker):
        return InWorker(hint)
    found = [one for one in get_args(hint)[1:] if isinstance(one, InWorker)] if get_origin(hint) is Annotated else []
    return found[0] if found else default if isinstance(default, InWorker) else None


def plan_of(dependency: Any, above: tuple[Any, ...] = ()) -> Plan:
    """Return how to make the value of a dependency.

    :raises ConfigError: it needs something that a worker does not have, such as the request
    """
    if isinstance(dependency, Resource):
        return Plan(dependency, {}, None)
    name = getattr(dependency, "__qualname__", dependency)
    if dependency in above:
        raise ConfigError(f"InWorker: {name} depends on itself")
    parameters, context = dict[str, Plan](), None
    hints = read_hints(inspect.getattr_static(dependency, "__init__") if isinstance(dependency, type) else dependency)
    for one in inspect.signature(dependency).parameters.values():
        if is_context(one, hints):
            context = one.name
            continue
        needed = _needed(hints.get(one.name), one.default)
        if needed is not None:
            parameters[one.name] = plan_of(needed, (*above, dependency))
        elif one.default is one.empty and one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD):
            raise ConfigError(
                f"InWorker: {name} needs {one.name!r}, and a worker has no request to take it from:"
                " mark it InWorker, too, or give it a default"
            )
    return Plan(dependency, parameters, context)


def _needed(hint: Any, default: Any) -> Any:
    """Return the dependency of a parameter: marked InWorker, or with the framework's own mark."""
    if (mark := in_worker(hint, default)) is not None:
        return mark.dependency
    marks = [*(get_args(hint)[1:] if get_origin(hint) is Annotated else ()), default]
    return next((found for one in marks if callable(found := getattr(one, "dependency", None))), None)


class Made:
    """The values of one run: each dependency is made once."""

    def __init__(self, ctx: Context) -> None:
        self._ctx, self._values = ctx, dict[int, Any]()

    async def on_loop(self, plan: Plan, stack: AsyncExitStack) -> Any:
        """Make the value on the loop, and blocking parts in a thread."""
        if id(plan.make) in self._values:
            return self._values[id(plan.make)]
        if isinstance(plan.make, Resource):
            return self._ctx.resource(plan.make)
        kwargs = {name: await self.on_loop(one, stack) for name, one in plan.parameters.items()}
        kwargs |= {plan.context: self._ctx} if plan.context else {}
        value: Any
        if plan.yields and plan.is_async:
            value = await stack.enter_async_context(asynccontextmanager(plan.make)(**kwargs))
        elif plan.yields:
            manager = contextmanager(plan.make)(**kwargs)
            value = await asyncio.to_thread(manager.__enter__)

            async def leave(*error: Any) -> bool | None:
                return await asyncio.to_thread(manager.__exit__, *error)

            stack.push_async_exit(leave)
        elif plan.is_async:
            value = await plan.make(**kwargs)
        else:
            value = await asyncio.to_thread(plan.make, **kwargs)
        self._values[id(plan.make)] = value
        return value

    def here(self, plan: Plan, stack: ExitStack) -> Any:
        """Make the value on this thread."""
        if id(plan.make) in self._values:
            return self._values[id(plan.make)]
        if isinstance(plan.make, Resource):
            return self._ctx.resource(plan.make)
        kwargs = {name: self.here(one, stack) for name, one in plan.parameters.items()}
        kwargs |= {plan.context: self._ctx} if plan.context else {}
        value = stack.enter_context(contextmanager(plan.make)(**kwargs)) if plan.yields else plan.make(**kwargs)
        self._values[id(plan.make)] = value
        return value
