"""Middleware: what is called around a run (see ``perform``), checked where it is given."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import Any

from headrace.errors import ConfigError
from headrace.worker.context import Context

__all__ = ["CallNext", "Middleware", "check_middleware"]

CallNext = Callable[[], Awaitable[Any]]
"""Goes on with the run: the next middleware, in the end the handler itself; gives its result."""

Middleware = Callable[[Context, CallNext], Awaitable[Any]]
"""Is called around a run, on the worker's loop; what it returns is the result."""


def check_middleware(fn: Any) -> Middleware:
    """Refuse what could not be called around a run; :raises ConfigError: saying what is needed"""
    is_async = inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(getattr(fn, "__call__", None))  # noqa: B004
    if callable(fn) and is_async:
        try:
            inspect.signature(fn).bind(None, None)
        except TypeError:
            pass
        else:
            good: Middleware = fn
            return good
    raise ConfigError(f"a middleware is `async def name(ctx: Context, call_next) -> Any`, not {fn!r}")
