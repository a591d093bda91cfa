"""The OpenAPI document as tests look at it: its schemas, and whether a value is as one says."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jsonschema_rs

from headrace.hub.openapi.document import document
from headrace.hub.operations import OPERATIONS
from headrace.hub.server.operation import Operation

__all__ = ["DOCUMENT", "contents_of", "refuse"]

DOCUMENT = document(OPERATIONS)


def refuse(schema: dict[str, Any], value: Any, what: str) -> None:
    """Fail unless the value is as the schema, a part of the document, says."""
    whole = {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "components": DOCUMENT["components"]}
    found = [f"{'/'.join(map(str, one.instance_path))}: {one.message}" for one in _errors(whole, value)]
    assert not found, f"{what}: {found}"


def _errors(schema: dict[str, Any], value: Any) -> Iterator[Any]:
    yield from jsonschema_rs.validator_for(schema, validate_formats=True).iter_errors(value)


def contents_of(operation: Operation) -> dict[str, Any]:
    """What the document says of an operation."""
    for methods in DOCUMENT["paths"].values():
        for one in methods.values():
            if one["operationId"] == operation.name:
                found: dict[str, Any] = one
                return found
    raise AssertionError(f"{operation.name} is not in the document")
