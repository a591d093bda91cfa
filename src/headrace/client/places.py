"""Where queued jobs stand, for those who follow them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from headrace.core.job import Job
from headrace.core.news import Place

if TYPE_CHECKING:
    from headrace.client.session import Session

__all__ = ["places"]

COUNTED = 1000
"""How many jobs before one are counted: who stands further behind need not know exactly."""
AT_ONCE = 20
"""Jobs of a queue that are asked about at a time; the others are the next time."""


async def places(session: Session, jobs: Sequence[Job]) -> list[Place | None]:
    """Where these jobs of one queue stand."""
    now = session.host.clock.now()
    found = await asyncio.gather(*(session.engine.records.position(job, now, most=COUNTED) for job in jobs[:AT_ONCE]))
    return [Place(None if one.more else one.ahead + 1) for one in found]
