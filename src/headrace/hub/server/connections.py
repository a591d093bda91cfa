"""Connections that slow clients cannot keep busy: timeouts for heads that do not come, and for unread replies."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any, cast

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import Frame

from headrace.hub.options import HubOptions

__all__ = ["MAX_HEAD_BYTES", "http_protocol", "socket_protocol"]

MAX_HEAD_BYTES = 32 * 1024
"""Maximum bytes of the head of a request: its first line and its headers."""

_SLICE_BYTES = 8 * 1024
"""Bytes of a read that are handled at a time."""
_FEW_FRAMES, _REST_SECONDS_PER_FRAME = 50, 25e-6
"""After so many frames in one slice a socket rests, for so many seconds a frame: several times what a frame takes."""
_MAX_MESSAGES_IN_A_ROW = 16
"""Messages of one client that are handled before other clients get a turn."""
_MAX_TIMEOUTS_PER_REPLY = 20
"""All of a reply must be read within so many times the read timeout."""


def http_protocol(options: HubOptions, most: int) -> type[asyncio.Protocol]:
    """Return the protocol of HTTP connections; ``most``: how many there may be at once."""
    return cast("type[asyncio.Protocol]", partial(_Http, patience=options.read_timeout, most=most))


def socket_protocol(options: HubOptions) -> type[asyncio.Protocol]:
    """Return the protocol of WebSockets."""
    return cast("type[asyncio.Protocol]", partial(_Socket, patience=options.read_timeout))


_COUNTED_AND_CHUNKED = {b"content-length", b"transfer-encoding"}
_LAST = (b"connection", b"close")
"""Added to the request's headers, after which uvicorn closes the connection behind the reply."""


class _Unread:
    """Cuts off a connection when its other end reads next to nothing, and would keep unread data in memory.

    The client must read a part of the unread data within each ``patience``: so a slow client is not cut off, and a
    hostile one keeps the data for a bounded number of them. Closing would wait until everything is read.
    """

    transport: asyncio.Transport
    loop: asyncio.AbstractEventLoop
    _patience: float
    _unread: asyncio.TimerHandle | None = None
    _left = _least = 0

    def pause_writing(self) -> None:
        super().pause_writing()  # type: ignore[misc]  # of the protocol that this class is mixed into
        self._left = self.transport.get_write_buffer_size()
        self._least = max(1, self._left // _MAX_TIMEOUTS_PER_REPLY)
        self._unread = self.loop.call_later(self._patience, self._look)

    def _look(self) -> None:
        left = self.transport.get_write_buffer_size()
        if self._left - left < self._least:
            self.transport.abort()
        else:
            self._left = left
            self._unread = self.loop.call_later(self._patience, self._look)

    def resume_writing(self) -> None:
        self._read()
        super().resume_writing()  # type: ignore[misc]

    def _read(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None


class _Joined:
    """A transport that sends the head of a reply with its body: uvicorn writes them one after the other, which costs
    two system calls, two packets, and wakes the client twice.

    The first write waits for what follows in the same round of the loop, and no longer.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport, self._loop = transport, loop
        self._held = b""
        self._write = transport.write

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        """Send the data, or hold it for a moment."""
        held = self._held
        if held:
            self._held = b""
            self._write(held + data)
        elif data:
            self._held = data
            self._loop.call_soon(self._send)

    def close(self) -> None:
        """Close it after sending what is held."""
        self._send()
        self._transport.close()

    def get_write_buffer_size(self) -> int:
        """Return the bytes that were written and not read."""
        return self._transport.get_write_buffer_size() + len(self._held)

    def _send(self) -> None:
        held, self._held = self._held, b""
        if held and not self._transport.is_closing():
            self._write(held)


class _Bounded(h11.Connection):
    """A connection that bounds heads also when they come in one piece: h11 counts only what it has to wait for."""

    def __init__(self, most: int) -> None:
        super().__init__(h11.SERVER, most)
        self._most = most

    def next_event(self) -> h11.Event | type[h11.NEED_DATA | h11.PAUSED]:
        event = super().next_event()
        if isinstance(event, h11.Request) and _size_of(event) > self._most:
            raise h11.RemoteProtocolError("the head is too large")
        return event


def _size_of(head: h11.Request) -> int:
    """Return the bytes of a head, as it is usually written."""
    line = len(head.method) + len(head.target) + len(b"  HTTP/1.1\r\n")
    return line + sum(len(name) + len(value) + len(b": \r\n") for name, value in head.headers) + len(b"\r\n")


class _Http(_Unread, H11Protocol):
    def __init__(self, *, patience: float, most: int, **given: Any) -> None:
        super().__init__(**given)
        self.conn = _Bounded(MAX_HEAD_BYTES)
        self._patience, self._most = patience, most
        self._head: asyncio.TimerHandle | None = None
        """Set while a head is awaited."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._bare, self.transport = transport, cast("asyncio.Transport", _Joined(transport, self.loop))
        if len(self.connections) > self._most:
            transport.write(_FULL)
            transport.close()
        else:
            self._await_head()

    def data_received(self, data: bytes) -> None:
        before = self.cycle
        super().data_received(data)
        if self.cycle is not before or self.transport.get_protocol() is not self:
            self._head_came()
        elif self._head is None and (before is None or before.response_complete):
            self._await_head()  # mostly the head is there at once, and needs no timer

    def handle_events(self) -> None:
        before = self.cycle
        super().handle_events()
        if self.cycle is not before and dict(self.headers).keys() >= _COUNTED_AND_CHUNKED:
            # A proxy in front may have used the length, and what follows the chunks may be another client's body: it is
            # not read (RFC 9112, 6.1).
            self.headers.append(_LAST)

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        self.transport = self._bare  # a message is one write
        super().handle_websocket_upgrade(event)

    def connection_lost(self, exc: Exception | None) -> None:
        self._head_came()
        self._read()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        """Refuse what is not HTTP, in the form of every other problem."""
        if not self.transport.is_closing():
            self.transport.write(_GARBLED)
            self.transport.close()

    def _await_head(self) -> None:
        self._head = self.loop.call_later(self._patience, self._too_slow)

    def _head_came(self) -> None:
        if self._head is not None:
            self._head.cancel()
            self._head = None

    def _too_slow(self) -> None:
        if not self.transport.is_closing():
            if self.conn.their_state is not h11.SEND_BODY:  # a client that still sends a body has its reply
                self.transport.write(_SLOW)
            self.transport.close()


class _Socket(_Unread, WebSocketsSansIOProtocol):
    """A WebSocket that keeps no more of a client than one read, one message and their replies, and leaves most of the
    time to other clients.

    A read may hold tens of thousands of empty frames. So it is handled a slice at a time: not while the previous
    message waits to be received, nor while the client reads nothing (each ping would leave a pong here), and after many
    frames only when other clients have had a turn.
    """

    def __init__(self, *, patience: float, **given: Any) -> None:
        super().__init__(**given)
        self._patience = patience
        self._came, self._at = b"", 0
        """The last read, and the offset up to which it was handled."""
        self._count = self._in_a_row = 0
        """Frames in this slice, and messages received without waiting."""
        self._rest: asyncio.TimerHandle | None = None
        """Set while other clients have their turn."""
        self._parts: bytearray | None = None
        """The parts of a fragmented message so far."""

    def data_received(self, data: bytes) -> None:
        self._came, self._at = self._came[self._at :] + data, 0
        self._go_on()

    def _go_on(self) -> None:
        """Handle the data as far as allowed, and read on when all of it is handled."""
        while self._at < len(self._came) and self._may_take():
            part = self._came[self._at : self._at + _SLICE_BYTES]
            self._at += len(part)
            self._count = 0
            super().data_received(part)
            if self._count > _FEW_FRAMES:
                self._rest = self.loop.call_later(self._count * _REST_SECONDS_PER_FRAME, self._rested)
        if self._at == len(self._came) and self._may_take():
            self._came, self._at = b"", 0
            if not self.transport.is_reading():
                self.transport.resume_reading()
        else:
            self.transport.pause_reading()

    def _may_take(self) -> bool:
        early = self.handshake_initiated and not self.handshake_complete  # where uvicorn fails on malformed frames
        waits = early or self.read_paused or self._rest is not None or not self.writable.is_set()
        return not waits and not self.transport.is_closing()

    def _rested(self) -> None:
        self._rest = None
        self._go_on()

    def handle_events(self) -> None:
        """Handle frames, and count them."""
        self._count += len(self.conn.events)
        super().handle_events()

    def pause_writing(self) -> None:
        super().pause_writing()
        self.transport.pause_reading()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._go_on()

    async def receive(self) -> Any:
        """Return the next message; of many at once, other clients get a turn after some."""
        self._in_a_row = 0 if self.queue.empty() else self._in_a_row + 1
        if self._in_a_row >= _MAX_MESSAGES_IN_A_ROW:
            self._in_a_row = 0
            await asyncio.sleep(0)
        message = await super().receive()
        self._go_on()
        return message

    async def send(self, message: Any) -> None:
        """Send a message; from the first one on, and after the last until the other side closes, handle data, too."""
        await super().send(message)
        if message["type"] != "websocket.send":
            self._go_on()

    def handle_cont(self, event: Frame) -> None:
        """Add a part of a message. A list of parts would cost many times their size, and there may be any number of
        empty ones; the limit of a frame counts their bytes."""
        if self._parts is None:
            self._parts, self.frames = bytearray().join(self.frames), []
        self._parts += event.data
        if event.fin:
            self.frames, self._parts = [bytes(self._parts)], None
            self.send_receive_event_to_app()

    def send_receive_event_to_app(self) -> None:
        """Pass a message on; text that is not UTF-8 ends the socket, and is not logged as an error of the hub."""
        if self.curr_msg_data_type == "text" and not self.close_sent:
            try:
                b"".join(self.frames).decode()
            except UnicodeDecodeError:
                self.frames = []
                self.conn.send_close(1007)
                self.handle_parser_exception()
                return
        super().send_receive_event_to_app()

    def connection_lost(self, exc: Exception | None) -> None:
        self._read()
        # The connection ended without a close frame, unless one is in the queue. uvicorn reports 1005, as for a close
        # frame without a code.
        self.queue.put_nowait({"type": "websocket.disconnect", "code": 1006})
        if self._rest is not None:
            self._rest.cancel()
        super().connection_lost(exc)


def _problem(status: bytes, kind: bytes, title: bytes, detail: bytes, *more: bytes) -> bytes:
    """Return a whole response, for connections that are refused."""
    number = status.partition(b" ")[0]
    body = b'{"type":"https://headrace.dev/problems/%s","title":"%s","status":%s,"detail":"%s"}' % (
        kind,
        title,
        number,
        detail,
    )
    head = [b"content-type: application/problem+json", b"content-length: %d" % len(body), b"connection: close", *more]
    return b"HTTP/1.1 %s\r\n%s\r\n\r\n%s" % (status, b"\r\n".join(head), body)


_SLOW = _problem(b"408 Request Timeout", b"too-slow", b"The request did not come in time", b"its head took too long")
_GARBLED = _problem(
    b"400 Bad Request",
    b"malformed",
    b"The request cannot be understood",
    b"it is not HTTP/1.1, or its head is too long",
)
_FULL = _problem(
    b"503 Service Unavailable",
    b"full",
    b"There are too many connections",
    b"the hub has as many connections as it may have: try again, or raise --sockets",
    b"retry-after: 5",
)
