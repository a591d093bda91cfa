"""Remote engines beside a hub, and hubs that are none, for tests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from headrace.core.defaults import Rules
from headrace.engine.wire import MIN_PROTOCOL, PROTOCOL, Hello
from headrace.engines.remote import RemoteEngine
from headrace.engines.remote.connection import Address
from headrace.runtime.host import Host
from tests.hub.serving import Served

__all__ = ["Peer", "answering", "far", "opened"]


def far(port: int | Served, key: str | None = None, root: str = "") -> RemoteEngine:
    """A session with the hub on this port."""
    number = port if isinstance(port, int) else int(port.address.rpartition(":")[2])
    return RemoteEngine(Address(host="127.0.0.1", port=number, root=root, key=key), rules=Rules(), host=Host())


@asynccontextmanager
async def opened(port: int | Served, key: str | None = None, root: str = "") -> AsyncIterator[RemoteEngine]:
    """An open one."""
    engine = far(port, key, root)
    await engine.open()
    try:
        yield engine
    finally:
        await engine.close()


class Peer:
    """What answers in the place of a hub."""

    def __init__(self, **hello: Any) -> None:
        rules, store = Rules(), {"headrace": "9.9", "store": "sqlite", "most": 1000}
        self.hello: Any = {
            **msgspec.to_builtins(
                Hello(newest=PROTOCOL, oldest=MIN_PROTOCOL, headrace="", store="", most=0, rules=rules, gone_after=1)
            ),
            **store,
            **hello,
        }
        self.answer: tuple[int, str, bytes] = (200, "application/msgpack", b"\xc0")
        """To everything but hello: status, type, body."""
        self.asked: list[bytes] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection."""
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                size = next((int(line[15:]) for line in head.split(b"\r\n") if line.startswith(b"Content-Length")), 0)
                self.asked.append(head + await reader.readexactly(size))
                status, kind, body = self.answer
                if b"/rpc/hello " in head:
                    status, kind, body = 200, "application/json", msgspec.json.encode(self.hello)
                said = f"HTTP/1.1 {status} X\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
                writer.write(said.encode() + body)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def answering(peer: Peer) -> AsyncIterator[int]:
    """The port on which it answers."""
    server = await asyncio.start_server(peer.serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
