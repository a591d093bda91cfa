"""The page that shows the OpenAPI document to people; it loads nothing from other hosts."""

from __future__ import annotations

import re
from base64 import b64encode
from functools import cache
from hashlib import sha256
from importlib import resources

from starlette.responses import Response

from headrace.hub.server.operation import Operation, OperationRequest

__all__ = ["OPERATIONS"]


@cache
def _page() -> tuple[bytes, str]:
    """Return the page, and the policy that allows only its own script and style."""
    text = resources.files("headrace.hub").joinpath("pages", "docs.html").read_text(encoding="utf-8")
    policy = {
        "default-src": "'none'",
        "script-src": _digest(text, "script"),
        "style-src": _digest(text, "style"),
        "img-src": "data:",
        "connect-src": "'self'",
        "base-uri": "'none'",
        "form-action": "'none'",
        "frame-ancestors": "'none'",
    }
    return text.encode(), "; ".join(f"{name} {value}" for name, value in policy.items())


def _digest(text: str, tag: str) -> str:
    [inner] = re.findall(rf"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
    return f"'sha256-{b64encode(sha256(inner.encode()).digest()).decode()}'"


async def docs(ask: OperationRequest) -> Response:
    """Return the page."""
    page, policy = _page()
    headers = {
        "Content-Security-Policy": policy,
        "Cache-Control": "no-cache",
        "Referrer-Policy": "no-referrer",
        "X-Content-Type-Options": "nosniff",
    }
    return Response(page, media_type="text/html; charset=utf-8", headers=headers)


OPERATIONS = (
    Operation(
        path="/docs",
        summary="This documentation, for people",
        scope=None,
        bounded="nothing",
        do=docs,
        gives={200: "text/html"},
        answered="<!doctype html>…",
    ),
)
