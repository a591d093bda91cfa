"""Utilisation: how much of a worker is used, measured by the process that beats for it."""

from __future__ import annotations

from collections import deque
from datetime import datetime

import msgspec

__all__ = ["WINDOW_SECONDS", "Meter", "Utilisation"]

WINDOW_SECONDS = 300.0
"""Seconds that count as recent."""
_MARK_SECONDS = 10.0
"""Seconds between two remembered moments."""


class Utilisation(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How much of a worker is used; unknown values are None."""

    busy_share: float | None = None
    """The share of its slots that was busy, from 0 to 1, on average over the last ``WINDOW_SECONDS`` seconds."""
    busy_share_ever: float | None = None
    """The same since its start."""
    failed: int = 0
    """Of the attempts that it has finished since its start, those that failed."""
    claimed_at: datetime | None = None
    """When it was last given a job."""
    polled_at: datetime | None = None
    """When it last requested jobs, whether there were any or not; with all slots busy it does not."""
    memory: int | None = None
    """Bytes that its process and its child processes have in RAM; where the system does not say, the peak of the
    process."""


class Meter:
    """Measures how busy the slots of one worker are.

    Its user notes how many are busy whenever that changes, or from time to time: between two notes the number of the
    first one counts. All moments are monotonic seconds.
    """

    def __init__(self, at: float) -> None:
        self._from = self._at = at
        self._share, self._slots = 0.0, 0
        """The share of the slots that is busy since the last note, and how many slots there are."""
        self._used = 0.0
        """Seconds for which all slots together would have been busy."""
        self._marks = deque([(at, 0.0)])
        self._offered = self._worked = 0.0
        """Seconds of all slots together, and of those at work, that were not taken yet."""

    def note(self, busy: int, slots: int, at: float) -> None:
        """Note that so many of the slots are busy from now on."""
        self._count(at)
        self._share, self._slots = (min(1.0, busy / slots), slots) if slots > 0 else (0.0, 0)

    def taken(self, at: float) -> tuple[float, float]:
        """Return the seconds of all slots together since this was last called, and of those in which they worked."""
        self._count(at)
        taken, self._offered, self._worked = (self._offered, self._worked), 0.0, 0.0
        return taken

    def measured(
        self,
        at: float,
        *,
        failed: int = 0,
        claimed_at: datetime | None = None,
        polled_at: datetime | None = None,
        memory: int | None = None,
    ) -> Utilisation:
        """Return the use of the worker as a beat reports it, with the other known values."""
        self._count(at)
        since, used = self._marks[0]
        return Utilisation(
            busy_share=_share(self._used - used, at - since),
            busy_share_ever=_share(self._used, at - self._from),
            failed=failed,
            claimed_at=claimed_at,
            polled_at=polled_at,
            memory=memory,
        )

    def _count(self, at: float) -> None:
        if at <= self._at:  # a late note changes nothing that was counted
            return
        self._used += self._share * (at - self._at)
        self._offered += self._slots * (at - self._at)
        self._worked += self._share * self._slots * (at - self._at)
        self._at = at
        if at - self._marks[-1][0] >= _MARK_SECONDS:
            self._marks.append((at, self._used))
        while len(self._marks) > 1 and self._marks[1][0] <= at - WINDOW_SECONDS:
            self._marks.popleft()


def _share(used: float, seconds: float) -> float | None:
    return round(min(1.0, used / seconds), 4) if seconds > 0 else None
