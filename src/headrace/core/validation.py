"""Limits and checks of all input. The numbers are in one place, so that every shell and every store accepts the same
values."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from headrace.core.defaults import (
    MAX_COUNT,
    MAX_DOCUMENT_BYTES,
    MAX_JSON_DEPTH,
    MAX_KEY_CHARACTERS,
    MAX_MOMENT,
    MAX_NAME_CHARACTERS,
    MAX_NOTE_CHARACTERS,
    MAX_NUMBER,
    MAX_TAG_CHARACTERS,
    MAX_TAGS,
    MIN_MOMENT,
)
from headrace.errors import ConfigError, shown

__all__ = [
    "checked_document",
    "checked_key",
    "checked_moment",
    "checked_name",
    "checked_note",
    "checked_tags",
    "is_text",
    "is_too_deep",
    "is_within",
    "plain",
    "plain_id",
    "plain_moment",
    "shown",
    "size_of",
    "whole",
]


def is_text(*texts: str) -> bool:
    """Return whether every store keeps these as they are: none has a NUL or a lone surrogate."""
    for text in texts:
        if "\0" in text:
            return False
        if not text.isascii():
            try:
                text.encode()
            except UnicodeEncodeError:
                return False
    return True


def is_within(number: float) -> bool:
    """Return whether all languages and stores can compute with it: an integer up to ``MAX_NUMBER``, a finite float."""
    return abs(number) <= MAX_NUMBER if isinstance(number, int) else math.isfinite(number)


def size_of(text: str) -> int:
    """Return its bytes in UTF-8."""
    return len(text) if text.isascii() else len(text.encode(errors="surrogatepass"))


_STRINGS = re.compile(rb'"(?:[^"\\]|\\.)*"')
_ROUND = bytes.maketrans(b"{}", b"[]")
_OTHERS = bytes(byte for byte in range(256) if byte not in b"[]{}")


def is_too_deep(data: bytes) -> bool:
    """Return whether JSON is nested too deep."""
    if data.count(b"[") + data.count(b"{") <= MAX_JSON_DEPTH:  # as nearly all JSON
        return False
    brackets = _STRINGS.sub(b"", data).translate(_ROUND, _OTHERS)
    for _ in range(MAX_JSON_DEPTH):  # the innermost go first, all at once
        brackets = brackets.replace(b"[]", b"")
    return bool(brackets)


def plain(text: str) -> str:
    """Return the same text as a plain ``str``: a subclass (``Markup``, ``SafeString``, an enum) has no form in a store,
    and its ``str()`` may return another text."""
    return text if type(text) is str else str.__str__(text)


def plain_id(id: UUID) -> UUID:
    """Return the same id as a plain ``UUID``: drivers of databases have classes of their own for it."""
    return id if type(id) is UUID else UUID(int=id.int)


def plain_moment(moment: datetime) -> datetime:
    """Return the same moment in UTC, as a plain ``datetime``: pandas and pendulum have classes of their own for it."""
    found = moment.astimezone(UTC)
    return found if type(found) is datetime else datetime.combine(found.date(), found.time(), UTC)


def _length(text: str, what: str, most: int) -> str:
    if len(text) > most:
        raise ConfigError(f"{what} must have at most {most} characters, not {len(text)}: {text[:40]!r} …")
    return text


def checked_name(value: Any, what: str, most: int = MAX_NAME_CHARACTERS) -> str:
    """Return a checked name, which people type and programs print; :raises ConfigError: naming ``what``"""
    if not isinstance(value, str) or not value.strip() or not value.isprintable():
        told = shown(value) if not isinstance(value, str) or len(value) <= MAX_NAME_CHARACTERS else f"{value[:40]!r} …"
        raise ConfigError(f"{what} must be text that is not empty, of printable characters, not {told}")
    return plain(_length(value, what, most))


def checked_key(value: Any, what: str) -> str:
    """Return a checked key, which may be made of data; :raises ConfigError: naming ``what``"""
    if not isinstance(value, str) or not value.strip():
        raise ConfigError(f"{what} must be text that is not empty, not {shown(value)}")
    return _storable(value, what, MAX_KEY_CHARACTERS)


def _storable(text: str, what: str, most: int) -> str:
    _length(text, what, most)
    if not is_text(text):
        raise ConfigError(f"{what} must not hold a NUL or half of a surrogate pair, as {shown(text)} does")
    return plain(text)


def checked_note(value: Any, what: str) -> str | None:
    """Return a checked name of an actor, or note of an action; None: not given; :raises ConfigError: naming ``what``"""
    if value is None:
        return None
    if not isinstance(value, str):
        raise ConfigError(f"{what} must be text, not {shown(value)}")
    return _storable(value, what, MAX_NOTE_CHARACTERS)


def checked_tags(values: Iterable[Any], what: str) -> tuple[str, ...]:
    """Return checked tags, each once; :raises ConfigError: naming ``what``"""
    tags = tuple(dict.fromkeys(checked_name(tag, f"each of {what}", MAX_TAG_CHARACTERS) for tag in values))
    if len(tags) > MAX_TAGS:
        raise ConfigError(f"{what} are at most {MAX_TAGS}, not {len(tags)}: what is only read belongs into metadata")
    return tags


def checked_document(text: str, what: str) -> str:
    """Return checked JSON text that is stored beside a payload; :raises ConfigError: naming ``what``"""
    if (size := size_of(text)) > MAX_DOCUMENT_BYTES:
        raise ConfigError(
            f"{what} must be at most {MAX_DOCUMENT_BYTES} bytes as JSON, not {size}: keep a reference instead"
        )
    return text


def checked_moment(value: Any, what: str) -> datetime | None:
    """Return an aware moment in UTC; None: none was given; :raises ConfigError: naming ``what``"""
    if value is None:
        return None
    if not isinstance(value, datetime):
        raise ConfigError(f"{what} must be a datetime, not {shown(value)}")
    if value.tzinfo is None or value.utcoffset() is None:
        raise ConfigError(f"{what} must be an aware datetime, as in datetime.now(UTC): {shown(value)} has no time zone")
    try:
        moment = plain_moment(value)
    except OverflowError:
        moment = None
    if moment is None or not MIN_MOMENT <= moment <= MAX_MOMENT:
        years = f"between the years {MIN_MOMENT.year} and {MAX_MOMENT.year}"
        raise ConfigError(f"{what} must be {years}, not {value}; leave it out if there is no such moment")
    return moment


def whole(value: Any, what: str, least: int, most: int = MAX_COUNT) -> int:
    """Return a whole number within bounds; :raises ConfigError: naming ``what``"""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise ConfigError(f"{what} must be a whole number from {least} to {most}, not {shown(value)}")
    return int(value)
