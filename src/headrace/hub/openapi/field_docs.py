"""Docstrings of the fields of structs, read from the sources: the descriptions in the OpenAPI document."""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import pairwise
from typing import Any, get_origin

import msgspec

__all__ = ["field_notes"]


def field_notes(kinds: Iterable[Any]) -> dict[str, dict[str, str]]:
    """Return the docstrings of fields, by struct and field, for each struct within these types."""
    structs = dict[str, type[msgspec.Struct]]()
    for info in msgspec.inspect.multi_type_info(list(kinds)):
        structs |= {kind.__name__: kind for kind in _structs(info, set())}
    return {name: _notes(kind) for name, kind in structs.items()}


def _structs(info: Any, seen: set[int]) -> Iterator[type[msgspec.Struct]]:
    """Yield the structs within a type."""
    if isinstance(info, msgspec.inspect.StructType):
        if id(info) in seen:
            return
        seen.add(id(info))
        yield get_origin(info.cls) or info.cls
    if isinstance(info, msgspec.Struct):
        for name in info.__struct_fields__:
            part = getattr(info, name)
            for one in part if isinstance(part, tuple) else (part,):
                if isinstance(one, msgspec.inspect.Type | msgspec.inspect.Field):
                    yield from _structs(one, seen)


@cache
def _notes(kind: type[msgspec.Struct]) -> dict[str, str]:
    """Return the docstrings of a struct's fields, its bases included."""
    notes = dict[str, str]()
    for base in reversed(kind.__mro__):
        if base not in (object, msgspec.Struct):
            notes |= _own_notes(base)
    return notes


def _own_notes(kind: type) -> dict[str, str]:
    tree = _classes(kind.__module__).get(kind.__qualname__)
    notes = dict[str, str]()
    for field, below in pairwise(tree.body if tree else ()):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and isinstance(below, ast.Expr):
            match below.value:
                case ast.Constant(value=str(text)):
                    notes[field.target.id] = " ".join(text.replace("``", "`").split())
    return notes


@cache
def _classes(module: str) -> dict[str, ast.ClassDef]:
    """Return the classes at the top of a module, by name; none if it has no source, or is installed without it."""
    try:
        tree = ast.parse(inspect.getsource(sys.modules[module]))
    except (KeyError, OSError, TypeError, SyntaxError):
        return {}
    return {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}
