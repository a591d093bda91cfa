"""Bulk tasks: one job for each item, one call of the function for many of them."""

from __future__ import annotations

import functools
import inspect
import operator
import types
import typing
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast, overload

from headrace.client.task import Task
from headrace.core.defaults import MAX_BULK_ITEMS, MAX_BULK_WAIT_SECONDS
from headrace.core.times import Seconds, seconds
from headrace.errors import ConfigError, shown
from headrace.worker.execution.bulk import check_outcomes
from headrace.worker.execution.context import Context
from headrace.worker.handler import Bulk, Handler, is_context, read_hints

if TYPE_CHECKING:
    from headrace.client.task_registry import Tasks

__all__ = ["BulkDecorator", "BulkTask", "make_handler"]

R = TypeVar("R")
T = TypeVar("T")
R_co = TypeVar("R_co", covariant=True)


class BulkTask(Task[[T], R_co], Generic[T, R_co]):
    """A task that is submitted one item at a time and run with many; made by ``@app.bulk``."""

    @property
    def fn(self) -> Callable[..., Any]:
        """The function itself."""
        assert self.handler.bulk is not None
        return self.handler.bulk.fn

    def __call__(self, items: list[T], /) -> Coroutine[Any, Any, Sequence[R_co | Exception]]:  # type: ignore[override]
        """Call the function here with these items, and a Context that leads nowhere if it takes one."""
        assert self.handler.bulk is not None
        args = (self._detached((items,), {}), items) if self.handler.bulk.takes_context else (items,)
        return cast("Coroutine[Any, Any, Sequence[R_co | Exception]]", self.fn(*args))


class BulkDecorator:
    """Makes bulk tasks of coroutine functions: ``@app.bulk(size=100, wait=0.05)``."""

    def __init__(self, home: Tasks, size: int, wait: Seconds, options: Mapping[str, Any]) -> None:
        if isinstance(size, bool) or not isinstance(size, int) or not 1 <= size <= MAX_BULK_ITEMS:
            raise ConfigError(f"size must be a whole number from 1 to {MAX_BULK_ITEMS}, not {shown(size)}")
        span = seconds(wait, "wait")
        if span > MAX_BULK_WAIT_SECONDS:
            raise ConfigError(
                f"wait must be at most {MAX_BULK_WAIT_SECONDS:g} s, not {shown(wait)}: claimed jobs must not wait long"
            )
        self._home, self._options = home, {**options, "bulk": (size, span)}

    @overload
    def __call__(self, fn: Callable[[list[T]], Coroutine[Any, Any, Sequence[R | Exception]]], /) -> BulkTask[T, R]: ...
    @overload
    def __call__(
        self, fn: Callable[[Context, list[T]], Coroutine[Any, Any, Sequence[R | Exception]]], /
    ) -> BulkTask[T, R]: ...

    def __call__(self, fn: Callable[..., Any], /) -> Any:
        """Register the function.

        :raises ConfigError: an option or the signature cannot be used
        :raises DuplicateTask: the name is taken
        """
        return self._home._add(fn, self._options)


def make_handler(fn: Callable[..., Any], bulk: tuple[int, float] | None, *, name: str, **options: Any) -> Handler:
    """A handler; with ``bulk`` (size and wait) for jobs of one item each: any runner can call it with a single one, a
    worker collects many; :raises ConfigError: the function is not of this kind"""
    if bulk is None:
        return Handler(fn, name=name, **options)
    if not inspect.iscoroutinefunction(fn):
        raise ConfigError(f"bulk task {name!r} must be a coroutine function (async def), not {shown(fn)}")
    hints, parameters = read_hints(fn), list(inspect.signature(fn).parameters.values())
    with_context = bool(parameters) and is_context(parameters[0], hints)
    items = parameters[with_context:]
    if len(items) != 1 or items[0].kind is not inspect.Parameter.POSITIONAL_OR_KEYWORD:
        taken = ", ".join(str(one) for one in items) or "none"
        raise ConfigError(f"bulk task {name!r} takes one list, and a Context before it or not; its parameters: {taken}")
    alone = _alone(fn, name, with_context)
    _describe(alone, fn, items[0].name, _item(hints.get(items[0].name), name), _result(hints.get("return"), name))
    handler = Handler(alone, name=name, **options)
    handler.bulk = Bulk(fn, with_context, *bulk)
    return handler


def _alone(fn: Callable[..., Awaitable[Any]], name: str, with_context: bool) -> Callable[..., Awaitable[Any]]:
    """The function as called with a single item."""

    async def alone(ctx: Context, **arguments: Any) -> Any:
        items = list(arguments.values())
        (outcome,) = check_outcomes(await (fn(ctx, items) if with_context else fn(items)), 1, name)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    return alone


def _describe(alone: Any, fn: Callable[..., Any], parameter: str, item: Any, result: Any) -> None:
    for attribute in ("__name__", "__qualname__", "__module__", "__doc__"):
        setattr(alone, attribute, getattr(fn, attribute, None))
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    shown = [inspect.Parameter("_context", kind), inspect.Parameter(parameter, kind)]
    alone.__signature__ = inspect.Signature(shown)
    alone.__annotations__ = {"_context": Context, parameter: item, "return": result}


def _item(hint: Any, name: str) -> Any:
    """The type of one item: of ``list[Doc]`` it is ``Doc``."""
    if hint in (None, Any, list) or isinstance(hint, str):  # nothing is said, or it cannot be read
        return Any
    if typing.get_origin(hint) is not list:
        raise ConfigError(f"bulk task {name!r}: its parameter must be a list, as in list[int], not {shown(hint)}")
    return typing.get_args(hint)[0]


def _result(hint: Any, name: str) -> Any:
    """The type of one result: of ``list[int | Exception]`` it is ``int``."""
    if hint in (None, Any, list) or isinstance(hint, str):
        return Any
    if typing.get_origin(hint) not in (list, Sequence):
        raise ConfigError(f"bulk task {name!r} must return a list with an outcome for each item, not {shown(hint)}")
    (outcome,) = typing.get_args(hint)
    if typing.get_origin(outcome) not in (types.UnionType, typing.Union):
        return outcome
    good = [one for one in typing.get_args(outcome) if not (isinstance(one, type) and issubclass(one, BaseException))]
    return functools.reduce(operator.or_, good) if good else Any
