"""Steps of the store's time: an attempt that began before one is judged without it.

A step is a jump of the wall clock against monotonic time: the clock was set, or the machine slept. Deadlines of held
jobs are moments of the wall clock, so a step forward would end attempts that had time left.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

import msgspec

__all__ = ["NOTICE_SECONDS", "RECORD_SECONDS", "SETTING", "ClockStep", "Steps", "extended", "on_record"]

SETTING = "clock:steps"
"""The setting under which they are on record."""
RECORD_SECONDS = 30 * 86400.0
"""Seconds for which a step is kept."""
NOTICE_SECONDS = 60.0
"""Seconds within which every session has noticed a step: each measures with a beat, or with a write every 30 s."""
_ALIKE_SECONDS = 1.0


class ClockStep(msgspec.Struct, frozen=True):
    """A jump of the store's time."""

    at: datetime
    """When it was noticed, by the time after it."""
    by: float
    """Seconds; negative: back."""


class Steps(msgspec.Struct, frozen=True):
    """The steps on record, oldest first: a setting."""

    steps: tuple[ClockStep, ...] = ()

    def to_text(self) -> str:
        """Return them as JSON."""
        return msgspec.json.encode(self).decode()

    @classmethod
    def from_text(cls, text: str) -> Steps:
        """Read them from JSON."""
        return msgspec.json.decode(text, type=cls)


def extended(deadline: datetime, since: datetime | None, steps: Iterable[ClockStep]) -> datetime:
    """Return the deadline that was counted from this moment, postponed by all steps forward since.

    A moment counts as before a step if the clock without the step could have shown it until every session had noticed.
    So after a short step (up to a minute) some deadlines are postponed needlessly, and the sweeper comes later. Steps
    back postpone nothing: they make a deadline come later by themselves.
    """
    if since is None:
        return deadline
    late = sum(
        step.by for step in steps if step.by > 0 and since <= step.at + timedelta(seconds=NOTICE_SECONDS - step.by)
    )
    return deadline + timedelta(seconds=late)


def on_record(known: Sequence[ClockStep], seen: Sequence[ClockStep], now: datetime) -> tuple[ClockStep, ...]:
    """Return the record with all steps that one clock has seen: each once, and none that is too old to matter.

    Several clocks see the same step, each at a moment of its own. One on record counts for one of those seen.
    """
    oldest, left, added = now - timedelta(seconds=RECORD_SECONDS), list(known), list[ClockStep]()
    for step in seen:
        same = next((one for one in left if _same(one, step)), None)
        if same is None:
            added.append(step)
        else:
            left.remove(same)
    kept = (step for step in (*known, *added) if step.at >= oldest)
    return tuple(sorted(kept, key=lambda step: step.at))


def _same(one: ClockStep, other: ClockStep) -> bool:
    apart = abs((one.at - other.at).total_seconds())
    return abs(one.by - other.by) <= _ALIKE_SECONDS and apart <= NOTICE_SECONDS
