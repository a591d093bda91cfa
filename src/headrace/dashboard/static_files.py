"""The files of the dashboard that are the same for all viewers: stylesheets, scripts, an icon."""

from __future__ import annotations

from functools import cache
from hashlib import sha256
from importlib import resources

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from headrace.dashboard.security import secured

__all__ = ["route", "version"]

KINDS = {
    "dashboard.css": "text/css",
    "frame.css": "text/css",
    "dashboard.js": "text/javascript",
    "frame.js": "text/javascript",
    "icon.svg": "image/svg+xml",
}

FOR_EVER = "public, max-age=31536000, immutable"


@cache
def _content(name: str) -> bytes:
    return resources.files("headrace.dashboard").joinpath("static", name).read_bytes()


@cache
def version() -> str:
    """Return the version in their addresses, so that browsers may cache them: it changes whenever a file does."""
    return sha256(b"".join(map(_content, KINDS))).hexdigest()[:12]


async def _file(request: Request) -> Response:
    name = request.path_params["name"]
    if name not in KINDS:
        return secured(Response("There is no such file.\n", 404, media_type="text/plain"))
    kept = FOR_EVER if request.path_params["version"] == version() else "no-cache"
    return secured(Response(_content(name), headers={"Cache-Control": kept}, media_type=f"{KINDS[name]}"))


def route() -> Route:
    """Return the route of the files."""
    return Route("/static/{version}/{name}", _file, methods=["GET"], name="static")
