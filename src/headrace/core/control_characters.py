"""Escapes for terminals and logs: characters that would control them, or disguise text, are spelled out."""

from __future__ import annotations

import re

__all__ = ["indented", "printable", "printable_json"]

_CONTROLS = "\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff"
"""DEL and C1, which terminals obey like ESC; characters that turn the direction of text or end a line; lone surrogates,
which cannot be written. C0 is added, except where JSON has escaped it already."""

_LINE = re.compile(f"[\0-\x1f{_CONTROLS}]")
_LINES = re.compile(f"[\0-\x08\x0b-\x1f{_CONTROLS}]")
_JSON = re.compile(f"[{_CONTROLS}]")


def printable(text: str, *, lines: bool = False) -> str:
    """Return the text with control characters spelled out, such as ``\\x1b``; ``lines``: except newlines and tabs."""
    return (_LINES if lines else _LINE).sub(_spelled, text)


def indented(text: str) -> str:
    """Return the text with all lines but the first indented, so that none looks like the first of another entry."""
    return "\n    ".join(text.split("\n")) if "\n" in text else text


def printable_json(text: str) -> str:
    """Return JSON text of the same values, with every control character written as ``\\uXXXX``."""
    # JSON has none of them outside of strings, so each can be written as a string's escape.
    return _JSON.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _spelled(found: re.Match[str]) -> str:
    return ascii(found[0])[1:-1]
