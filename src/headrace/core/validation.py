"""How much there may be of everything that comes in, and how each door checks it: the numbers stand here and nowhere
else, so that a value has the same answer wherever it is said and whatever it is stored in."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from headrace.errors import ConfigError, shown

__all__ = [
    "COUNT",
    "DEPTH",
    "DOCUMENT",
    "EARLIEST",
    "ERROR",
    "KEY",
    "LATEST",
    "NAME",
    "NOTE",
    "NUMBER",
    "PAYLOAD",
    "RESULT",
    "TAG",
    "TAGS",
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

PAYLOAD = 128 * 1024
"""Bytes of a payload as JSON."""
RESULT = 1024 * 1024
"""Bytes of a result, of an item of a stream, or of what a step came to, as JSON."""
DOCUMENT = 16 * 1024
"""Bytes of metadata, of requirements, or of a trace, as JSON."""
ERROR = 16 * 1024
"""Bytes of an error as JSON; what is longer is cut, not refused."""
TAGS = 32
"""Tags of a job."""
TAG = 128
"""Characters of a tag."""
NAME = 128
"""Characters of the name of a task, a queue, a rate or a schedule."""
KEY = 512
"""Characters of a customer, of a dedup, request or concurrency key, and of the name of a step."""
NOTE = 256
"""Characters of who acted, and of what was noted with it."""
COUNT = 1_000_000_000
"""The greatest number of retries, of jobs at once, of permits: every store counts this far."""
NUMBER = 2**53
"""The greatest whole number, up or down, that every language and every float holds as it is."""

DEPTH = 100
"""How deep JSON may be nested: what reads it may be deep in calls of its own already."""

EARLIEST = datetime(1900, 1, 1, tzinfo=UTC)
LATEST = datetime(9000, 1, 1, tzinfo=UTC)
"""Moments are between these: far enough from the ends of the calendar that a zone and a century may be added."""


def is_text(*texts: str) -> bool:
    """Whether every store keeps these as they are: none holds a NUL or half of a surrogate pair."""
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
    """Whether it can be compared and reckoned with everywhere: a whole number of at most ``NUMBER``, a finite float."""
    return abs(number) <= NUMBER if isinstance(number, int) else math.isfinite(number)


def size_of(text: str) -> int:
    """Its bytes in UTF-8."""
    return len(text) if text.isascii() else len(text.encode(errors="surrogatepass"))


_STRINGS = re.compile(rb'"(?:[^"\\]|\\.)*"')
_ROUND = bytes.maketrans(b"{}", b"[]")
_OTHERS = bytes(byte for byte in range(256) if byte not in b"[]{}")


def is_too_deep(data: bytes) -> bool:
    """Whether JSON is nested deeper than it may be."""
    if data.count(b"[") + data.count(b"{") <= DEPTH:  # as nearly all of it is
        return False
    brackets = _STRINGS.sub(b"", data).translate(_ROUND, _OTHERS)
    for _ in range(DEPTH):  # the innermost go first, all at once
        brackets = brackets.replace(b"[]", b"")
    return bool(brackets)


def plain(text: str) -> str:
    """The same text as no more than that: a class of its own (``Markup``, ``SafeString``, an enum) has no form in a
    store, and what it says to ``str()`` may be another text."""
    return text if type(text) is str else str.__str__(text)


def plain_id(id: UUID) -> UUID:
    """The same id as no more than that: drivers of databases have classes of their own for it."""
    return id if type(id) is UUID else UUID(int=id.int)


def plain_moment(moment: datetime) -> datetime:
    """The same moment in UTC, as no more than that: pandas and pendulum have classes of their own for it."""
    found = moment.astimezone(UTC)
    return found if type(found) is datetime else datetime.combine(found.date(), found.time(), UTC)


def _length(text: str, what: str, most: int) -> str:
    if len(text) > most:
        raise ConfigError(f"{what} must have at most {most} characters, not {len(text)}: {text[:40]!r} …")
    return text


def checked_name(value: Any, what: str, most: int = NAME) -> str:
    """A name, that people type and programs print.

    :raises ConfigError: naming ``what``
    """
    if not isinstance(value, str) or not value.strip() or not value.isprintable():
        told = shown(value) if not isinstance(value, str) or len(value) <= NAME else f"{value[:40]!r} …"
        raise ConfigError(f"{what} must be text that is not empty, of printable characters, not {told}")
    return plain(_length(value, what, most))


def checked_key(value: Any, what: str) -> str:
    """A key, which may be made of data.

    :raises ConfigError: naming ``what``
    """
    if not isinstance(value, str) or not value.strip():
        raise ConfigError(f"{what} must be text that is not empty, not {shown(value)}")
    _length(value, what, KEY)
    if not is_text(value):
        raise ConfigError(f"{what} must not hold a NUL or half of a surrogate pair, as {shown(value)} does")
    return plain(value)


def checked_note(value: Any, what: str) -> str | None:
    """Who acted, or what was noted with it; None: nobody said.

    :raises ConfigError: naming ``what``
    """
    if value is None:
        return None
    if not isinstance(value, str):
        raise ConfigError(f"{what} must be text, not {shown(value)}")
    _length(value, what, NOTE)
    if not is_text(value):
        raise ConfigError(f"{what} must not hold a NUL or half of a surrogate pair, as {shown(value)} does")
    return plain(value)


def checked_tags(values: Iterable[Any], what: str) -> tuple[str, ...]:
    """Tags, each once.

    :raises ConfigError: naming ``what``
    """
    tags = tuple(dict.fromkeys(checked_name(tag, f"each of {what}", TAG) for tag in values))
    if len(tags) > TAGS:
        raise ConfigError(f"{what} are at most {TAGS}, not {len(tags)}: what is only read belongs into metadata")
    return tags


def checked_document(text: str, what: str) -> str:
    """JSON text that is kept beside a payload.

    :raises ConfigError: naming ``what``
    """
    if (size := size_of(text)) > DOCUMENT:
        raise ConfigError(f"{what} must be at most {DOCUMENT} bytes as JSON, not {size}: keep a reference instead")
    return text


def checked_moment(value: Any, what: str) -> datetime | None:
    """An aware moment in UTC; None: none was given.

    :raises ConfigError: naming ``what``
    """
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
    if moment is None or not EARLIEST <= moment <= LATEST:
        years = f"between the years {EARLIEST.year} and {LATEST.year}"
        raise ConfigError(f"{what} must be {years}, not {value}; leave it out if there is no such moment")
    return moment


def whole(value: Any, what: str, least: int, most: int = COUNT) -> int:
    """A whole number within bounds.

    :raises ConfigError: naming ``what``
    """
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise ConfigError(f"{what} must be a whole number from {least} to {most}, not {shown(value)}")
    return int(value)
