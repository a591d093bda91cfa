"""The events of webhooks, by all their names."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.core.webhooks.target import CLAIMS, EVENTS, GROUPS, checked_events, messages_ahead
from headrace.errors import ConfigError


def test_events_are_taken_in_their_order_and_once() -> None:
    assert checked_events(["failed", "submitted", "failed"]) == ("submitted", "failed")
    assert checked_events(["job.completed"]) == ("completed",)


def test_the_words_of_the_page_stand_for_several() -> None:
    unasked = tuple(event for event in EVENTS if event not in CLAIMS)
    assert checked_events(["status_change", "progress", "completion"]) == unasked
    assert checked_events(["accepted", "status_change", "job.assigned", "progress"]) == EVENTS
    assert checked_events(["completion"]) == ("completed", "failed", "cancelled")
    assert "progress" not in GROUPS["status_change"]


@pytest.mark.parametrize("given", [[], "completed", ["finished"], [3], 3])
def test_others_are_refused(given: Any) -> None:
    with pytest.raises(ConfigError, match="events"):
        checked_events(given)


def test_messages_of_claims_are_foreseen_where_they_are_wanted() -> None:
    assert messages_ahead(GROUPS["status_change"], new=True) == 3
    assert messages_ahead(EVENTS, new=True) == 5
    assert messages_ahead(CLAIMS) == 2
