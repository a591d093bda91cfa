"""Text that a terminal or a log may be given: what would make it do something, or look like something else, is spelled
out, so that it can be read and does nothing."""

from __future__ import annotations

import re

__all__ = ["indented", "printable", "printable_json"]

_CONTROLS = "\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff"
"""DEL and C1, which terminals obey like ESC; what turns the direction of text, or ends a line of it; halves of
characters, which cannot be written. C0 stands beside it, but where JSON has spelled it out already."""

_LINE = re.compile(f"[\0-\x1f{_CONTROLS}]")
_LINES = re.compile(f"[\0-\x08\x0b-\x1f{_CONTROLS}]")
_JSON = re.compile(f"[{_CONTROLS}]")


def printable(text: str, *, lines: bool = False) -> str:
    """The text with every control character spelled out, such as ``\\x1b``; ``lines``: but for newlines and tabs."""
    return (_LINES if lines else _LINE).sub(_spelled, text)


def indented(text: str) -> str:
    """The text with every line but the first set in, so that none of them looks like the first of another."""
    return "\n    ".join(text.split("\n")) if "\n" in text else text


def printable_json(text: str) -> str:
    """JSON text, that stands for the same values, with every control character in it written as ``\\uXXXX``."""
    # Outside of texts JSON has none of them, so each can be written in the way of a text.
    return _JSON.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _spelled(found: re.Match[str]) -> str:
    return ascii(found[0])[1:-1]
