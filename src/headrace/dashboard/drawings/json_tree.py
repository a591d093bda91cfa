"""JSON for people: a tree that folds, made of plain HTML, so that it folds without a script, too."""

from __future__ import annotations

from typing import Any

import msgspec
from markupsafe import Markup, escape

from headrace.core.control_characters import printable_json
from headrace.core.job import json_or_text

__all__ = ["parsed", "pretty", "tree", "tree_of_many", "written"]

OPEN_LEVELS = 2
"""Levels that are unfolded at first."""
MAX_LEVELS = 40
MAX_MEMBERS = 200
"""Maximum members of an array or object that are shown."""
MAX_TEXT_CHARACTERS = 400
"""Maximum characters of a text that are shown unfolded."""
MAX_DOCUMENT_CHARACTERS = 256 * 1024
"""Maximum characters of a document that is shown as a tree; of a larger one the beginning is shown as text."""
MAX_LISTED_CHARACTERS = 16 * 1024
"""The same for one of many on a page: steps, items of a stream."""


def parsed(text: str | None) -> Any:
    """Parse a JSON text for ``tree``; a text that is too large stays text."""
    if text is None:
        return None
    return _beginning(text, MAX_DOCUMENT_CHARACTERS) if len(text) > MAX_DOCUMENT_CHARACTERS else json_or_text(text)


def _beginning(text: str, most: int) -> Markup:
    return Markup('<pre class="raw">{}</pre><p class="note">The first {:,} of {:,} characters.</p>').format(
        text[:most], most, len(text)
    )


def pretty(text: str) -> str:
    """Return a JSON text with indentation, to be edited; control characters in it are escaped, as in JSON."""
    try:
        return printable_json(msgspec.json.format(text, indent=2))
    except (msgspec.MsgspecError, RecursionError):
        return text


def written(value: Any) -> str:
    """Return a JSON value as text with indentation, to be edited."""
    return pretty(msgspec.json.encode(value).decode())


def tree_of_many(value: Any) -> Markup:
    """Return the HTML of a JSON value of which a page has many: a large one is shown shorter."""
    text = msgspec.json.encode(value).decode()
    return _beginning(text, MAX_LISTED_CHARACTERS) if len(text) > MAX_LISTED_CHARACTERS else tree(value)


def tree(value: Any) -> Markup:
    """Return a JSON value as HTML."""
    if isinstance(value, Markup):
        return value
    parts = list[str]()
    _write(parts, value, 0)
    return Markup('<div class="json">{}</div>').format(Markup("".join(parts)))


def _write(parts: list[str], value: Any, depth: int, name: str = "") -> None:
    """``name``: the HTML before it; a part that folds has it in its summary."""
    if isinstance(value, dict | list) and value:
        _write_many(parts, value, depth, name)
        return
    parts.append(name)
    if isinstance(value, dict | list):
        parts.append(f'<span class="word">{"{}" if isinstance(value, dict) else "[]"}</span>')
    elif isinstance(value, str):
        _write_text(parts, value)
    else:
        kind = "number" if isinstance(value, int | float) and not isinstance(value, bool) else "word"
        parts.append(f'<span class="{kind}">{escape(msgspec.json.encode(value).decode())}</span>')


def _write_text(parts: list[str], value: str) -> None:
    quoted = printable_json(msgspec.json.encode(value).decode())
    if len(value) <= MAX_TEXT_CHARACTERS:
        parts.append(f'<span class="string">{escape(quoted)}</span>')
    else:
        head = f'{escape(quoted[:120])}… <span class="much">{len(value):,} characters</span>'
        parts.append(f'<details><summary class="string">{head}</summary><pre>{escape(value)}</pre></details>')


def _write_many(parts: list[str], value: dict[str, Any] | list[Any], depth: int, name: str) -> None:
    opening, closing = ("{", "}") if isinstance(value, dict) else ("[", "]")
    if depth >= MAX_LEVELS:
        parts.append(f'{name}<span class="much">{opening} … {closing}</span>')
        return
    one = "field" if isinstance(value, dict) else "item"
    much = f"{len(value):,} {one}{'' if len(value) == 1 else 's'}"
    parts.append(f"<details{' open' if depth < OPEN_LEVELS and len(value) <= 50 else ''}>")
    parts.append(f'<summary>{name}{opening} <span class="much">{much}</span> {closing}</summary><ul>')
    members = list(value.items() if isinstance(value, dict) else enumerate(value))
    for key, member in members[:MAX_MEMBERS]:
        parts.append("<li>")
        _write(parts, member, depth + 1, f'<span class="name">{escape(key)}</span>: ')
        parts.append("</li>")
    if len(members) > MAX_MEMBERS:
        parts.append(f'<li class="much">… {len(members) - MAX_MEMBERS:,} more</li>')
    parts.append("</ul></details>")
