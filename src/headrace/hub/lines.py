"""Answers of any length, as lines of JSON: written as they come, for as long as the client reads."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Iterable
from contextlib import aclosing
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

__all__ = ["LINES", "lines_response", "wants_lines"]

LINES = "application/x-ndjson"

_encode_lines = msgspec.json.Encoder().encode_lines


def wants_lines(request: Request) -> bool:
    """Whether the answer is to be lines of JSON."""
    accepted = (one.partition(";")[0].strip().lower() for one in request.headers.get("accept", "").split(","))
    return LINES in accepted


def lines_response(request: Request, parts: AsyncGenerator[Iterable[Any], None]) -> Response:
    """The documents as they come, a line for each; those of one part are written together."""
    if request.method == "HEAD":
        return Response(media_type=LINES)
    return StreamingResponse(_written(parts), media_type=LINES)


async def _written(parts: AsyncGenerator[Iterable[Any], None]) -> AsyncIterator[bytes]:
    async with aclosing(parts):
        async for part in parts:
            yield _encode_lines(part)
