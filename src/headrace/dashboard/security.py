"""Protection against other sites: headers of every response, and a token that every action needs.

A page of another site can make a browser send requests here, with its cookies. But it cannot read the token in the
dashboard's pages, send JSON, or put one of these pages into a frame of its own.
"""

from __future__ import annotations

import hmac
from base64 import urlsafe_b64encode
from hashlib import sha256
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import Response

from headrace.dashboard.access import Viewer
from headrace.runtime.secrets import secret_bytes

__all__ = ["COOKIE", "HEADER", "PRIVATE", "Tokens", "is_foreign", "secured", "set_cookie"]

COOKIE = "headrace_form"
HEADER = "x-headrace-token"

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
PRIVATE = {
    "Content-Security-Policy": POLICY,
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), microphone=(), geolocation=()",
    "Cache-Control": "no-store",
}
"""For every response except those that are the same for all viewers."""


def secured(response: Response) -> Response:
    """Return the response with these headers, except those that it has itself."""
    for name, value in PRIVATE.items():
        response.headers.setdefault(name, value)
    return response


def set_cookie(request: Request, response: Response, name: str, value: str, max_age: int | None = None) -> None:
    """Set a cookie that neither scripts nor other sites can read."""
    response.set_cookie(
        name,
        value,
        max_age=max_age,
        path=request.scope.get("root_path") or "/",
        # A proxy that terminates TLS may not announce it, but the browser names its own origin when it logs in.
        secure=request.url.scheme == "https" or request.headers.get("origin", "").startswith("https://"),
        httponly=True,
        samesite="strict",
    )


def is_foreign(request: Request) -> bool:
    """Return whether a page of another site, or no page at all, made the browser send this; programs do not say."""
    site = request.headers.get("sec-fetch-site")
    if site is not None:
        return site != "same-origin"
    origin = request.headers.get("origin")
    return origin is not None and urlsplit(origin).netloc != request.headers.get("host")


class Tokens:
    """Makes and checks the tokens that every unsafe request carries."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    @staticmethod
    def browser(request: Request) -> tuple[str, bool]:
        """Return the id of this browser, and whether it is new and has to be set."""
        given = request.cookies.get(COOKIE, "")
        if 20 <= len(given) <= 64 and given.isascii():
            return given, False
        return urlsafe_b64encode(secret_bytes(24)).decode(), True

    def token(self, browser: str, viewer: Viewer | None) -> str:
        """Return the token that a page of this viewer, in this browser, sends along."""
        # Includes the session, which is not in the store: the secret in the store is not enough to make a token.
        who = ("", "", "") if viewer is None else (viewer.name, viewer.key or "", viewer.session or "")
        return self.sign("form", browser, *who)

    def accepts(self, request: Request, viewer: Viewer | None, given: str) -> bool:
        """Return whether a page of the dashboard sent this."""
        browser, is_new = self.browser(request)
        wanted = self.token(browser, viewer)
        return not is_new and not is_foreign(request) and hmac.compare_digest(given.encode(), wanted.encode())

    def sign(self, *parts: str) -> str:
        """Return a signature of these texts."""
        text = "\0".join(f"{len(part)}:{part}" for part in parts)
        return urlsafe_b64encode(hmac.digest(self._secret, text.encode(), sha256)).decode().rstrip("=")
