"""What the decorators of routes return, for type checkers: a task with the parameters that a submit takes.

The Context and a first parameter that is ``MadeInWorker`` are no part of a submit. A single parameter that is marked
``Annotated[..., InWorker(...)]`` is one for type checkers: by PEP 593 they do not see marks, and no type removes one
parameter among others.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar, overload

from headrace.client.task import AsyncTask, PlainTask, StreamTask
from headrace.endpoints.dependencies import MadeInWorker
from headrace.worker.execution.context import Context

__all__ = ["RouteDecorator"]

P = ParamSpec("P")
R = TypeVar("R")
M = TypeVar("M", bound=MadeInWorker)


class _Probe:
    """A type that no parameter has: what accepts it accepts anything, and so is neither a Context nor made."""


class RouteDecorator(Protocol):
    """Makes a task of a handler."""

    # The first that fits is meant, as with ``client.task_registry.Decorator``.
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
        self, fn: Callable[Concatenate[Context, _Probe, ...], Coroutine[Any, Any, R]], /
    ) -> AsyncTask[..., R]: ...
    @overload
    def __call__(  # type: ignore[overload-overlap]
        self, fn: Callable[Concatenate[Context, M, P], Coroutine[Any, Any, R]], /
    ) -> AsyncTask[P, R]: ...
    @overload
    def __call__(  # type: ignore[overload-overlap]
        self, fn: Callable[Concatenate[M, P], Coroutine[Any, Any, R]], /
    ) -> AsyncTask[P, R]: ...
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
    def __call__(self, fn: Callable[Concatenate[Context, _Probe, ...], R], /) -> PlainTask[..., R]: ...
    @overload
    def __call__(self, fn: Callable[Concatenate[Context, M, P], R], /) -> PlainTask[P, R]: ...
    @overload
    def __call__(self, fn: Callable[Concatenate[M, P], R], /) -> PlainTask[P, R]: ...
    @overload
    def __call__(self, fn: Callable[Concatenate[Context, P], R], /) -> PlainTask[P, R]: ...
    @overload
    def __call__(self, fn: Callable[P, R], /) -> PlainTask[P, R]: ...
