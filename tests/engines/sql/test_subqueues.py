"""How often a session counts anew what a customer has."""

from __future__ import annotations

from headrace.engines.sql.subqueues import Recounts
from headrace.runtime.clock import SystemClock


class Hand(SystemClock):
    """A clock that is set by hand."""

    at = 0.0

    def monotonic(self) -> float:
        return self.at


def test_a_second_at_once_and_then_a_twentieth_of_the_time() -> None:
    clock = Hand()
    recounts = Recounts(clock)
    for _ in range(4):
        assert recounts.may("acme")
        with recounts.counting("acme"):
            clock.at += 0.3
    assert not recounts.may("acme")
    assert recounts.may("other"), "each customer for itself"
    assert recounts.may(None)
    clock.at += 3.0
    assert not recounts.may("acme")
    clock.at += 2.0
    assert recounts.may("acme")


def test_what_takes_no_time_is_always_done() -> None:
    recounts = Recounts(Hand())
    for number in range(5000):
        assert recounts.may(f"customer {number}")
        with recounts.counting(f"customer {number}"):
            pass


def test_many_customers_do_not_keep_a_session_busy_nor_the_operator_waiting() -> None:
    clock = Hand()
    recounts = Recounts(clock)
    for number in range(5):
        assert recounts.may(f"customer {number}")
        with recounts.counting(f"customer {number}"):
            clock.at += 1.5
    assert not recounts.may("another")
    assert recounts.may(None)
    clock.at += 10.0
    assert recounts.may("another")
