"""A form for the payload of a task, made from its schema."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from headrace.core.control_characters import printable, printable_json

__all__ = ["Field", "fields_of"]


@dataclass(frozen=True)
class Field:
    """One parameter of a task."""

    name: str
    kind: str
    """``text``, ``integer``, ``number``, ``boolean``, ``choice`` or ``json``."""
    required: bool
    value: str
    """Its initial text."""
    choices: tuple[str, ...] = ()
    """As JSON."""
    note: str = ""
    checked: bool = False


def fields_of(schema: Mapping[str, Any], given: Mapping[str, Any] | None = None) -> list[Field]:
    """Return the fields of a schema; ``given``: the values of a payload that is to be changed."""
    required = set(schema.get("required", ()))
    properties: Mapping[str, Any] = schema.get("properties", {})
    return [
        _field(name, _resolved(one, schema), name in required, (given or {}).get(name, _NOTHING))
        for name, one in properties.items()
    ]


_NOTHING = object()
_KINDS = {"string": "text", "integer": "integer", "number": "number", "boolean": "boolean"}


def _resolved(one: Mapping[str, Any], schema: Mapping[str, Any]) -> Mapping[str, Any]:
    name = str(one.get("$ref", "")).rpartition("/")[2]
    return schema.get("$defs", {}).get(name, one) if name else one


def _field(name: str, schema: Mapping[str, Any], required: bool, given: Any) -> Field:
    value = schema.get("default", _NOTHING) if given is _NOTHING else given
    text = "" if value is _NOTHING or (value is None and not required) else _json(value)
    note = str(schema.get("description", ""))
    if "enum" in schema:
        choices = tuple(_json(one) for one in schema["enum"])
        return Field(name, "choice", required, text, choices, note)
    kind = _KINDS.get(schema.get("type", ""), "json") if isinstance(schema.get("type"), str) else "json"
    # A text that a page would escape is edited as JSON, which escapes it as well, and is sent back as it was.
    if kind == "text" and (value is _NOTHING or (isinstance(value, str) and printable(value, lines=True) == value)):
        begins = value if isinstance(value, str) else ""
        return Field(name, kind, required, begins, note=note or str(schema.get("format", "")))
    if kind == "boolean" and (value is _NOTHING or isinstance(value, bool)):
        return Field(name, kind, required, text, note=note, checked=value is True)
    if kind in ("integer", "number") and (value is _NOTHING or isinstance(value, int | float)):
        return Field(name, kind, required, text, note=note)
    return Field(name, "json", required, text, note=note or _told(schema))


def _json(value: Any) -> str:
    return printable_json(msgspec.json.encode(value).decode())


def _told(schema: Mapping[str, Any]) -> str:
    kinds = schema.get("type") or [one.get("type", "…") for one in schema.get("anyOf", ())]
    names = [kinds] if isinstance(kinds, str) else [str(one) for one in kinds]
    return f"JSON: {' or '.join(names)}" if names else "JSON"
