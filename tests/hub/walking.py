"""Walking through the table of operations: each is asked for by somebody, and the answer is looked at."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import httpx2

from headrace.hub.server.operation import Operation
from tests.hub.serving import Served

__all__ = ["Heard", "ask", "open_stream", "path_of"]

_PART = re.compile(r"\{(\w+)(?::\w+)?\}")

VARIES = frozenset({"date", "x-request-id", "content-length"})
"""Headers that differ from one answer to the next, whoever asks."""


@dataclass(frozen=True)
class Heard:
    """An answer: of a stream that goes on, only how it begins."""

    status: int
    headers: Mapping[str, str]
    text: str

    def without(self, *names: object) -> tuple[Any, ...]:
        """The answer with these names blotted out: what is left says nothing about who they are."""
        text, headers = self.text, str(sorted(self.headers.items()))
        for name in names:
            for said in {str(name), quote(str(name))}:
                text, headers = text.replace(said, "…"), headers.replace(said, "…")
        return self.status, headers, text


def path_of(operation: Operation, **parts: object) -> str:
    """The path of an operation, with these parts and, for the rest, those of its example."""
    given = {**operation.path_examples, **parts}
    return _PART.sub(lambda found: quote(str(given[found[1]]), safe=""), operation.path)


async def ask(
    hub: Served,
    operation: Operation,
    key: str | None,
    *,
    query: Mapping[str, Any] | None = None,
    body: Any = None,
    headers: Mapping[str, str] | None = None,
    **parts: object,
) -> Heard:
    """Ask for the operation, with the example of its body unless another is given."""
    document = operation.example if body is None else body
    request = hub.client.build_request(
        operation.method,
        path_of(operation, **parts),
        params=dict(query or {}),
        json=document if operation.body is not None or operation.raw else None,
        headers={**({} if key is None else {"authorization": f"Bearer {key}"}), **(headers or {})},
    )
    answer = await hub.client.send(request, stream=True)
    try:
        text = "" if _goes_on(answer) else (await answer.aread()).decode()
    finally:
        await answer.aclose()
    kept = {name: value for name, value in answer.headers.items() if name not in VARIES}
    return Heard(answer.status_code, kept, text)


@asynccontextmanager
async def open_stream(hub: Served, operation: Operation, key: str) -> AsyncIterator[AsyncIterator[str]]:
    """What a stream says, as it comes."""
    headers = {"authorization": f"Bearer {key}"}
    async with hub.client.stream(operation.method, path_of(operation), headers=headers) as answer:
        assert answer.status_code == 200
        yield answer.aiter_text()


def _goes_on(answer: httpx2.Response) -> bool:
    return answer.headers.get("content-type", "").startswith("text/event-stream")
