"""Streams in signatures: what a generator yields, and a parameter that is the stream of another job."""

from __future__ import annotations

import typing
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator
from typing import Annotated, Any
from uuid import UUID

import msgspec

__all__ = ["StreamRef", "item_of_parameter", "item_of_return"]

_YIELDING = (AsyncIterator, AsyncGenerator, AsyncIterable)


class StreamRef(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The stream of a job, as a payload holds it."""

    stream: UUID
    """The job."""
    start: int = 0
    """How many items to leave out."""


def item_of_return(hint: Any) -> Any:
    """What the items of an asynchronous generator are, by its return annotation; ``Any`` if that does not say."""
    if typing.get_origin(hint) in _YIELDING and (args := typing.get_args(hint)):
        return args[0]
    return Any


def item_of_parameter(hint: Any) -> Any:
    """What the items are, of a parameter that is a stream; None: it is none."""
    if typing.get_origin(hint) is Annotated:
        hint = typing.get_args(hint)[0]
    if getattr(typing.get_origin(hint) or hint, "__headrace_stream__", False) is not True:
        return None
    args = typing.get_args(hint)
    return args[0] if args and not isinstance(args[0], typing.TypeVar) else Any
