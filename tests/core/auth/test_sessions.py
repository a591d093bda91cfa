"""Sessions at the dashboard: what is kept of them, and until when they count."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from headrace.core.auth.sessions import Sessions, form_secret, prefix_of, session_digest, session_text
from headrace.core.defaults import DASHBOARD_SESSION_LIFETIME, MAX_DASHBOARD_SESSIONS

NOW = datetime(2026, 5, 4, 13, 37, tzinfo=UTC)
TEXT = session_text("hr_abcdefgh", b"x" * 32)


def test_a_session_counts_until_its_time_is_over() -> None:
    found = Sessions("digest").begun("digest", TEXT, NOW)
    assert found.has("digest", TEXT, NOW) == NOW + DASHBOARD_SESSION_LIFETIME
    assert found.has("digest", TEXT, NOW + DASHBOARD_SESSION_LIFETIME - timedelta(seconds=1))
    assert found.has("digest", TEXT, NOW - timedelta(seconds=5)), "the clocks of hubs differ a little"
    assert found.has("digest", TEXT, NOW + DASHBOARD_SESSION_LIFETIME) is None
    assert found.has("digest", TEXT, NOW - timedelta(days=1)) is None, "its clock was wrong when it was begun"


def test_only_the_text_itself_counts_and_only_with_its_key() -> None:
    found = Sessions("digest").begun("digest", TEXT, NOW)
    for wrong in (TEXT + "x", TEXT[:-1], session_digest(TEXT), form_secret(TEXT), ""):
        assert found.has("digest", wrong, NOW) is None
    assert found.has("another", TEXT, NOW) is None
    assert TEXT not in str(found)


def test_it_can_be_ended_alone() -> None:
    other = session_text("hr_abcdefgh", b"y" * 32)
    found = Sessions("digest").begun("digest", TEXT, NOW).begun("digest", other, NOW).ended(TEXT)
    assert found.has("digest", TEXT, NOW) is None
    assert found.has("digest", other, NOW)


def test_another_key_has_none_of_the_sessions_before() -> None:
    other = session_text("hr_abcdefgh", b"y" * 32)
    found = Sessions("digest").begun("digest", TEXT, NOW).begun("another", other, NOW)
    assert found.has("another", other, NOW)
    assert found.has("another", TEXT, NOW) is None


def test_there_is_an_end_to_how_many_are_kept() -> None:
    found = Sessions("digest")
    texts = [session_text("hr_abcdefgh", bytes([n]) * 32) for n in range(MAX_DASHBOARD_SESSIONS + 5)]
    for text in texts:
        found = found.begun("digest", text, NOW)
    assert [found.has("digest", text, NOW) is not None for text in texts] == [False] * 5 + [
        True
    ] * MAX_DASHBOARD_SESSIONS
    assert len(found.begun("digest", TEXT, NOW + DASHBOARD_SESSION_LIFETIME).sessions) == 1, (
        "those that are over are gone"
    )


@pytest.mark.parametrize("text", ["", ".", "hr_abcdefgh", "hr_abcdefgh.", "hr_abc.x", "hr_abcdefgh.ä", "x" * 500])
def test_what_is_no_session_has_no_key(text: str) -> None:
    assert prefix_of(text) is None


def test_a_session_says_with_which_key_it_was_begun() -> None:
    assert prefix_of(TEXT) == "hr_abcdefgh"
