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
    return not (case.operation.definition.raw.get("operationId") == "revoke_key" and OWN in str(case.path_parameters))
