"""Examining what users' code raises: anything, and its own words may raise, too."""

from __future__ import annotations

import asyncio

__all__ = ["is_passing", "message_of"]


def is_passing(error: BaseException) -> bool:
    """Whether this only passes through a handler: a cancellation, or the closing of the coroutine it runs in."""
    if not isinstance(error, GeneratorExit):
        return isinstance(error, asyncio.CancelledError)
    try:
        return asyncio.current_task() is None
    except RuntimeError:  # no loop runs: it has ended, and what was left on it is being closed
        return True


def message_of(error: BaseException) -> str:
    """The message of the error."""
    try:
        return str(error)
    except BaseException as unprintable:
        return f"<the error cannot be shown: {type(unprintable).__name__}>"
