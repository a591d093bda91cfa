"""What schemathesis has to be told about the hub; it imports this itself, in its own process."""

from __future__ import annotations

import json
from typing import Any

import schemathesis

OWN = "contract"
"""The name of the key with which it asks: taking that back would end the run."""


@schemathesis.serializer("application/x-ndjson")
def lines(context: Any, value: Any) -> bytes:
    """Lines of JSON: a text as it is, anything else as one line."""
    return (value if isinstance(value, str) else json.dumps(value)).encode(errors="replace") + b"\n"


@schemathesis.hook
def filter_case(context: Any, case: Any) -> bool:
    """Whether a request is made at all."""
    raw = case.operation.definition.raw
    if raw.get("operationId") == "revoke_key" and OWN in str(case.path_parameters):
        return False
    return (
        case.meta is None or case.meta.generation.mode == "positive" or not sent_well(raw.get("parameters", []), case)
    )


def sent_well(parameters: list[dict[str, Any]], case: Any) -> bool:
    """Whether what is wrong with a question is not to be seen once it is sent.

    In an address ``false`` is a text like any other, and a list or an object with nothing in it is not there.
    """
    wrong = [place.value for place, one in case.meta.components.items() if one.mode == "negative"]
    texts = {one["name"] for one in parameters if one["in"] == "query" and is_texts(one["schema"])}
    return wrong == ["query"] and all(
        is_nothing(value) or (name in texts and is_text(value)) for name, value in (case.query or {}).items()
    )


def is_texts(schema: dict[str, Any]) -> bool:
    """Whether this is a list of any texts."""
    return schema.get("type") == "array" and schema.get("items", {}).keys() <= {"type", "minLength", "maxLength"}


def is_nothing(value: Any) -> bool:
    """Whether nothing of it is sent."""
    return value == {} or (isinstance(value, list) and all(map(is_nothing, value)))


def is_text(value: Any) -> bool:
    """Whether it is sent as a text that may be in such a list."""
    return isinstance(value, bool | int | float) or (isinstance(value, str) and 0 < len(value) <= 100)
