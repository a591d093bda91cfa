"""A hub without keys: it serves only programs on this machine, and no web page in a browser on it.

Such a page can send requests to this machine, and its own host name may resolve to this machine (DNS rebinding). But it
cannot choose the ``Host`` or the ``Origin`` of a request, or send JSON to a host that did not consent.
"""

from __future__ import annotations

from functools import lru_cache
from ipaddress import ip_address
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from starlette.types import Scope

from headrace.http.problems import Problem

if TYPE_CHECKING:
    from headrace.hub.options import HubOptions

__all__ = ["is_loopback", "refuse_strangers", "unsafe"]

_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
_JSON = frozenset({b"application/json", b"application/x-ndjson", b"application/msgpack"})
"""Media types that a page can send to another origin only after a preflight, to which a hub does not consent."""
_ASKED = frozenset(
    (
        b"host", b"origin", b"content-type", b"content-length", b"transfer-encoding", b"sec-fetch-site",
        b"sec-fetch-mode", b"sec-fetch-dest",
    )
)  # fmt: skip
_OF_PROXIES = frozenset({b"forwarded", b"x-forwarded-for", b"x-forwarded-host", b"x-real-ip", b"via"})
_PORTS = {"http": 80, "ws": 80, "https": 443, "wss": 443}

MAKE = "make a key: headrace keys create NAME --scope read,submit,act,admin"


def unsafe(options: HubOptions) -> str | None:
    """Return why a hub without keys must not have these options; None: it may."""
    if not is_loopback(options.host):
        return f"there are no keys, and {options.host} can be reached from elsewhere: stay on 127.0.0.1, or {MAKE}"
    if options.proxy_headers:
        return f"there are no keys, and behind a proxy everybody would look like this machine: {MAKE}"
    return None


@lru_cache(256)
def is_loopback(host: str) -> bool:
    """Return whether this name or address is of this machine alone."""
    if host.lower() == "localhost":
        return True
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def refuse_strangers(scope: Scope) -> None:
    """Refuse requests that do not come from a program on this machine.

    :raises Problem: 403
    """
    client = scope.get("client")
    if client is None or not is_loopback(client[0]):
        raise _refused(f"there are no keys, and so only this machine may ask: {MAKE}")
    asked: dict[bytes, bytes] = {}
    for name, value in scope["headers"]:
        if name in _ASKED:
            asked[name] = value
        elif name in _OF_PROXIES:
            raise _refused(f"there are no keys, and this came through a proxy: {MAKE}")
    host = asked.get(b"host", b"")
    if not _names_loopback(host):
        raise _refused(f"the Host must be localhost or 127.0.0.1, not {host.decode('latin-1')!r}")
    origin = asked.get(b"origin")
    if origin is not None and not _is_own(origin, scope.get("scheme", "http"), host):
        raise _refused(f"web pages of {origin.decode('latin-1')!r} may not ask this hub: it has no keys")
    if scope["type"] != "http":
        return
    if asked.get(b"sec-fetch-site", b"none") not in (b"none", b"same-origin") and not _is_visit(scope, asked):
        raise _refused("web pages of other sites may not ask this hub: it has no keys")
    if scope["method"] not in _SAFE:
        kind = asked.get(b"content-type", b"").partition(b";")[0].strip().lower()
        if kind not in _JSON and not _is_bare_of_program(asked):
            detail = "send it with Content-Type: application/json: this hub has no keys"
            raise Problem(415, "media-type", "The body must be JSON", detail)


@lru_cache(256)
def _names_loopback(host: bytes) -> bool:
    name = _split(f"http://{host.decode('latin-1')}")
    return name is not None and is_loopback(name[0])


@lru_cache(256)
def _is_own(origin: bytes, scheme: str, host: bytes) -> bool:
    """Return whether a page comes from this very hub."""
    page, here = _split(origin.decode("latin-1")), _split(f"{scheme}://{host.decode('latin-1')}")
    return page is not None and page == here


def _split(address: str) -> tuple[str, int | None] | None:
    try:
        parts = urlsplit(address)
        port = parts.port or _PORTS.get(parts.scheme)
    except ValueError:
        return None
    return None if not parts.hostname or parts.username is not None or parts.path else (parts.hostname, port)


def _is_visit(scope: Scope, asked: dict[bytes, bytes]) -> bool:
    """Return whether a browser follows a link to a page of the hub: no other page can read the response."""
    return (
        scope["method"] == "GET"
        and asked.get(b"sec-fetch-mode") == b"navigate"
        and asked.get(b"sec-fetch-dest") == b"document"
    )


def _is_bare_of_program(asked: dict[bytes, bytes]) -> bool:
    """Return whether a request has no body and does not come from a page: browsers name the page or its site in every
    request that is not safe, and a page cannot leave that out."""
    bodiless = asked.get(b"content-length", b"0") == b"0" and b"transfer-encoding" not in asked
    return bodiless and b"content-type" not in asked and b"origin" not in asked and b"sec-fetch-site" not in asked


def _refused(detail: str) -> Problem:
    return Problem(403, "stranger", "Only programs of this machine may ask", detail)
