"""Checks that a value comes back from JSON unchanged, on the value itself where the text no longer shows it.

A strict decode of the encoded text finds every wrong type but two kinds: a value that was turned into a string (a UUID
for a ``str``), and a value without an annotation (a set that would come back as a list).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from msgspec import inspect

from headrace.errors import shown

__all__ = ["Misfit", "binary", "check", "customs", "find_nan", "find_unknown", "has_objects", "watched"]

_NATIVE = (str, bool, int, float, type(None))
_RECORDS = (inspect.StructType, inspect.DataclassType, inspect.TypedDictType, inspect.NamedTupleType)
_OBJECTS = (inspect.StructType, inspect.DataclassType, inspect.TypedDictType)
_LISTS = (inspect.ListType, inspect.VarTupleType)
_SETS = (inspect.SetType, inspect.FrozenSetType)


class Misfit(Exception):
    """A value does not fit; ``path`` leads to it, such as ``options.width`` or ``sizes[2]``."""

    def __init__(self, message: str, path: str = "") -> None:
        super().__init__(message)
        self.message, self.path = message, path


def _is_any(node: inspect.Type) -> bool:
    return isinstance(node, inspect.AnyType) or (isinstance(node, inspect.CustomType) and node.cls is object)


def _inner(node: inspect.Type) -> tuple[inspect.Type, ...]:
    match node:
        case inspect.ListType() | inspect.VarTupleType() | inspect.SetType() | inspect.FrozenSetType():
            return (node.item_type,)
        case inspect.TupleType():
            return node.item_types
        case inspect.DictType():
            return (node.key_type, node.value_type)
        case inspect.UnionType():
            return node.types
        case inspect.Metadata():
            return (node.type,)
        case inspect.StructType() | inspect.DataclassType() | inspect.TypedDictType() | inspect.NamedTupleType():
            return tuple(field.type for field in node.fields)
        case _:
            return ()


def _any_of(node: inspect.Type, test: Callable[[inspect.Type], bool], seen: set[int]) -> bool:
    # Types may refer to themselves: each node is visited once.
    if id(node) in seen:
        return False
    seen.add(id(node))
    return test(node) or any(_any_of(inner, test, seen) for inner in _inner(node))


def watched(node: inspect.Type) -> bool:
    """Return whether values of this type need a check here."""
    return _any_of(node, lambda one: _is_any(one) or isinstance(one, (inspect.StrType, *_LISTS)), set())


def binary(node: inspect.Type) -> bool:
    """Return whether a value of this type is bytes, written as base64: a string would be taken for that."""
    match node:
        case inspect.Metadata():
            return binary(node.type)
        case inspect.UnionType():
            return any(binary(arm) for arm in node.types)
        case _:
            return isinstance(node, inspect.BytesType | inspect.ByteArrayType | inspect.MemoryViewType)


def customs(node: inspect.Type) -> list[type]:
    """Return the classes in the type that only a hook could encode and decode."""
    found: list[type] = []

    def note(one: inspect.Type) -> bool:
        if isinstance(one, inspect.CustomType) and one.cls is not object:
            found.append(one.cls)
        return False

    _any_of(node, note, set())
    return found


def check(value: Any, node: inspect.Type, path: str) -> None:
    """Refuse what would come back as something else; the value is known to encode; :raises Misfit:"""
    if isinstance(node, inspect.Metadata):
        node = node.type
    if _is_any(node):
        _check_plain(value, path)
    elif isinstance(node, inspect.StrType):
        if not isinstance(value, str):
            raise Misfit(f"Expected `str`, got `{type(value).__name__}`", path)
    elif isinstance(node, inspect.UnionType):
        _check_union(value, node, path)
    elif isinstance(node, (*_LISTS, *_SETS)):
        _check_items(value, node, path)
    elif isinstance(node, inspect.TupleType):
        if isinstance(value, list | tuple):
            for index, (item, kind) in enumerate(zip(value, node.item_types, strict=False)):
                check(item, kind, f"{path}[{index}]")
    elif isinstance(node, inspect.DictType):
        _check_dict(value, node, path)
    elif isinstance(node, _RECORDS):
        _check_record(value, node.fields, path)


def _check_items(value: Any, node: Any, path: str) -> None:
    if isinstance(value, set | frozenset) and isinstance(node, _LISTS):
        raise Misfit("Expected `array`, got `set`: its order is not kept; annotate a set or pass a list", path)
    if isinstance(value, list | tuple | set | frozenset) and watched(node.item_type):
        for index, item in enumerate(value):
            check(item, node.item_type, f"{path}[{index}]")


def _check_plain(value: Any, path: str) -> None:
    if type(value) in _NATIVE:
        if isinstance(value, float) and not math.isfinite(value):
            raise Misfit(f"{value} is not a JSON number", path)
    elif isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, str):
                raise Misfit(f"the key {shown(key)} would become a string; annotate the type of the keys", path)
            _check_plain(item, f"{path}.{key}")
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            _check_plain(item, f"{path}[{index}]")
    elif not isinstance(value, _NATIVE):
        raise Misfit(f"a {type(value).__qualname__} is not plain JSON; annotate its type", path)


def _check_union(value: Any, node: inspect.UnionType, path: str) -> None:
    if isinstance(value, _NATIVE):
        return
    misfit: Misfit | None = None
    for arm in node.types:
        if isinstance(arm, inspect.NoneType | inspect.IntType | inspect.FloatType | inspect.BoolType):
            continue
        try:
            check(value, arm, path)
        except Misfit as error:
            misfit = error
        else:
            return
    if misfit is not None:
        raise misfit


def _check_dict(value: Any, node: inspect.DictType, path: str) -> None:
    if not isinstance(value, Mapping):
        return
    keys, values = watched(node.key_type), watched(node.value_type)
    for key, item in value.items():
        if keys and not isinstance(key, str) and (_is_any(node.key_type) or isinstance(node.key_type, inspect.StrType)):
            raise Misfit(f"the key {shown(key)} would become a string; annotate the type of the keys", path)
        if values:
            check(item, node.value_type, f"{path}.{key}")


def _check_record(value: Any, fields: tuple[inspect.Field, ...], path: str) -> None:
    for field in fields:
        if isinstance(value, Mapping):
            if field.encode_name in value:
                check(value[field.encode_name], field.type, f"{path}.{field.encode_name}")
        elif hasattr(value, field.name):
            check(getattr(value, field.name), field.type, f"{path}.{field.name}")


def has_objects(node: inspect.Type) -> bool:
    """Return whether the type has objects with named fields in it."""
    return _any_of(node, lambda one: isinstance(one, _OBJECTS), set())


def find_unknown(value: Any, node: inspect.Type, path: str) -> str | None:
    """Return where plain values have a field that its type does not name (it would be dropped); None if nowhere."""
    if isinstance(node, inspect.Metadata):
        return find_unknown(value, node.type, path)
    if isinstance(node, inspect.UnionType):
        return _unknown_in_all(value, node, path)
    steps: list[tuple[Any, inspect.Type, str]] = []
    if isinstance(value, dict) and isinstance(node, _OBJECTS):
        known = {field.encode_name: field.type for field in node.fields}
        tag = getattr(node, "tag_field", None)
        for key, item in value.items():
            if key in known:
                steps.append((item, known[key], f"{path}.{key}"))
            elif key != tag:
                return f"{path}.{key}"
    elif isinstance(value, dict) and isinstance(node, inspect.DictType):
        steps = [(item, node.value_type, f"{path}.{key}") for key, item in value.items()]
    elif isinstance(value, list) and isinstance(node, (*_LISTS, *_SETS)):
        steps = [(item, node.item_type, f"{path}[{index}]") for index, item in enumerate(value)]
    elif isinstance(value, list) and isinstance(node, inspect.TupleType):
        pairs = enumerate(zip(value, node.item_types, strict=False))
        steps = [(item, kind, f"{path}[{index}]") for index, (item, kind) in pairs]
    return next((found for step in steps if (found := find_unknown(*step)) is not None), None)


def _unknown_in_all(value: Any, node: inspect.UnionType, path: str) -> str | None:
    """Return None if one arm names every field; a class that a hook reads decides for itself."""
    fitting: tuple[type[inspect.Type], ...] = (*_LISTS, *_SETS, inspect.TupleType)
    if isinstance(value, dict):
        fitting = (*_OBJECTS, inspect.DictType)
    found: str | None = None
    for arm in node.types:
        if isinstance(arm, (*fitting, inspect.CustomType)):
            found = find_unknown(value, arm, path)
            if found is None:
                return None
    return found


def find_nan(value: Any, path: str) -> str | None:
    """Return where plain values have a number that JSON cannot hold (it would be written as null); None if nowhere."""
    if isinstance(value, float):
        return None if math.isfinite(value) else path
    if isinstance(value, dict):
        steps = ((item, f"{path}.{key}") for key, item in value.items())
    elif isinstance(value, list | tuple):
        steps = ((item, f"{path}[{index}]") for index, item in enumerate(value))
    else:
        return None
    return next((found for item, step in steps if (found := find_nan(item, step)) is not None), None)
