"""A clock that stands still until a test moves it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

__all__ = ["FakeClock"]


class FakeClock:
    """Time under a test's control; ``advance`` lets it pass, ``step`` sets the wall clock as an administrator would."""

    def __init__(self, now: datetime | None = None) -> None:
        start = datetime(2026, 1, 1, tzinfo=UTC) if now is None else now
        if start.tzinfo is None:
            raise ValueError("now must be an aware datetime, as in datetime(2026, 1, 1, tzinfo=UTC)")
        self._now = start.astimezone(UTC)
        self._monotonic = 1000.0

    def now(self) -> datetime:
        """The wall clock: aware, in UTC."""
        return self._now

    def monotonic(self) -> float:
        """Seconds that never step."""
        return self._monotonic

    def advance(self, seconds: float = 0.0, *, minutes: float = 0, hours: float = 0, days: float = 0) -> None:
        """Let time pass, on the wall and on the monotonic clock."""
        passed = seconds + 60.0 * minutes + 3600.0 * hours + 86400.0 * days
        if passed < 0:
            raise ValueError(f"time passes in one direction, not by {passed:g} s; step() sets the wall clock back")
        self._now += timedelta(seconds=passed)
        self._monotonic += passed  # not rounded to microseconds: a test may wait for exactly this moment

    def advance_to(self, moment: datetime) -> None:
        """Let time pass until the moment; a moment in the past changes nothing."""
        if moment > self._now:
            self.advance((moment - self._now).total_seconds())
            self._now = moment.astimezone(UTC)  # to the microsecond, however the seconds were rounded as a float

    def step(self, seconds: float) -> None:
        """Set the wall clock forward or (negative) back, without any time passing."""
        self._now += timedelta(seconds=seconds)
