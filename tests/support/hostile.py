"""What somebody may write who means harm, and how it is told that none of it came out as it was."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

__all__ = ["DEEP", "HUGE", "NUMBERS", "SPELLED", "STRUCTURES", "TEXTS", "WICKED", "raw_in"]

WICKED = (
    "a\x1b[31m\x1b]52;c;cm0=\x07\x9b2J\x9d0;b\x9c\x7f\u202ec\u202a\u202b\u202c\u202d\u2066\u2067\u2068\u2069"
    "\u200e\u200f\u061c\u2028\u2029\x85d\r\n2026-01-01 00:00:00 error: forged\tz"
)
"""ESC, OSC 52, C1, DEL, everything that turns the direction of text, and what looks like a line of a log."""
SPELLED = r"a\x1b[31m\x1b]52;c;cm0=\x07\x9b2J\x9d0;b\x9c\x7f\u202ec"
"""How it begins where it is shown."""

HUGE = int("9" * 400)
"""More than any float holds."""


def _deep(levels: int) -> Any:
    made: Any = 1
    for _ in range(levels):
        made = {"a": [made]}
    return made


DEEP = _deep(40)
"""Deeper than anybody looks, and less than JSON may be; ``STRUCTURES`` has what is deeper than that, too."""

TEXTS = (WICKED, "x" * 100_000, "<script>alert(1)</script>{{7*7}}%s{0}", "[/bold] [red]", "\0", "\ud800", " ", "'")
NUMBERS = (HUGE, -HUGE, 2**63, 2**64, -(2**63) - 1, 2**53 + 1, 1e308, -1e308, -1, float("nan"), float("inf"))
STRUCTURES: tuple[Any, ...] = (
    [WICKED],
    {WICKED: WICKED},
    {"gpu_memory_gb": HUGE},
    {"a": {"min": -HUGE, "max": 1e308}},
    {"a": [1e308, 2**53, {"not": WICKED}]},
    DEEP,
    _deep(300),
    [{}],
)

_RAW = re.compile("[\0-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def raw_in(text: str) -> Iterator[str]:
    """Where the text holds what a terminal would obey, or what turns the text around, with what is about it."""
    for found in _RAW.finditer(text):
        yield f"{found[0]!r} in {text[max(0, found.start() - 60) : found.end() + 60]!r}"
