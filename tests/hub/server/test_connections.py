"""Connections that somebody misuses: control frames, messages in pieces and heads without end cost no memory."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
import sys
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from starlette.websockets import WebSocket

from headrace.hub import HubOptions
from headrace.hub.server.connections import MAX_HEAD_BYTES
from tests.hub.serving import Served, serving
from tests.hub.timing import asked
from tests.support.until import until

UPGRADE = (
    b"GET /ws HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: " + b64encode(b"0123456789abcdef") + b"\r\n\r\n"
)
TEXT, CONT, PING, PONG = 0x1, 0x0, 0x9, 0xA
LAST = 0x80
FLOOD = 8 * 1024 * 1024
"""Bytes of pings: far more than systems keep for connections of ``SMALL`` buffers."""
SMALL = 32 * 1024
MOST = 1024 * 1024
"""Bytes that may wait for one who does not read: those of one read, and what is written before writing is paused."""


def frame(first: int, data: bytes = b"") -> bytes:
    """A short frame of a client, masked with zeros."""
    assert len(data) < 126
    return struct.pack("BB", first, 0x80 | len(data)) + bytes(4) + data


class Client:
    """A socket of a client that reads only when it is told to."""

    def __init__(self, made: socket.socket, protocol: Any) -> None:
        self.made, self.protocol = made, protocol
        self._heard = b""

    async def say(self, said: bytes) -> None:
        await asyncio.get_running_loop().sock_sendall(self.made, said)

    async def hear(self) -> tuple[int, bytes]:
        """The next frame of the hub: its kind, and what is in it."""
        first, length = await self._take(2)
        if length == 126:
            (length,) = struct.unpack(">H", await self._take(2))
        return first & 0x0F, await self._take(length)

    async def hear_all(self) -> None:
        """Read whatever comes."""
        while True:
            await self.hear()

    async def _take(self, size: int) -> bytes:
        while len(self._heard) < size:
            more = await asyncio.get_running_loop().sock_recv(self.made, 1024 * 1024)
            assert more, "the hub hung up"
            self._heard += more
        taken, self._heard = self._heard[:size], self._heard[size:]
        return taken


@asynccontextmanager
async def connected(hub: Served) -> AsyncIterator[Client]:
    """A socket at ``/ws``, with small buffers on both sides."""
    loop = asyncio.get_running_loop()
    with socket.socket() as made:
        made.setblocking(False)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL)
        await loop.sock_connect(made, ("127.0.0.1", int(hub.address.rpartition(":")[2])))
        await loop.sock_sendall(made, UPGRADE)
        head = b""
        while b"\r\n\r\n" not in head:
            head += await loop.sock_recv(made, 1)
        assert head.startswith(b"HTTP/1.1 101 ")
        (protocol,) = [one for one in hub.server.server_state.connections if hasattr(one, "frames")]
        theirs = protocol.transport.get_extra_info("socket")
        for option in (socket.SO_RCVBUF, socket.SO_SNDBUF):
            theirs.setsockopt(socket.SOL_SOCKET, option, SMALL)
        yield Client(made, protocol)


@pytest.fixture
async def hub(tmp_path: Path) -> AsyncIterator[Served]:
    options = HubOptions(maintenance=False, webhooks=False, read_timeout=60)
    async with serving(f"sqlite:///{tmp_path}/jobs.db", options) as made:
        yield made


async def test_pings_of_one_who_does_not_read_are_not_read_either(hub: Served) -> None:
    one = frame(LAST | PING, b"x" * 125)
    async with connected(hub) as client:
        transport = client.protocol.transport
        flood = asyncio.create_task(client.say(one * (FLOOD // len(one))))
        await until(lambda: flood.done() or not transport.is_reading(), what="the hub reads no more")
        assert not flood.done(), "it took all of them"
        assert transport.get_write_buffer_size() < MOST
        assert (await hub.client.get("/api/version")).status_code == 200
        usual, others = await asked(hub.client.get), asyncio.create_task(asked(hub.client.get))
        for _ in range(FLOOD // len(one)):  # who reads is read from again
            assert await client.hear() == (PONG, b"x" * 125)
        await flood
        (await others).as_usual(usual)
        await client.say(frame(LAST | TEXT, b'{"type":"ping"}'))
        assert json.loads((await client.hear())[1])["type"] == "pong"


async def test_a_message_is_taken_while_writing_is_paused_and_no_more_is_read(hub: Served) -> None:
    async with connected(hub) as client:
        transport = client.protocol.transport
        client.protocol.pause_writing()
        await client.say(frame(LAST | TEXT, b'{"type":"ping"}'))
        assert not transport.is_reading()
        client.protocol.queue.put_nowait({"type": "websocket.receive", "text": '{"type":"ping"}'})
        client.protocol.read_paused = True  # as uvicorn leaves it until the message is taken
        await until(client.protocol.queue.empty)
        assert not transport.is_reading(), "uvicorn has read on"
        client.protocol.resume_writing()
        for _ in range(2):
            assert json.loads((await client.hear())[1])["type"] == "pong"
        await until(transport.is_reading)


async def test_nothing_is_read_after_a_close_that_nobody_reads(hub: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    async with connected(hub) as client:
        protocol, transport = client.protocol, client.protocol.transport
        protocol.read_paused = True  # with a message that nobody has taken
        transport.pause_reading()
        monkeypatch.setattr(transport, "write", lambda data: protocol.pause_writing())  # the buffer is full with it
        await protocol.send({"type": "websocket.close"})
        assert not transport.is_reading(), "uvicorn waits for the other side to close, and reads its pings meanwhile"
        transport.abort()


async def test_frames_that_come_too_early_are_taken_when_the_socket_is_open(
    hub: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    entered, gate, accept = asyncio.Event(), asyncio.Event(), WebSocket.accept

    async def slowly(self: WebSocket, *given: Any, **more: Any) -> None:
        entered.set()
        await gate.wait()
        await accept(self, *given, **more)

    monkeypatch.setattr(WebSocket, "accept", slowly)
    reader, writer = await asyncio.open_connection("127.0.0.1", int(hub.address.rpartition(":")[2]))
    writer.write(UPGRADE)
    await entered.wait()
    (protocol,) = [one for one in hub.server.server_state.connections if hasattr(one, "frames")]
    writer.write(b"\xff" * 6)
    await until(lambda: not protocol.transport.is_reading())
    gate.set()
    assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 101 ")
    assert (await reader.read())[2:4] == struct.pack(">H", 1002)
    writer.close()


@pytest.mark.parametrize("part", [b"", b" "], ids=["empty", "one byte"])
async def test_pieces_of_a_message_cost_what_is_in_them(hub: Served, part: bytes) -> None:
    count = 50_000
    async with connected(hub) as client:
        await client.say(frame(TEXT, b'{"type":') + frame(CONT, part) * count + frame(LAST | PING))
        assert await client.hear() == (PONG, b""), "all before it was taken"
        kept = [client.protocol.frames, *client.protocol.frames, vars(client.protocol).get("_parts")]
        assert sum(map(sys.getsizeof, kept)) < 2 * count * len(part) + 1000
        assert (await hub.client.get("/api/version")).status_code == 200
        await client.say(frame(LAST | CONT, b'"ping"}'))
        assert json.loads((await client.hear())[1])["type"] == "pong"


@pytest.mark.parametrize(
    "one", [frame(LAST | PING), frame(LAST | PONG), frame(LAST | TEXT, b"1")], ids=["pings", "pongs", "messages"]
)
async def test_of_many_frames_in_one_read_some_are_taken_at_a_time(hub: Served, one: bytes) -> None:
    async with connected(hub) as client:
        protocol = client.protocol
        protocol.data_received(one * 5000)
        assert protocol._at <= 8 * 1024
        assert protocol.queue.qsize() <= 8 * 1024 // len(one)
        assert not protocol.transport.is_reading(), "no more is read meanwhile"
        reading = asyncio.create_task(client.hear_all())
        await until(protocol.transport.is_reading)
        assert not protocol._came, "all of it is taken, when others have had their turn"
        reading.cancel()


async def test_pieces_are_counted_together(tmp_path: Path) -> None:
    options = HubOptions(maintenance=False, webhooks=False, frame_most=1000)
    async with serving(f"sqlite:///{tmp_path}/jobs.db", options) as hub, connected(hub) as client:
        await client.say(frame(TEXT, b"{") + frame(CONT, b" ") * 1000)
        first, said = await client.hear()
        assert (first, said[:2]) == (0x8, struct.pack(">H", 1009))


async def _answer(hub: Served, *pieces: bytes) -> bytes:
    """The first line that the hub answers to what is sent in these pieces."""
    reader, writer = await asyncio.open_connection("127.0.0.1", int(hub.address.rpartition(":")[2]))
    try:
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
        async with asyncio.timeout(20):
            return (await reader.readline()).split(b" ")[1]
    finally:
        writer.close()


def _head(size: int, first: bytes = b"GET /healthz HTTP/1.1") -> bytes:
    """A head of so many bytes."""
    begun = first + b"\r\nHost: localhost\r\nX-Long: "
    return begun + b"a" * (size - len(begun) - 4) + b"\r\n\r\n"


@pytest.mark.parametrize("in_one_piece", [True, False])
async def test_the_head_of_a_request_is_bounded_however_it_comes(tmp_path: Path, in_one_piece: bool) -> None:
    def cut(head: bytes) -> list[bytes]:
        return [head] if in_one_piece else [head[at : at + 1000] for at in range(0, len(head), 1000)]

    async with serving(f"sqlite:///{tmp_path}/jobs.db") as hub:
        assert await _answer(hub, *cut(_head(MAX_HEAD_BYTES))) == b"200"
        for size in (MAX_HEAD_BYTES + 1, 3 * MAX_HEAD_BYTES) if in_one_piece else (3 * MAX_HEAD_BYTES,):
            assert await _answer(hub, *cut(_head(size))) == b"400"
        many = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n" + b"A: b\r\n" * 6000 + b"\r\n"
        assert await _answer(hub, *cut(many)) == b"400"
        target = b"GET /api/jobs?text=" + b"a" * MAX_HEAD_BYTES + b" HTTP/1.1\r\nHost: localhost\r\n\r\n"
        assert await _answer(hub, *cut(target)) == b"400"
        upgrade = UPGRADE.replace(b"\r\n\r\n", b"\r\nX-Long: " + b"a" * MAX_HEAD_BYTES + b"\r\n\r\n")
        assert await _answer(hub, *cut(upgrade)) == b"400"
