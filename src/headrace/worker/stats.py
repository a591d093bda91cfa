"""How a worker is, as a value."""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

import msgspec

from headrace.core.record import Record
from headrace.engine import Beat
from headrace.worker.slots import Slots

__all__ = ["WorkerStats"]


class WorkerStats(msgspec.Struct, Record, frozen=True, kw_only=True):
    """How a worker is."""

    state: str
    busy: int
    """Handlers at work; those that have yielded their slots are not."""
    buffered: int
    done: int
    """Attempts that completed or were snoozed."""
    failed: int
    """Attempts that failed or timed out."""
    released: int
    """Attempts that were handed back, or stopped by a cancel."""
    stale: int
    """Attempts whose end had no say any more: the job had another owner."""
    stuck_threads: int
    silence: float
    """Seconds since the store last heard of it."""

    @classmethod
    def of(cls, state: str, slots: Slots, silence: float) -> WorkerStats:
        """The stats of a worker with these slots, as they are right now."""
        return cls(
            state=state,
            busy=max(0, len(slots.runs) - slots.yielded.count),
            buffered=slots.waiting,
            done=slots.tally.done,
            failed=slots.tally.failed,
            released=slots.tally.released,
            stale=slots.tally.stale,
            stuck_threads=len(slots.stuck),
            silence=silence,
        )

    def to_beat(self, held: Iterable[UUID], blocked: bool, *, clock_apart: float = 0.0) -> Beat:
        """The part of the worker's state that its beats send to the store."""
        return Beat(
            held=tuple(held),
            state="blocked" if blocked else self.state,
            busy=self.busy,
            buffered=self.buffered,
            stuck_threads=self.stuck_threads,
            done=self.done + self.failed,
            clock_apart=clock_apart,
        )
