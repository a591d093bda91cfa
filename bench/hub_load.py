"""Clients of a hub that cost as little as they can: the machine is shared with the hub that they measure."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from typing import cast
from urllib.parse import urlsplit

from bench.children import BrokenDown

__all__ = ["Heard", "connected", "get", "post", "pump", "subscribed", "upgrade", "where"]

PATIENCE = 120.0
_LENGTH = re.compile(rb"content-length: (\d+)", re.IGNORECASE)


def where(address: str) -> tuple[str, int]:
    """The host and the port of an address."""
    found = urlsplit(address)
    assert found.hostname is not None
    assert found.port is not None
    return found.hostname, found.port


def get(path: str) -> bytes:
    """The bytes of a request."""
    return f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()


def upgrade(path: str) -> bytes:
    """The bytes of a request for a WebSocket."""
    head = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    return f"{head}Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n".encode()


def post(path: str, document: object) -> bytes:
    """The bytes of a request with a body."""
    body = json.dumps(document).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
    return head.encode() + b"\r\n\r\n" + body


class _Client(asyncio.Protocol):
    """Asks the next as soon as it is answered."""

    def __init__(self, requests: Iterator[bytes], done: asyncio.Future[None], spans: list[float]) -> None:
        self._requests, self._done, self._spans = requests, done, spans
        self._got, self._need, self._asked_at = bytearray(), 0, 0.0
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # that of uvloop is none by name
        self._ask()

    def _ask(self) -> None:
        assert self._transport is not None
        request = next(self._requests, None)
        if request is None:
            self._transport.close()
            if not self._done.done():
                self._done.set_result(None)
            return
        self._asked_at = time.perf_counter()
        self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        got = self._got
        got += data
        if not self._need:
            end = got.find(b"\r\n\r\n")
            if end < 0:
                return
            length = _LENGTH.search(got, 0, end)
            assert length is not None
            self._need = end + 4 + int(length[1])
        if len(got) >= self._need:
            self._spans.append(time.perf_counter() - self._asked_at)
            if got[9:10] != b"2":
                self._done.set_exception(BrokenDown(f"the hub answered {bytes(got[:300])!r}"))
                return
            del got[:]
            self._need = 0
            self._ask()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._done.done():
            self._done.set_exception(BrokenDown(f"the hub hung up: {exc}"))


async def pump(address: str, requests: Iterator[bytes], clients: int) -> tuple[float, list[float]]:
    """Have so many clients, with keep-alive, ask all of these; the seconds it took, and those of each request."""
    loop, spans = asyncio.get_running_loop(), list[float]()
    place = where(address)
    futures = [loop.create_future() for _ in range(clients)]
    began = time.perf_counter()
    for done in futures:
        await loop.create_connection(partial(_Client, requests, done, spans), *place)
    async with asyncio.timeout(PATIENCE):
        await asyncio.gather(*futures)
    return time.perf_counter() - began, spans


@contextmanager
def connected() -> Iterator[list[asyncio.Transport]]:
    """A place for connections, which are cut off at the end."""
    transports: list[asyncio.Transport] = []
    try:
        yield transports
    finally:
        for one in transports:
            one.abort()


class Heard(asyncio.Protocol):
    """Follows one job, and notes for how long each change of its status was under way."""

    def __init__(self, request: bytes, told: Callable[[str, float], None]) -> None:
        self._request, self._told, self._got = request, told, bytearray()
        self.open = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        cast("asyncio.Transport", transport).write(self._request)

    def data_received(self, data: bytes) -> None:
        now = time.time()
        self._got += data
        *events, rest = bytes(self._got).split(b"\n\n")
        self._got = bytearray(rest)
        for event in events:
            if b"event: snapshot" in event and not self.open.done():
                self.open.set_result(None)
            elif b"event: status\n" in event:
                said = json.loads(event.partition(b"data: ")[2].partition(b"\n")[0])
                self._told(said["status"], now - _seconds(said["at"]))


def _seconds(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


async def subscribed(
    address: str, paths: Sequence[str], told: Callable[[str, float], None], transports: list[asyncio.Transport]
) -> None:
    """Follow all of these, and return when each was told how its job stands."""
    loop, place = asyncio.get_running_loop(), where(address)
    for start in range(0, len(paths), 100):
        some = [partial(Heard, get(path), told) for path in paths[start : start + 100]]
        made = await asyncio.gather(*(loop.create_connection(one, *place) for one in some))
        transports += [transport for transport, _ in made]
        await asyncio.gather(*(heard.open for _, heard in made))
