"""Durations as people write them."""

from __future__ import annotations

import re

from headrace.errors import LONGEST

__all__ = ["EXAMPLES", "UNITS", "duration"]

UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}

EXAMPLES = "90, 250ms, 60s, 15m, 1h30m or 1.5d"

_NUMBER = r"(?:\d+(?:\.\d*)?|\.\d+)"
_PLAIN = re.compile(rf"\s*({_NUMBER})\s*")
_PART = re.compile(rf"\s*({_NUMBER})\s*([a-z]+)\s*")


def duration(text: str) -> float:
    """Seconds: of a plain number, or of numbers with units, the greater ones first: ``90``, ``60s``, ``1h30m``.

    :raises ValueError: it is none
    """
    if plain := _PLAIN.fullmatch(text):
        return _checked(text, float(plain[1]))
    total, rest, last = 0.0, text.lower(), float("inf")
    while rest:
        part = _PART.match(rest)
        size = UNITS.get(part[2]) if part else None
        # Twice the same unit, or a smaller one first, is a slip rather than a sum.
        if part is None or size is None or size >= last:
            raise ValueError(f"{text!r} is not a duration: say {EXAMPLES}")
        total, rest, last = total + float(part[1]) * size, rest[part.end() :], size
    if last == float("inf"):
        raise ValueError(f"{text!r} is not a duration: say {EXAMPLES}")
    return _checked(text, total)


def _checked(text: str, seconds: float) -> float:
    if seconds > LONGEST:
        raise ValueError(f"{text!r} is longer than a century, which is the longest duration there is")
    return seconds
