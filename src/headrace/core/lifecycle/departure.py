"""Departures: how a worker came to be gone, and how long the store keeps the record of it."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from uuid import UUID

import msgspec

from headrace.core.defaults import Retention
from headrace.core.status import Status
from headrace.core.times import length

__all__ = ["MAX_LOST_IDS", "Departure", "How", "kept_since"]

MAX_LOST_IDS = 100
"""How many of the jobs that a worker held at its end are on record by their ids; the others are counted."""


class How(StrEnum):
    """How it was known that a worker is gone."""

    STOPPED = "stopped"
    """It left in good order, or its hub said so for it."""
    REPLACED = "replaced"
    """A worker of its name registered anew over its connection."""
    ENDED = "ended"
    """The kernel or the server reported that its process had ended."""
    SILENT = "silent"
    """It sent no beat for a lease."""
    CUT_OFF = "cut_off"
    """Its connection to its hub closed without a goodbye, and it did not come back in time."""


class Departure(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The end of a worker: when, how it was known, and by whom."""

    at: datetime
    how: How = How.STOPPED
    by: UUID | None = None
    """The worker or the program that buried it; None: no other did."""
    silent: float | None = None
    """Seconds without a beat, where it was buried for that."""

    @property
    def told(self) -> str:
        """Return how it was known, in words."""
        return {
            How.STOPPED: "stopped in good order",
            How.REPLACED: "a worker of the same name took its place",
            How.ENDED: "its process has ended",
            How.SILENT: f"silent for {length(self.silent or 0)}",
            How.CUT_OFF: f"cut off from its hub, silent for {length(self.silent or 0)}",
        }[self.how]


def kept_since(retention: Retention, now: datetime) -> datetime:
    """Return the moment at or before which a worker must have gone for its record to be pruned: as failed jobs are."""
    return now - retention.of(Status.FAILED)
