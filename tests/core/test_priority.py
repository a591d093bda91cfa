"""Priorities by name."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, get_args

import pytest

from headrace.core.priority import DEFAULT_PRIORITY, PRIORITIES, PriorityBand, band_of, checked_priority
from headrace.errors import ConfigError


class Word(StrEnum):
    HIGH = "high"


def test_the_names_of_the_bands() -> None:
    assert PRIORITIES == {"system": 95, "high": 80, "normal": 50, "low": 15}
    assert tuple(PRIORITIES) == get_args(PriorityBand)
    assert DEFAULT_PRIORITY == 50
    assert all(band_of(number) == band for band, number in PRIORITIES.items())
    edges = {0: "low", 29: "low", 30: "normal", 69: "normal", 70: "high", 89: "high", 90: "system", 100: "system"}
    assert {number: band_of(number) for number in edges} == edges


@pytest.mark.parametrize(("given", "number"), [("high", 80), (Word.HIGH, 80), (0, 0), (100, 100), ("low", 15)])
def test_a_number_or_a_name(given: Any, number: int) -> None:
    found = checked_priority(given, "priority")
    assert (found, type(found)) == (number, int)


@pytest.mark.parametrize("given", ["urgent", "HIGH", "50", "", True, None, -1, 101, 5.0, []])
def test_nothing_else(given: Any) -> None:
    with pytest.raises(ConfigError, match=r"priority must be a whole number from 0 to 100, or one of system, high"):
        checked_priority(given, "priority")
