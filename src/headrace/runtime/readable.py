"""Reading many jobs of which one may be stored in a way that cannot be read: the others are."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from uuid import UUID

from headrace.core.job import Job
from headrace.engine import Engine
from headrace.errors import Unreadable

__all__ = ["readable"]

_log = logging.getLogger("headrace.runtime")


async def readable(engine: Engine, ids: Sequence[UUID]) -> list[Job | None]:
    """The jobs as they stand, in this order; None where there is none, or where it cannot be read, which is logged."""
    try:
        return await engine.jobs.get(ids)
    except Unreadable as error:
        if len(ids) == 1:
            _log.warning("%s", error)
            return [None]
        half = len(ids) // 2
        return [*await readable(engine, ids[:half]), *await readable(engine, ids[half:])]
