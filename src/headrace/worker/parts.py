"""The parts of a worker that run beside each other: what it means when one of them ends."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable

from headrace.errors import StoreLost

__all__ = ["why_ended"]

_log = logging.getLogger("headrace.worker")


def why_ended(parts: Iterable[asyncio.Task[None]]) -> BaseException:
    """The reason why a part ended by itself, which ends the worker.

    That the store is lost is logged here, before running jobs are awaited, and once, however many parts notice it.
    """
    for part in parts:
        if part.done() and not part.cancelled() and (error := part.exception()) is not None:
            if isinstance(error, StoreLost):
                _log.error("the worker claims no more and stops: %s", error)
            return error
    return RuntimeError("a part of the worker ended by itself")
