"""Priorities: a number from 0 to 100, and the bands by which people name it.

A name is accepted wherever a priority is given, and becomes its number there: stores and claims know numbers alone.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, get_args

from msgspec import Meta

from headrace.core.validation import plain
from headrace.errors import ConfigError, shown

__all__ = [
    "DEFAULT_PRIORITY",
    "MAX_PRIORITY",
    "PRIORITIES",
    "GivenPriority",
    "PriorityBand",
    "band_of",
    "checked_priority",
    "named_priority",
]

PriorityBand = Literal["system", "high", "normal", "low"]
"""The bands, highest first."""
MAX_PRIORITY = 100
GivenPriority = Annotated[int, Meta(ge=0, le=MAX_PRIORITY)] | PriorityBand
"""A priority as documents give it."""

PRIORITIES: dict[PriorityBand, int] = {"system": 95, "high": 80, "normal": 50, "low": 15}
"""The number that each name stands for."""
DEFAULT_PRIORITY = PRIORITIES["normal"]
_LOWEST: dict[PriorityBand, int] = {"system": 90, "high": 70, "normal": 30, "low": 0}
"""The lowest priority of each band."""


def band_of(priority: int) -> PriorityBand:
    """Return the band that a priority is in."""
    return next(band for band, lowest in _LOWEST.items() if priority >= lowest)


def named_priority(value: GivenPriority) -> int:
    """Return the number of a priority that was checked."""
    return value if isinstance(value, int) else PRIORITIES[value]


def checked_priority(value: Any, what: str) -> int:
    """Return the number of a priority; :raises ConfigError: it is none, naming ``what``"""
    if isinstance(value, str):
        word = plain(value)
        number = next((number for band, number in PRIORITIES.items() if band == word), None)
    else:
        number = int(value) if isinstance(value, int) and not isinstance(value, bool) else None
    if number is None or not 0 <= number <= MAX_PRIORITY:
        names = ", ".join(get_args(PriorityBand))
        raise ConfigError(
            f"{what} must be a whole number from 0 to {MAX_PRIORITY}, or one of {names}; not {shown(value)}"
        )
    return number
