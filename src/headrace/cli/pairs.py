"""Arguments of a task as typed in a terminal: ``key=value`` pairs and ``--payload``."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

import click

__all__ = ["pairs", "payload", "value"]


def value(text: str) -> Any:
    """JSON if it parses, else the text itself."""
    try:
        return json.loads(text, parse_constant=_no_constant)
    except ValueError:
        return text


def pairs(words: Sequence[str]) -> dict[str, Any]:
    """``key=value`` words as a dictionary."""
    found: dict[str, Any] = {}
    for word in words:
        key, equals, text = word.partition("=")
        if not equals or not key:
            raise click.UsageError(f"{word!r} is not key=value")
        if key in found:
            raise click.UsageError(f"{key} is given twice")
        found[key] = value(text)
    return found


def payload(source: str | None, words: Sequence[str]) -> dict[str, Any]:
    """The whole payload: ``source`` is JSON, @file or - for stdin; pairs are laid over it."""
    return (_whole(source) if source is not None else {}) | pairs(words)


def _whole(source: str) -> dict[str, Any]:
    text, name = _read(source)
    try:
        found = json.loads(text, parse_constant=_no_constant)
    except ValueError as error:
        raise click.UsageError(f"{name} is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise click.UsageError(f"{name} must be a JSON object keyed by parameter name")
    return found


def _read(source: str) -> tuple[str, str]:
    try:
        if source == "-":
            return sys.stdin.read(), "stdin"
        if source.startswith("@"):
            return Path(source[1:]).read_text(encoding="utf-8"), source[1:]
    except (OSError, UnicodeDecodeError) as error:
        raise click.UsageError(f"cannot read {source.removeprefix('@')}: {error}") from None
    return source, "--payload"


def _no_constant(name: str) -> NoReturn:
    # Python's parser takes NaN and Infinity, which are no JSON: `x=NaN` is the text "NaN".
    raise ValueError(f"{name} is not JSON")
