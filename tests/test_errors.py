"""What handlers raise to steer their jobs is checked where it is made."""

from __future__ import annotations

from datetime import timedelta

import pytest

from headrace.errors import RetryLater, Snooze


@pytest.mark.parametrize("kind", [Snooze, RetryLater])
def test_a_delay_is_seconds_or_a_span(kind: type[Snooze | RetryLater]) -> None:
    assert kind(30).delay == 30.0
    assert kind(timedelta(minutes=1)).delay == 60.0


@pytest.mark.parametrize("kind", [Snooze, RetryLater])
@pytest.mark.parametrize("delay", [-1, float("nan"), float("inf"), 1e12, timedelta.max])
def test_a_delay_beyond_the_calendar_is_refused(kind: type[Snooze | RetryLater], delay: float | timedelta) -> None:
    with pytest.raises(ValueError, match="delay"):
        kind(delay)
