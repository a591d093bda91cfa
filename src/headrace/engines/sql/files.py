"""The SQL of an engine's package: a file for each statement, with words in braces for what is filled in."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import resources

__all__ = ["filled", "text"]


@cache
def text(package: str, name: str) -> str:
    """The text of one file."""
    return resources.files(package).joinpath("sql", f"{name}.sql").read_text(encoding="utf-8")


def filled(text: str, words: Mapping[str, str]) -> str:
    """The text with each ``{word}`` replaced."""
    for word, value in words.items():
        text = text.replace(f"{{{word}}}", value)
    return text
