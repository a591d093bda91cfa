"""Small documents that people keep beside a payload: objects of JSON values, bounded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from headrace.core.bounds import checked_document
from headrace.core.codec.codec import Codec, Misfit
from headrace.core.match import fault_of_numbers
from headrace.errors import ConfigError, shown

__all__ = ["document_text", "progress_details"]

_OBJECT = Codec(dict[str, Any])


def document_text(value: Any, what: str) -> str:
    """A mapping of JSON values as JSON text.

    :raises ConfigError: it is none, or too large; naming ``what``
    """
    if not isinstance(value, Mapping):
        raise ConfigError(f"{what} must be a mapping of JSON values, not {shown(value)}")
    try:
        text = _OBJECT.encode(dict(value))
    except Misfit as error:
        where = f".{error.path.lstrip('.')}" if error.path else ""
        raise ConfigError(f"{what}{where} must be JSON: {error.message}") from None
    return checked_document(text, what)


def progress_details(value: Any, what: str) -> dict[str, Any]:
    """What a report of progress tells besides, as values of JSON that are nobody else's; every screen shows them.

    :raises ConfigError: they are no such document, or have a number that not every screen can show; naming ``what``
    """
    found: dict[str, Any] = msgspec.json.decode(document_text(value, what))
    if (fault := fault_of_numbers(found)) is not None:
        raise ConfigError(f"{what}.{fault}")
    return found
