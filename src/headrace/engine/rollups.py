"""Rollups: what workers finished, added up; handed in with their beats (``Workers.beat``)."""

from __future__ import annotations

from datetime import datetime
from typing import Protocol

from headrace.core.stats.rollup import Rollup

__all__ = ["MAX_ROLL", "Rollups"]

MAX_ROLL = 10_000
"""How many rows are regrouped in one commit at most."""


class Rollups(Protocol):
    """Keeps sums by task, queue and time. Every count is in one row; of one moment there may be several rows."""

    async def read(
        self, since: datetime, until: datetime, task: str | None = None, queue: str | None = None
    ) -> list[Rollup]:
        """All rows of which ``core.stats.rollup.concerns`` is true, regrouped or as they were handed in; as of one
        moment."""
        ...

    async def roll(self, now: datetime, limit: int = MAX_ROLL) -> int:
        """Regroup up to about ``limit`` rows as ``core.stats.rollup.regrouped`` says, in one commit; how many there
        were.

        What was handed in since is added to the rows of its minutes, minutes that are old become hours, hours days, and
        what is too old is dropped. Two that do so at once do no harm: the sum of all rows stays the same.
        """
        ...
