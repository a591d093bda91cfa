"""The contract as bytes: every argument and every answer of its verbs as msgpack, for engines that are far away."""

from __future__ import annotations

from functools import cache
from typing import Any, TypeVar
from uuid import UUID

import msgspec

from headrace import errors
from headrace.core.job import ErrorInfo, Job
from headrace.errors import HeadraceError

__all__ = ["decode", "encode"]

T = TypeVar("T")


class _Told(msgspec.Struct, array_like=True):
    """An error as it travels."""

    kind: str
    """The name of its class; of the nearest one that everybody knows."""
    message: str
    more: dict[str, Any]
    """The values that it carries."""


_CARRIED: dict[str, Any] = {"job": Job, "id": UUID, "ids": tuple[UUID, ...], "error": ErrorInfo | None}
"""The types of values that errors carry, by name; the others are plain."""

_KNOWN: dict[str, type[HeadraceError]] = {
    name: kind
    for name in errors.__all__
    if issubclass(kind := getattr(errors, name), HeadraceError) and not issubclass(kind, BaseExceptionGroup)
}


def encode(value: Any) -> bytes:
    """The value as msgpack."""
    return _encoder.encode(value)


def decode(data: bytes, type: Any) -> Any:
    """The value of this type in msgpack.

    :raises msgspec.ValidationError: it is none of this type
    """
    return _decoder(type).decode(data)


@cache
def _decoder(type: Any) -> msgspec.msgpack.Decoder[Any]:
    return msgspec.msgpack.Decoder(type, dec_hook=_read)


def _tell(value: Any) -> Any:
    if not isinstance(value, HeadraceError):
        raise NotImplementedError(f"a {type(value).__name__} does not travel")
    kind = next(one.__name__ for one in type(value).__mro__ if _KNOWN.get(one.__name__) is one)
    return _Told(kind, str(value), dict(vars(value)))


def _read(type: Any, value: Any) -> Any:
    if not issubclass(type, HeadraceError):
        raise NotImplementedError(f"a {type.__name__} does not travel")
    told = msgspec.convert(value, _Told)
    kind = _KNOWN.get(told.kind, HeadraceError)
    # Not by its own constructor, which would put the message together once more: here it is as it was.
    error = kind.__new__(kind, told.message)
    error.args = (told.message,)
    for name, one in told.more.items():
        setattr(error, name, msgspec.convert(one, _CARRIED[name], dec_hook=_read) if name in _CARRIED else one)
    return error


_encoder = msgspec.msgpack.Encoder(enc_hook=_tell)
