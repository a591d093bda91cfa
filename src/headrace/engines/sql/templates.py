"""The SQL of the engines: a file for each statement, with words in braces for what is filled in. A word that is the
name of a file stands for its text, ``{file.sql word=value}`` for its text with that word filled in.

Statements that the engines share are in ``engines/sql/sql``, in PostgreSQL's dialect; the others are in the package of
each engine.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Any, Protocol

__all__ = ["Fetch", "filled", "text"]


class Fetch(Protocol):
    """Runs the statement of this name, in a commit of its own, and returns its rows."""

    async def __call__(self, name: str, *args: Any) -> list[Any]: ...


@cache
def text(package: str, name: str) -> str:
    """Return the text of a statement's file, of the engine or else the shared one, with the files that it includes."""
    own, shared = (resources.files(one).joinpath("sql", f"{name}.sql") for one in (package, __package__))
    found = (own if own.is_file() else shared).read_text(encoding="utf-8")

    def included(part: re.Match[str]) -> str:
        return filled(text(package, part[1]).strip(), {part[2]: part[3]} if part[2] else {})

    return re.sub(r"\{(\w+)\.sql(?: (\w+)=([^}]*))?\}", included, found)


def filled(text: str, words: Mapping[str, str]) -> str:
    """Return the text with each ``{word}`` replaced."""
    for word, value in words.items():
        text = text.replace(f"{{{word}}}", value)
    return text
