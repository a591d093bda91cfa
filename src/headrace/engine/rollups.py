"""Rollups: what workers finished, added up; sent with their beats (``Workers.beat``)."""

from __future__ import annotations

from datetime import datetime
from typing import Protocol

from headrace.core.stats.rollup import Rollup

__all__ = ["MAX_ROLL", "Rollups"]

MAX_ROLL = 10_000
"""Maximum rows that are regrouped in one commit."""


class Rollups(Protocol):
    """Keeps sums by task, queue and time. Every count is in one row; of one moment there may be several rows."""

    async def read(
        self, since: datetime, until: datetime, task: str | None = None, queue: str | None = None
    ) -> list[Rollup]:
        """Return all rows for which ``core.stats.rollup.concerns`` is true, regrouped or as sent; as of one moment."""

    async def roll(self, now: datetime, limit: int = MAX_ROLL) -> int:
        """Regroup up to about ``limit`` rows by ``core.stats.rollup.regrouped``, in one commit; return how many there
        were.

        New sums are added to the rows of their minutes, old minutes become hours, hours days, and what is too old is
        dropped. Two sessions may do so at once: the sum of all rows stays the same.
        """
