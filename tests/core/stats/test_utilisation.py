"""How busy the slots of a worker are, against a plain sum."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.stats.utilisation import WINDOW_SECONDS, Meter, Utilisation


def test_before_any_time_has_passed_nothing_is_known() -> None:
    assert Meter(5.0).measured(5.0) == Utilisation()


def test_busy_seconds_are_counted_between_notes() -> None:
    meter = Meter(100.0)
    meter.note(1, 4, 110.0)
    meter.note(4, 4, 120.0)
    meter.note(0, 4, 130.0)
    assert meter.measured(140.0).busy_share_ever == pytest.approx((10 * 0.25 + 10) / 40)


def test_of_late_forgets_what_was_before() -> None:
    meter = Meter(0.0)
    meter.note(1, 1, 0.0)
    for at in range(10, 1000, 10):
        meter.note(1, 1, float(at))
    meter.note(0, 1, 1000.0)
    for at in range(1010, 1000 + int(WINDOW_SECONDS) + 20, 10):
        meter.note(0, 1, float(at))
    measured = meter.measured(1000.0 + WINDOW_SECONDS + 10)
    assert measured.busy_share == 0
    assert measured.busy_share_ever == pytest.approx(1000 / (1000 + WINDOW_SECONDS + 10), abs=1e-3)


def test_what_is_known_beside_is_told() -> None:
    assert Meter(0.0).measured(1.0, failed=3, memory=10) == Utilisation(
        busy_share=0.0, busy_share_ever=0.0, failed=3, memory=10
    )


def test_the_seconds_of_slots_are_taken_once() -> None:
    meter = Meter(0.0)
    assert meter.taken(10.0) == (0.0, 0.0)  # nothing is known of its slots
    meter.note(1, 4, 10.0)
    meter.note(4, 4, 20.0)
    assert meter.taken(30.0) == pytest.approx((80.0, 50.0))
    assert meter.taken(30.0) == (0.0, 0.0)
    meter.note(9, 2, 30.0)
    assert meter.taken(31.0) == pytest.approx((2.0, 2.0))


@given(
    st.lists(st.tuples(st.floats(0, 50), st.integers(0, 12), st.integers(0, 8)), max_size=60),
    st.floats(0.001, 100),
)
def test_it_is_the_plain_sum(notes: list[tuple[float, int, int]], rest: float) -> None:
    meter, at, share, used = Meter(0.0), 0.0, 0.0, 0.0
    for after, busy, slots in notes:
        used += share * after
        at += after
        share = min(1.0, busy / slots) if slots else 0.0
        meter.note(busy, slots, at)
    used, at = used + share * rest, at + rest
    measured = meter.measured(at)
    assert measured.busy_share_ever == pytest.approx(used / at, abs=1e-3)
    assert measured.busy_share is not None
    assert 0 <= measured.busy_share <= 1
