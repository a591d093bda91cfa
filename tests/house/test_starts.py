"""What counts the starts of a window: a start near an edge is given the benefit of the doubt, a burst is found."""

from __future__ import annotations

import itertools
import random
from collections import Counter

import pytest

from tests.support.starts import EDGE, most_in_windows, most_over_bucket

PER = 10.0
TEN_DAYS = 86400 * PER
"""The begin of a fixed window, counted from 1970."""


def fixed(*groups: tuple[int, float], since: float = -TEN_DAYS, edge: float = EDGE) -> int:
    """The most in a fixed window, of so many starts at each of these moments."""
    starts = [TEN_DAYS + at for count, at in groups for _ in range(count)]
    return most_in_windows("fixed", starts, PER, edge, TEN_DAYS + since)


def test_a_burst_right_after_an_edge_is_found() -> None:
    burst = ((50, 0.02), (50, 5.0))
    assert fixed(*burst, since=0.01) == 100, "nobody could begin in the window before"
    assert fixed((50, -5.0), *burst) == 75, "the window before is full, and takes its share"
    assert fixed((40, -5.0), (10, -0.02), *burst) == 75


def test_a_burst_right_before_an_edge_is_found() -> None:
    assert fixed((50, 5.0), (50, 9.98), (50, 15.0)) == 75
    assert fixed((50, 5.0), (50, 9.98), (25, 15.0)) == 63


def test_a_start_that_is_late_of_the_previous_window_is_forgiven() -> None:
    assert fixed((49, 5.0), (1, 10.03), (50, 15.0)) == 50
    assert fixed((49, 5.0), (1, 10.03), (50, 15.0), edge=0.0) == 51
    assert fixed((49, 5.0), (1, 10.06), (50, 15.0)) == 51, "too late"
    assert fixed((50, 5.0), (1, 10.03), (50, 15.0)) == 51, "the previous window is full"


def test_a_start_that_is_early_is_forgiven() -> None:
    assert fixed((50, 5.0), (1, 9.97), (49, 15.0)) == 50
    assert fixed((50, 5.0), (1, 9.97), (50, 15.0)) == 51


def test_what_a_window_cannot_take_is_passed_on_from_edge_to_edge() -> None:
    shifted = ((50, 5.0), (1, 9.99), (49, 15.0), (1, 20.01), (49, 25.0), (1, 30.0))
    assert fixed(*shifted) == 50
    assert fixed(*shifted, (50, 35.0)) == 51


def test_there_may_be_no_starts() -> None:
    assert (fixed(), most_in_windows("sliding", [], PER), most_over_bucket([], 50, PER)) == (0, 0, 0.0)


def lowest(starts: list[float]) -> int:
    """The lowest maximum, by trying all windows for all starts that are near an edge."""
    choices = [sorted({int((start - EDGE) // PER), int((start + EDGE) // PER)}) for start in starts]
    return min(max(Counter(chosen).values()) for chosen in itertools.product(*choices))


@pytest.mark.parametrize("seed", range(20))
def test_no_other_choice_of_windows_has_a_lower_maximum(seed: int) -> None:
    dice = random.Random(seed)
    near = [dice.choice((0, 10, 20, 30)) + dice.choice((-0.02, 0.0, 0.03)) for _ in range(8)]
    starts = [TEN_DAYS + at for at in (*near, *(dice.uniform(-10, 40) for _ in range(8)))]
    assert most_in_windows("fixed", starts, PER) == lowest(starts)


def test_a_sliding_window_begins_with_any_start() -> None:
    starts = [*[9.0] * 30, *[11.0] * 30, *[18.98] * 5]
    assert most_in_windows("sliding", starts, PER) == 60, "50 ms at its end do not count"
    assert most_in_windows("sliding", starts, PER, 0.0) == 65
    assert most_in_windows("fixed", starts, PER) == 35
