"""What may stand in a place of a document where only certain words may, for those who wrote another."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any

from msgspec import inspect

__all__ = ["choices"]

_PART = re.compile(r"\.(\w+)|\[[^]]*\]")
"""One step of a path as msgspec writes it: a field, or an element of a list."""


@lru_cache(256)
def choices(kind: Any, path: str) -> tuple[str, ...]:
    """The words that this type allows at a path, as in ``$.filter.status[0]``; none, if it asks for no words."""
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
