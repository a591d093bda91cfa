"""The numbers of the lifecycle, as one value that is passed to every decision."""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec

from headrace.core import validation
from headrace.core.status import ENDED, Status

__all__ = ["Retention", "Rules"]


class Retention(msgspec.Struct, frozen=True, kw_only=True):
    """How long ended jobs are kept; live jobs are kept for ever."""

    completed: float = 7 * 86400.0
    failed: float = 30 * 86400.0
    cancelled: float = 30 * 86400.0

    def of(self, status: Status) -> timedelta:
        """The retention of one terminal status."""
        return timedelta(seconds=getattr(self, status.value))

    def cutoffs(self, now: datetime) -> dict[Status, datetime]:
        """For each terminal status, the moment at or before which a job must have ended to be pruned."""
        return {status: now - self.of(status) for status in sorted(ENDED)}


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds, counts and bytes; the defaults are those of the lifecycle page."""

    beat: float = 10.0
    lease: float = 30.0
    accept: float = 30.0
    start: float = 30.0
    cancel_grace: float = 10.0
    timeout_slack: float = 10.0
    fragile_after: int = 2
    undeliverable_after: int = 10
    batch_silence: float = 3600.0
    """How long the submitter of an open batch may add nothing before the batch is sealed without it."""
    error_limit: int = validation.ERROR
    retention: Retention = Retention()

    @property
    def silence(self) -> float:
        """How long a worker without an acknowledged beat may go on starting jobs."""
        return self.lease / 2

    @property
    def look_gap(self) -> float:
        """The longest gap between two looks at a worker that still counts as watching it."""
        return self.lease / 3
