"""Responses of Starlette that are built without checks, since their body and headers are known."""

from __future__ import annotations

from collections.abc import Iterable

from starlette.responses import Response

__all__ = ["Made"]


class Made(Response):
    """A body with its media type and headers, which are named in lower case."""

    def __init__(self, body: bytes, status: int, media: bytes, headers: Iterable[tuple[bytes, bytes]] = ()) -> None:
        self.body, self.status_code, self.background = body, status, None
        self.raw_headers = [*headers, (b"content-length", b"%d" % len(body)), (b"content-type", media)]
