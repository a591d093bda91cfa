"""The access log: every request has an id, is counted, and leaves one line that holds no secret."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Iterable, MutableMapping
from typing import TYPE_CHECKING, Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headrace.hub.auth.caller import ANYBODY

if TYPE_CHECKING:
    from headrace.hub.hub import Hub

__all__ = ["AccessLog"]

_log = logging.getLogger("headrace.hub.access")

HEADER = b"x-request-id"
_USABLE = re.compile(rb"[A-Za-z0-9._:/+=@-]{1,128}").fullmatch
"""What is accepted as a request id: it is written to logs and into the reply as it is."""
_ID = re.compile("[0-9A-Fa-f-]{32,36}")
"""What may be the id of a job in a path."""
_PROBES = frozenset({"/healthz", "/readyz", "/metrics"})
"""Requested every few seconds: logged at debug level only."""
_CALLS = "/rpc/"
"""Requested hundreds of times a second by remote workers: successes are logged at debug level only, too."""
HUNG_UP = 499
"""Logged, as nginx does, when the client left before the reply."""

_Counts = dict[tuple[str, int], list[float]]


class AccessLog:
    """Logs and counts every request."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._monotonic = hub.app.host.clock.monotonic
        self._token = hub.app.host.dice.token
        self.answered: _Counts = {}
        """By operation and status: the number of requests, and their seconds."""
        self.open = {"http": 0, "websocket": 0}
        """Requests and sockets under way."""

    async def serve(self, asgi: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request or one socket, then log it."""
        began, kind = self._monotonic(), scope["type"]
        id = _given(scope["headers"]) or b"%016x" % self._token()
        scope.setdefault("state", {})["request_id"] = id.decode()
        status = size = 0

        async def sending(message: Message) -> None:
            nonlocal status, size
            what = message["type"]
            if what == "http.response.body":
                size += len(message.get("body", b""))
            elif what == "http.response.start" or what == "websocket.http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", ()), (HEADER, id)]
            elif what == "websocket.accept":
                status = 101
                message["headers"] = [*message.get("headers", ()), (HEADER, id)]
            elif what == "websocket.send":
                size += len(message.get("text") or message.get("bytes") or b"")
            elif what == "websocket.close" and not status:
                status = 403
            await send(message)

        self.open[kind] += 1
        try:
            await asgi(scope, receive, sending)
        except asyncio.CancelledError:
            # The grace period is over: a request without a reply gets one, a reply that has begun is cut off.
            if not self._hub.draining.is_set() or status or kind != "http":
                raise
            await sending({"type": "http.response.start", "status": 503, "headers": _AGAIN})
            await sending({"type": "http.response.body", "body": _STOPS})
        finally:
            self.open[kind] -= 1
            self._done(scope, status or HUNG_UP, self._monotonic() - began, size)

    def _done(self, scope: Scope, status: int, seconds: float, size: int) -> None:
        endpoint = scope.get("endpoint")
        key = getattr(endpoint, "__name__", "none"), status
        counts = self.answered.get(key)
        if counts is None:
            counts = self.answered[key] = [0, 0.0]
        counts[0] += 1
        counts[1] += seconds
        if not self._hub.options.access_log:
            return
        path = _path(scope)
        here = path.removeprefix(scope.get("root_path", ""))
        quiet = here in _PROBES or (here.startswith(_CALLS) and status < 400)
        level = logging.DEBUG if quiet else logging.INFO
        if _log.isEnabledFor(level):
            _tell(level, scope, path, here, status, seconds, size)


def _tell(level: int, scope: Scope, path: str, here: str, status: int, seconds: float, size: int) -> None:
    """Log one line for people, with its parts as fields; ``here``: the path without the proxy's prefix."""
    state: MutableMapping[str, Any] = scope["state"]
    method = scope.get("method", "WS")
    caller, job = state.get("caller"), state.get("job_id")
    if job is None and here.startswith("/api/jobs/"):
        id = scope.get("path_params", {}).get("id", "")
        job = id if _ID.fullmatch(id) else None  # anything else is in the path, encoded
    facts = {
        "method": method,
        "path": path,
        "status": status,
        "duration": round(seconds, 6),
        "bytes": size,
        "request_id": state["request_id"],
        "client": (scope.get("client") or ("-",))[0],
    }
    about = ""
    if caller is not None and caller is not ANYBODY:
        facts["key"] = caller.name
        about += f" key {caller.name}"
    if job is not None:
        facts["job_id"] = str(job)
        about += f" job {job}"
    line = "%s %s %d %.1f ms %d B%s [%s]"
    _log.log(level, line, method, path, status, seconds * 1000, size, about, state["request_id"], extra=facts)


def _path(scope: Scope) -> str:
    """Return the path as requested, still encoded, so that it is one word of ASCII; without what follows ``?``."""
    raw: bytes = scope.get("raw_path") or scope["path"].encode("utf-8", "replace")
    return raw.partition(b"?")[0].decode("ascii", "replace")[:1000]


def _given(headers: Iterable[tuple[bytes, bytes]]) -> bytes | None:
    """Return the id that the client, or a proxy, gave to the request."""
    for name, value in headers:
        if name == HEADER:
            return value if _USABLE(value) else None
    return None


_STOPS = (
    b'{"type":"https://headrace.dev/problems/draining","title":"The hub stops","status":503,'
    b'"detail":"the hub stops, and the answer was not ready in time: ask again"}'
)
_AGAIN = [
    (b"content-type", b"application/problem+json"),
    (b"content-length", b"%d" % len(_STOPS)),
    (b"retry-after", b"1"),
    (b"connection", b"close"),
]
