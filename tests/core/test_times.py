"""Durations as people write them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.times import UNITS, duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("60", 60),
        (" 1.5 ", 1.5),
        (".5", 0.5),
        ("60s", 60),
        ("5m", 300),
        ("5min", 300),
        ("1h30m", 5400),
        ("1 h 30 min 5 s", 5405),
        ("1d12h", 129600),
        ("2W", 1209600),
        ("1s500ms", 1.5),
        ("0", 0),
    ],
)
def test_numbers_and_units(text: str, seconds: float) -> None:
    assert duration(text) == seconds


@pytest.mark.parametrize(
    "text", ["", " ", "-1", "+1", "s", "1x", "30m1h", "5m5min", "1h30", "1,5h", "1e3", "inf", "1h-5m"]
)
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration: say 90"):
        duration(text)


@given(st.integers(0, 5_000), st.sampled_from(sorted(UNITS)))
def test_a_number_with_a_unit(number: int, unit: str) -> None:
    assert duration(f"{number}{unit}") == number * UNITS[unit]


@pytest.mark.parametrize("text", ["5300w", "99999999999", "1" + "0" * 400])
def test_nothing_is_longer_than_a_century(text: str) -> None:
    with pytest.raises(ValueError, match="longer than a century"):
        duration(text)
