"""What a function came to, as JSON text and back: a result, an item of a stream, the result of a step."""

from __future__ import annotations

from typing import Any

from headrace.core import bounds
from headrace.core.codec.codec import Codec, Misfit
from headrace.errors import InvalidResult

__all__ = ["decode_value", "encode_value"]

_SHORT = bounds.RESULT // 4
"""Characters that are never too many bytes."""


def encode_value(codec: Codec, value: Any, what: str) -> str:
    """What a function came to, as JSON text; :raises InvalidResult:"""
    try:
        text = codec.encode(value)
    except Misfit as error:
        where = f" at {error.path}" if error.path else ""
        raise InvalidResult(f"{what}{where}: {error.message}") from None
    if len(text) > _SHORT and (size := bounds.size_of(text)) > bounds.RESULT:
        raise InvalidResult(f"{what}: {size} bytes, at most {bounds.RESULT}; store it elsewhere and return a reference")
    return text


def decode_value(codec: Codec, text: str, what: str) -> Any:
    """What a function came to once; :raises InvalidResult: it was of another type then"""
    try:
        return codec.decode(text)
    except Misfit as error:
        where = f" at {error.path}" if error.path else ""
        raise InvalidResult(f"{what}{where}: {error.message}") from None
