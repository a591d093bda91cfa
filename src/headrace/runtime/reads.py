"""Reading many jobs, even if one of them is stored in a way that cannot be read."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from uuid import UUID

from headrace.core.job import Job
from headrace.engine import Engine
from headrace.errors import Unreadable

__all__ = ["readable"]

_log = logging.getLogger("headrace.runtime")


async def readable(
    engine: Engine, ids: Sequence[UUID], faults: dict[UUID, Unreadable] | None = None
) -> list[Job | None]:
    """The jobs as they are stored, in this order; None where there is none, or where it cannot be read, which is
    logged, or noted among the ``faults``."""
    try:
        return await engine.jobs.get(ids)
    except Unreadable as error:
        if len(ids) > 1:
            half = len(ids) // 2
            return [*await readable(engine, ids[:half], faults), *await readable(engine, ids[half:], faults)]
        if faults is None:
            _log.warning("%s", error)
        else:
            faults[ids[0]] = error
        return [None]
