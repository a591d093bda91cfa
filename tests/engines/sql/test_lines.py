"""How often a session counts anew what a customer has."""

from __future__ import annotations

from headrace.engines.sql.lines import Recounts


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_second_at_once_and_then_a_twentieth_of_the_time() -> None:
    clock = Clock()
    recounts = Recounts(clock)
    for _ in range(4):
        assert recounts.may("acme")
        with recounts.counting("acme"):
            clock.now += 0.3
    assert not recounts.may("acme")
    assert recounts.may("other"), "each customer for itself"
    assert recounts.may(None)
    clock.now += 3.0
    assert not recounts.may("acme")
    clock.now += 2.0
    assert recounts.may("acme")


def test_what_takes_no_time_is_always_done() -> None:
    recounts = Recounts(Clock())
    for number in range(5000):
        assert recounts.may(f"customer {number}")
        with recounts.counting(f"customer {number}"):
            pass
