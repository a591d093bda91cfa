"""Problems of a hub as problem details: faults of the hub, and documents that are malformed, with what is allowed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any, TypeVar

import msgspec
from msgspec import inspect

from headrace.http import problems
from headrace.http.problems import PAGE, Fault, Problem, ProblemDetails

__all__ = ["FAULT", "PAGE", "Fault", "Problem", "ProblemDetails", "choices", "decoded", "malformed", "problem_of"]


_PART = re.compile(r"\.(\w+)|\[[^]]*\]")
"""One step of a path as msgspec writes it: a field, or an element of a list."""


@lru_cache(256)
def choices(kind: Any, path: str) -> tuple[str, ...]:
    """Return the words that this type allows at a path, as in ``$.filter.status[0]``; empty if it lists no words."""
    steps = [found[1] for found in _PART.finditer(path)]
    here: list[inspect.Type] = [inspect.type_info(kind)]
    for place, step in enumerate(steps):
        flat = list(_flat(here))
        if place == len(steps) - 1 and (tags := [one.tag for one in flat if _is_tagged(one, step)]):
            return tuple(map(str, tags))
        here = [inner for one in flat for inner in _inside(one, step)]
    return tuple(dict.fromkeys(word for one in _flat(here) for word in _words(one)))


def _flat(kinds: Iterable[inspect.Type]) -> Iterator[Any]:
    for kind in kinds:
        if isinstance(kind, inspect.UnionType):
            yield from _flat(kind.types)
        elif isinstance(kind, inspect.Metadata):
            yield from _flat([kind.type])
        else:
            yield kind


def _is_tagged(kind: inspect.Type, step: str | None) -> bool:
    return isinstance(kind, inspect.StructType) and kind.tag_field is not None and kind.tag_field == step


def _inside(kind: inspect.Type, step: str | None) -> list[inspect.Type]:
    if isinstance(kind, inspect.StructType):
        return [field.type for field in kind.fields if field.encode_name == step]
    if step is None and isinstance(kind, inspect.CollectionType):
        return [kind.item_type]
    return []


def _words(kind: inspect.Type) -> list[str]:
    if isinstance(kind, inspect.EnumType):
        return [str(one.value) for one in kind.cls]
    return [str(one) for one in kind.values] if isinstance(kind, inspect.LiteralType) else []


T = TypeVar("T")

FAULT = Problem(500, "fault", "A fault of the hub", "the hub has a fault; its log says more")
"""The reply when something in the hub is broken."""


def problem_of(error: Exception) -> Problem | None:
    """Return the problem for an error; None: the error is a fault of the hub."""
    if isinstance(error, msgspec.ValidationError | msgspec.DecodeError):
        return malformed(error)
    return problems.problem_of(error)


_NO_WORD = ("Invalid enum value ", "Invalid value ")
_NO_WHOLE = re.compile(r"Expected `(int|[^`]*\bint \| [^`]*|[^`]* \| int)`, got `float`")
_NAMED = re.compile(r"field `([^`]*)`")


def malformed(error: msgspec.MsgspecError, kind: Any = None) -> Problem:
    """Return the problem of a document that is not JSON or not of the expected type; it names the field.

    ``kind``: that type; where it allows only certain words, the problem lists them.
    """
    text = str(error)
    message, _, place = text.partition(" - at `")
    if kind is not None and message.startswith(_NO_WORD) and (words := choices(kind, place.rstrip("`"))):
        message += f": it is one of {', '.join(words)}"
        text = f"{message} - at `{place}"
    if _NO_WHOLE.fullmatch(message):
        message += ": whole numbers are written without a point, as in 5"
        text = f"{message} - at `{place}"
    field = place.rstrip("`").removeprefix("$").removeprefix(".")
    if named := _NAMED.search(message):  # a field that the object must have, or must not have
        field = f"{field}.{named[1]}" if field else named[1]
    faults = (Fault(field, message),) if field else ()
    return Problem(400, "malformed", "The request cannot be understood", text, faults=faults)


def decoded(decoder: msgspec.json.Decoder[T], data: bytes | msgspec.Raw) -> T:
    """Decode JSON; :raises Problem: 400, it is malformed, or not of the expected type"""
    try:
        return decoder.decode(data)
    except msgspec.MsgspecError as error:
        raise malformed(error, decoder.type) from None
    except (UnicodeDecodeError, RecursionError) as error:
        detail = "it is nested too deep" if isinstance(error, RecursionError) else "it is not UTF-8"
        raise Problem(400, "malformed", "The request cannot be understood", detail) from None
