"""How many wrong keys an address may try."""

from __future__ import annotations

import pytest

from headrace.hub.auth import login
from headrace.hub.auth.login import MAX_WRONG_KEYS, WRONG_KEY_SECONDS, LoginAttempts


def guessed(count: int, address: str | None = "192.0.2.1", at: float = 100.0) -> LoginAttempts:
    made = LoginAttempts()
    for _ in range(count):
        assert made.wait(address, at) == 0
        made.wrong(address, at)
    return made


def test_a_few_are_free_and_then_one_waits() -> None:
    made = guessed(MAX_WRONG_KEYS)
    assert made.wait("192.0.2.1", 100.0) == pytest.approx(WRONG_KEY_SECONDS)
    assert made.wait("192.0.2.1", 100.0 + WRONG_KEY_SECONDS / 2) == pytest.approx(WRONG_KEY_SECONDS / 2)
    assert made.wait("192.0.2.1", 100.0 + WRONG_KEY_SECONDS) == 0
    made.wrong("192.0.2.1", 100.0 + WRONG_KEY_SECONDS)
    assert made.wait("192.0.2.1", 100.0 + WRONG_KEY_SECONDS) == pytest.approx(WRONG_KEY_SECONDS)
    assert made.wait("192.0.2.1", 100.0 + 60 * WRONG_KEY_SECONDS) == 0, "all is forgotten"


def test_others_do_not_wait() -> None:
    made = guessed(MAX_WRONG_KEYS)
    assert made.wait("192.0.2.2", 100.0) == 0
    assert made.wait(None, 100.0) == 0


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("2001:db8:1:2::1", "2001:db8:1:2:ffff::9", True),
        ("2001:db8:1:2::1", "2001:db8:1:3::1", False),
        ("192.0.2.1", "::ffff:192.0.2.1", True),
        ("testclient", "testclient", True),
        (None, "", True),
    ],
)
def test_by_what_a_sender_is_known(one: str | None, other: str | None, same: bool) -> None:
    assert bool(guessed(MAX_WRONG_KEYS, one).wait(other, 100.0)) is same


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(login, "MAX_ADDRESSES", 10)
    made = guessed(MAX_WRONG_KEYS, "192.0.2.200")
    for number in range(50):
        made.wrong(f"198.51.100.{number}", 100.0)
        assert len(made._until) <= 10
    assert made.wait("192.0.2.200", 100.0) > 0, "who guessed most is remembered longest"
