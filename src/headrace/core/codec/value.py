"""Values other than arguments as JSON text: results, stream items, step results, and small documents such as metadata.

It also reads from signatures what a generator yields, and which parameter is the stream of another job.
"""

from __future__ import annotations

import typing
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Mapping
from typing import Annotated, Any
from uuid import UUID

import msgspec

from headrace.core import defaults, validation
from headrace.core.codec.json import Codec
from headrace.core.codec.roundtrip import Misfit
from headrace.core.matching.match import fault_of_numbers
from headrace.core.validation import checked_document
from headrace.errors import ConfigError, InvalidResult, shown

__all__ = [
    "StreamRef",
    "decode_value",
    "document_text",
    "encode_value",
    "item_of_parameter",
    "item_of_return",
    "progress_details",
]


_SAFE_RESULT_CHARACTERS = defaults.MAX_RESULT_BYTES // 4
"""So many characters never have too many bytes."""


def encode_value(codec: Codec, value: Any, what: str) -> str:
    """Return the result of a function as JSON text; :raises InvalidResult:"""
    try:
        text = codec.encode(value)
    except Misfit as error:
        where = f" at {error.path}" if error.path else ""
        raise InvalidResult(f"{what}{where}: {error.message}") from None
    if len(text) > _SAFE_RESULT_CHARACTERS and (size := validation.size_of(text)) > defaults.MAX_RESULT_BYTES:
        raise InvalidResult(
            f"{what}: {size} bytes, at most {defaults.MAX_RESULT_BYTES}; store it elsewhere and return a reference"
        )
    return text


def decode_value(codec: Codec, text: str, what: str) -> Any:
    """Return the stored result of a function; :raises InvalidResult: it was of another type then"""
    try:
        return codec.decode(text)
    except Misfit as error:
        where = f" at {error.path}" if error.path else ""
        raise InvalidResult(f"{what}{where}: {error.message}") from None


_OBJECT = Codec(dict[str, Any])


def document_text(value: Any, what: str) -> str:
    """Return a mapping of JSON values as JSON text; :raises ConfigError: it is none, or too large; naming ``what``"""
    if not isinstance(value, Mapping):
        raise ConfigError(f"{what} must be a mapping of JSON values, not {shown(value)}")
    try:
        text = _OBJECT.encode(dict(value))
    except Misfit as error:
        where = f".{error.path.lstrip('.')}" if error.path else ""
        raise ConfigError(f"{what}{where} must be JSON: {error.message}") from None
    return checked_document(text, what)


def progress_details(value: Any, what: str) -> dict[str, Any]:
    """Return the details of a progress report as a copy made of JSON values; every screen shows them.

    :raises ConfigError: they are no such document, or have a number that not every screen can show; naming ``what``
    """
    found: dict[str, Any] = msgspec.json.decode(document_text(value, what))
    if (fault := fault_of_numbers(found)) is not None:
        raise ConfigError(f"{what}.{fault}")
    return found


_YIELDING = (AsyncIterator, AsyncGenerator, AsyncIterable)


class StreamRef(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The stream of a job, as a payload holds it."""

    stream: UUID
    """The job."""
    start: int = 0
    """How many items to leave out."""


def item_of_return(hint: Any) -> Any:
    """Return the type of an asynchronous generator's items, by its return annotation; ``Any`` if that does not say."""
    if typing.get_origin(hint) in _YIELDING and (args := typing.get_args(hint)):
        return args[0]
    return Any


def item_of_parameter(hint: Any) -> Any:
    """Return the type of the items of a parameter that is a stream; None: it is none."""
    if typing.get_origin(hint) is Annotated:
        hint = typing.get_args(hint)[0]
    if getattr(typing.get_origin(hint) or hint, "__headrace_stream__", False) is not True:
        return None
    args = typing.get_args(hint)
    return args[0] if args and not isinstance(args[0], typing.TypeVar) else Any
