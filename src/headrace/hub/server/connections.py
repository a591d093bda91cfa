"""Connections that nobody can keep busy by being slow: for heads that do not come, and for readers that do not read."""

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
"""Bytes of the head of a request, its first line and its headers."""

_SLICE_BYTES = 8 * 1024
"""Bytes of a read that are taken at a time."""
_FEW_FRAMES, _REST_SECONDS_PER_FRAME = 50, 25e-6
"""After so many frames in one slice a socket rests, for so many seconds a frame: some times as long as one takes."""
_MAX_MESSAGES_IN_A_ROW = 16
"""How many messages of one client are acted on before others have their turn."""
_MAX_TIMEOUTS_PER_REPLY = 20
"""In how many times the patience of the hub all of an answer must be read."""


def http_protocol(options: HubOptions, most: int) -> type[asyncio.Protocol]:
    """What makes the protocol of an HTTP connection; ``most`` are there at once."""
    return cast("type[asyncio.Protocol]", partial(_Http, patience=options.read_timeout, most=most))


def socket_protocol(options: HubOptions) -> type[asyncio.Protocol]:
    """What makes the protocol of a WebSocket."""
    return cast("type[asyncio.Protocol]", partial(_Socket, patience=options.read_timeout))


_COUNTED_AND_CHUNKED = {b"content-length", b"transfer-encoding"}
_LAST = (b"connection", b"close")
"""As if the client had said so: uvicorn closes after the answer."""


class _Unread:
    """Cuts a connection off whose other end reads next to nothing, and would keep what it was sent in memory.

    It must read a part of what is unread within each ``patience``: so who is slow is not cut off, and who is slow on
    purpose keeps it for so many of them at most. Closing would wait until it is read.
    """

    transport: asyncio.Transport
    loop: asyncio.AbstractEventLoop
    _patience: float
    _unread: asyncio.TimerHandle | None = None
    _left = _least = 0

    def pause_writing(self) -> None:
        super().pause_writing()  # type: ignore[misc]  # of the protocol that this is mixed into
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
    """A transport that sends the head of an answer with its body: uvicorn writes them one after the other, which is two
    system calls, two packets, and two times that the client is woken.

    What is written first waits for what follows in the same round of the loop, and no longer.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport, self._loop = transport, loop
        self._held = b""
        self._write = transport.write

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        """Send this, or hold it for a moment."""
        held = self._held
        if held:
            self._held = b""
            self._write(held + data)
        elif data:
            self._held = data
            self._loop.call_soon(self._send)

    def close(self) -> None:
        """Close it after what is held."""
        self._send()
        self._transport.close()

    def get_write_buffer_size(self) -> int:
        """Bytes that were written and not read."""
        return self._transport.get_write_buffer_size() + len(self._held)

    def _send(self) -> None:
        held, self._held = self._held, b""
        if held and not self._transport.is_closing():
            self._write(held)


class _Bounded(h11.Connection):
    """A connection whose heads are bounded also if they come in one piece: h11 counts what it must wait for alone."""

    def __init__(self, most: int) -> None:
        super().__init__(h11.SERVER, most)
        self._most = most

    def next_event(self) -> h11.Event | type[h11.NEED_DATA | h11.PAUSED]:
        event = super().next_event()
        if isinstance(event, h11.Request) and _size_of(event) > self._most:
            raise h11.RemoteProtocolError("the head is too large")
        return event


def _size_of(head: h11.Request) -> int:
    """Bytes of a head, as they are usually written."""
    line = len(head.method) + len(head.target) + len(b"  HTTP/1.1\r\n")
    return line + sum(len(name) + len(value) + len(b": \r\n") for name, value in head.headers) + len(b"\r\n")


class _Http(_Unread, H11Protocol):
    def __init__(self, *, patience: float, most: int, **given: Any) -> None:
        super().__init__(**given)
        self.conn = _Bounded(MAX_HEAD_BYTES)
        self._patience, self._most = patience, most
        self._head: asyncio.TimerHandle | None = None
        """Runs while a head is awaited."""

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
            self._await_head()  # mostly the head is there at once, and no timer is set for it

    def handle_events(self) -> None:
        before = self.cycle
        super().handle_events()
        if self.cycle is not before and dict(self.headers).keys() >= _COUNTED_AND_CHUNKED:
            # Whoever stands in front may have gone by the length, and what follows the chunks may be somebody else's
            # body: it is not listened to (RFC 9112, 6.1).
            self.headers.append(_LAST)

    def handle_websocket_upgrade(self, event: h11.Request) -> None:
        self.transport = self._bare  # messages are one write each
        super().handle_websocket_upgrade(event)

    def connection_lost(self, exc: Exception | None) -> None:
        self._head_came()
        self._read()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no HTTP, in the form of every other problem."""
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
            if self.conn.their_state is not h11.SEND_BODY:  # whose request has been answered: nobody asked again
                self.transport.write(_SLOW)
            self.transport.close()


class _Socket(_Unread, WebSocketsSansIOProtocol):
    """A WebSocket that keeps no more of a client than one read, one message and what they are answered, and leaves most
    of the time to others.

    A read may hold tens of thousands of empty frames. So it is taken a slice at a time: not while the message before
    waits to be taken, nor while the client reads nothing (each ping would leave a pong here), and after many frames
    only when others have had their turn.
    """

    def __init__(self, *, patience: float, **given: Any) -> None:
        super().__init__(**given)
        self._patience = patience
        self._came, self._at = b"", 0
        """What was read, and up to where it was taken."""
        self._count = self._in_a_row = 0
        """Frames of a slice, and messages that were taken without waiting for one."""
        self._rest: asyncio.TimerHandle | None = None
        """Runs while others have their turn."""
        self._parts: bytearray | None = None
        """What came of a message in pieces."""

    def data_received(self, data: bytes) -> None:
        self._came, self._at = self._came[self._at :] + data, 0
        self._go_on()

    def _go_on(self) -> None:
        """Take what came, as far as that may be, and read on if all of it is taken."""
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
        early = self.handshake_initiated and not self.handshake_complete  # where uvicorn stumbles over wrong frames
        waits = early or self.read_paused or self._rest is not None or not self.writable.is_set()
        return not waits and not self.transport.is_closing()

    def _rested(self) -> None:
        self._rest = None
        self._go_on()

    def handle_events(self) -> None:
        """Act on frames, and count them."""
        self._count += len(self.conn.events)
        super().handle_events()

    def pause_writing(self) -> None:
        super().pause_writing()
        self.transport.pause_reading()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._go_on()

    async def receive(self) -> Any:
        """The next message; of many at once, some before others have their turn."""
        self._in_a_row = 0 if self.queue.empty() else self._in_a_row + 1
        if self._in_a_row >= _MAX_MESSAGES_IN_A_ROW:
            self._in_a_row = 0
            await asyncio.sleep(0)
        message = await super().receive()
        self._go_on()
        return message

    async def send(self, message: Any) -> None:
        """Send one; from the first on, and behind the last until the other side closes, too, what comes is taken."""
        await super().send(message)
        if message["type"] != "websocket.send":
            self._go_on()

    def handle_cont(self, event: Frame) -> None:
        """Take a part of a message. A list of parts costs many times what they hold, and of empty ones there may be any
        number; the limit of a frame counts what is in them."""
        if self._parts is None:
            self._parts, self.frames = bytearray().join(self.frames), []
        self._parts += event.data
        if event.fin:
            self.frames, self._parts = [bytes(self._parts)], None
            self.send_receive_event_to_app()

    def send_receive_event_to_app(self) -> None:
        """Pass a message on; a text that is none ends the socket, and is no error of the hub's that must be logged."""
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
        # Nobody said goodbye, unless that is in the queue by now. uvicorn says 1005, as of a goodbye without a code.
        self.queue.put_nowait({"type": "websocket.disconnect", "code": 1006})
        if self._rest is not None:
            self._rest.cancel()
        super().connection_lost(exc)


def _problem(status: bytes, kind: bytes, title: bytes, detail: bytes, *more: bytes) -> bytes:
    """A whole answer, for those who are not let in."""
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
