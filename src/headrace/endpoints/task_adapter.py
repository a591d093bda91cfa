"""Handlers of routes as tasks: arguments are stored as JSON, and decoded to the types of the handler."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack, ExitStack
from typing import Any

import msgspec

from headrace.endpoints.dependencies import Made, Plan
from headrace.errors import ConfigError
from headrace.worker.execution.context import Context

__all__ = ["Adapter", "adapted"]


class Adapter(msgspec.Struct, frozen=True):
    """Stores and loads a type without a JSON form of headrace's own."""

    store: Callable[[Any], Any]
    """Returns JSON values for one of its values."""
    load: Callable[[Any], Any]
    """Returns its value from these."""


def adapted(
    fn: Callable[..., Any],
    parameters: Mapping[str, inspect.Parameter],
    returns: Any,
    *,
    takes_context: bool,
    adapters: Mapping[str, Adapter],
    plans: Mapping[str, Plan],
    result: Adapter | None,
) -> Callable[..., Any]:
    """Return the function that a worker calls: its arguments are the stored ones, and it calls ``fn``.

    ``parameters``: of ``fn``, without its Context, with their types. ``plans``: the values to make in the worker.

    :raises ConfigError: a plain function cannot await what a dependency needs
    """
    if not (adapters or plans or result):
        return fn
    if inspect.isasyncgenfunction(fn):
        raise ConfigError(f"{fn.__qualname__}: a stream takes and yields what headrace can store by itself")

    def loaded(given: dict[str, Any]) -> dict[str, Any]:
        return {name: adapters[name].load(one) if name in adapters else one for name, one in given.items()}

    def stored(value: Any) -> Any:
        return value if result is None else result.store(value)

    async def on_loop(ctx: Context, **given: Any) -> Any:
        async with AsyncExitStack() as stack:
            made = Made(ctx)
            kwargs = loaded(given) | {name: await made.on_loop(plan, stack) for name, plan in plans.items()}
            return stored(await (fn(ctx, **kwargs) if takes_context else fn(**kwargs)))

    def in_thread(ctx: Context, **given: Any) -> Any:
        with ExitStack() as stack:
            made = Made(ctx)
            kwargs = loaded(given) | {name: made.here(plan, stack) for name, plan in plans.items()}
            return stored(fn(ctx, **kwargs) if takes_context else fn(**kwargs))

    is_async = inspect.iscoroutinefunction(fn)
    if not is_async and (names := [name for name, plan in plans.items() if plan.any_async]):
        raise ConfigError(f"{fn.__qualname__} is a plain function, and {names[0]!r} must be awaited: make it async def")
    call: Callable[..., Any] = on_loop if is_async else in_thread
    functools.update_wrapper(call, fn)
    kept = [
        one.replace(annotation=Any) if name in adapters else one
        for name, one in parameters.items()
        if name not in plans
    ]
    first = inspect.Parameter("ctx", inspect.Parameter.POSITIONAL_ONLY, annotation=Context)
    while any(one.name == first.name for one in kept):
        first = first.replace(name=f"{first.name}_")
    first = first.replace(kind=inspect.Parameter.POSITIONAL_OR_KEYWORD)
    given = Any if result is not None else returns
    said: Any = call
    said.__signature__ = inspect.Signature([first, *kept], return_annotation=given)
    said.__annotations__ = {one.name: one.annotation for one in (first, *kept) if one.annotation is not one.empty}
    if given is not inspect.Signature.empty:
        said.__annotations__["return"] = given
    return call
