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


_SHAPE = "a middleware is `async def name(ctx: Context, call_next) -> Any`"


def check_middleware(fn: Any, shape: str = _SHAPE) -> Any:
    """Refuse what could not be called around something, with that and what goes on; ``shape`` says what is needed.

    :raises ConfigError:
    """
    is_async = inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(getattr(fn, "__call__", None))  # noqa: B004
    if callable(fn) and is_async:
        try:
            inspect.signature(fn).bind(None, None)
        except TypeError:
            pass
        else:
            return fn
    raise ConfigError(f"{shape}, not {fn!r}")
