"""HTTP/1.1 as a client of a hub needs it: its address, and persistent connections, one request on each at a time.

A library for everything that HTTP can be costs five times as much for each call (docs/decisions/remote-engine.md).
"""

from __future__ import annotations

import asyncio
import os
import re
import ssl
from typing import Any, NamedTuple, cast

import msgspec

from headrace.core.auth.api_keys import SHOWN_KEY_CHARACTERS

__all__ = ["Address", "Answer", "Lost", "NotSent", "Pool", "Reading"]


class Address(msgspec.Struct, frozen=True, kw_only=True):
    """A hub, and the key to it."""

    host: str
    port: int
    tls: bool = False
    root: str = ""
    """The prefix of all of its paths, as in ``/jobs``; a proxy may have added it."""
    key: str | None = None

    def __repr__(self) -> str:  # the key opens everything
        return f"<Address {self}>"

    def __str__(self) -> str:
        return f"{'https' if self.tls else 'http'}://{self.authority}{self.root}"

    @property
    def authority(self) -> str:
        """Host and port, as a request names them."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == (443 if self.tls else 80) else f"{host}:{self.port}"

    @property
    def hints(self) -> str:
        """The URL for hints."""
        return f"{'wss' if self.tls else 'ws'}://{self.authority}{self.root}/rpc/hints"

    @property
    def headers(self) -> dict[str, str]:
        """The header that authenticates."""
        return {} if self.key is None else {"Authorization": f"Bearer {self.key}"}

    @property
    def whose(self) -> str:
        """The key in words, without its secret part."""
        return "no key" if self.key is None else f"the key {self.key[:SHOWN_KEY_CHARACTERS]}…"


MAX_HEAD_BYTES = 64 * 1024
"""Bytes of the head of a reply, and of what is between chunks."""
MAX_CONNECTIONS = 16
"""How many calls are under way at once; more wait for one of them."""
_CONNECT_TIMEOUT_SECONDS = 10.0
"""Seconds for a connection."""
_SIZE = re.compile(rb"[0-9A-Fa-f]{1,16}").fullmatch


class Answer(NamedTuple):
    """The reply of a hub, or of a proxy in front of it."""

    status: int
    kind: bytes
    """Its media type."""
    body: bytes


class NotSent(Exception):
    """There is no connection: nothing was sent."""


class Lost(Exception):
    """The request was sent, and no whole reply came."""

    def __init__(self, why: str, *, untouched: bool = False) -> None:
        super().__init__(why)
        self.untouched = untouched
        """Nothing came on a reused connection: most likely the other side had just closed it."""


class Reading:
    """One reply, as its bytes come."""

    def __init__(self) -> None:
        self._data = bytearray()
        self._left: int | None = 0
        """Bytes of the body, or of the chunk, that are missing; None: it ends with the connection."""
        self._chunks: list[bytes] | None = None
        self._kind, self.status = b"", 0
        self.keeps = True
        """Whether the connection can be used again."""
        self.body: bytes | None = None
        """Set once all of it is here."""

    @property
    def begun(self) -> bool:
        """Return whether anything has come."""
        return self.status != 0 or bool(self._data)

    @property
    def answer(self) -> Answer:
        """Return the whole reply."""
        assert self.body is not None
        return Answer(self.status, self._kind, self.body)

    def feed(self, data: bytes) -> bool:
        """Take received bytes; return whether the reply is whole; :raises ValueError: this is no HTTP"""
        self._data += data
        if not self.status and not self._read_head():
            return False
        if self._chunks is not None:
            return self._read_chunks(self._chunks)
        if self._left is None or len(self._data) < self._left:
            return False
        self.body = bytes(self._data[: self._left])
        self.keeps = self.keeps and len(self._data) == self._left
        return True

    def end(self) -> bool:
        """Note that nothing more comes; return whether the reply is whole."""
        if self.status and self._chunks is None and self._left is None:
            self.body = bytes(self._data)
        return self.body is not None

    def _read_head(self) -> bool:
        while (end := self._data.find(b"\r\n\r\n")) >= 0:
            first, *lines = bytes(self._data[:end]).split(b"\r\n")
            del self._data[: end + 4]
            version, status = first[:9], first[9:12]
            if version not in (b"HTTP/1.1 ", b"HTTP/1.0 ") or not status.isdigit() or first[12:13] not in (b"", b" "):
                raise ValueError(f"{first[:40]!r} is no answer of HTTP/1.1")
            if status.startswith(b"1"):  # another head follows
                continue
            self.status, self.keeps = int(status), version == b"HTTP/1.1 "
            self._read_fields(dict(_field(line) for line in lines))
            return True
        if len(self._data) > MAX_HEAD_BYTES:
            raise ValueError("the head of the answer has no end")
        return False

    def _read_fields(self, fields: dict[bytes, bytes]) -> None:
        self._kind = fields.get(b"content-type", b"").partition(b";")[0].strip().lower()
        if fields.get(b"connection", b"").lower() == b"close":
            self.keeps = False
        if self.status in (204, 304):  # they have no body, whatever their fields say of one
            return
        if (coding := fields.get(b"transfer-encoding")) is not None:
            if coding.lower() != b"chunked":
                raise ValueError(f"transfer-encoding {coding[:40]!r} is unknown here")
            self._chunks = []
        elif (length := fields.get(b"content-length")) is not None:
            if not length.isdigit():
                raise ValueError(f"content-length {length[:40]!r} is no number")
            self._left = int(length)
        else:
            self._left, self.keeps = None, False

    def _read_chunks(self, chunks: list[bytes]) -> bool:
        while True:
            end = self._data.find(b"\r\n")
            if end < 0:
                if len(self._data) > MAX_HEAD_BYTES:
                    raise ValueError("a chunk of the answer has no size")
                return False
            line = bytes(self._data[:end])
            if self._left is None:  # behind the last chunk, line by line, until an empty one
                del self._data[: end + 2]
                if not line:
                    self.body = b"".join(chunks)
                    self.keeps = self.keeps and not self._data
                    return True
                continue
            written = line.partition(b";")[0].strip()
            if not _SIZE(written):
                raise ValueError(f"a chunk of the answer has the size {written[:40]!r}")
            size = int(written, 16)
            if not size:
                del self._data[: end + 2]
                self._left = None
                continue
            whole = end + 2 + size
            if len(self._data) < whole + 2:
                return False
            if self._data[whole : whole + 2] != b"\r\n":
                raise ValueError("a chunk of the answer is not as long as it says")
            chunks.append(bytes(self._data[end + 2 : whole]))
            del self._data[: whole + 2]


def _field(line: bytes) -> tuple[bytes, bytes]:
    name, _, value = line.partition(b":")
    return name.lower(), value.strip()


class Connection(asyncio.Protocol):
    """A persistent connection: a request, its reply, the next request."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._reading: Reading | None = None
        self._waiter: asyncio.Future[Answer] | None = None
        self._answered = False
        self.usable = True
        """Whether another request may be sent."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def ask(self, request: bytes) -> asyncio.Future[Answer]:
        """Send a request; return its reply, or ``Lost``."""
        assert self._transport is not None
        self._waiter = waiter = asyncio.get_running_loop().create_future()
        self._reading = Reading()
        self._transport.write(request)
        return waiter

    def data_received(self, data: bytes) -> None:
        reading, waiter = self._reading, self._waiter
        if reading is None or waiter is None or waiter.done():
            self.cut()  # there is no request
            return
        try:
            if not reading.feed(data):
                return
        except ValueError as error:
            waiter.set_exception(Lost(f"what it answered is not understood: {error}"))
            self.cut()
            return
        self._answer(reading, waiter)

    def _answer(self, reading: Reading, waiter: asyncio.Future[Answer]) -> None:
        self._reading = self._waiter = None
        self._answered = True
        waiter.set_result(reading.answer)
        if not reading.keeps:
            self.cut()

    def connection_lost(self, exc: Exception | None) -> None:
        self.usable = False
        reading, waiter = self._reading, self._waiter
        if reading is None or waiter is None or waiter.done():
            return
        if exc is None and reading.end():
            self._answer(reading, waiter)
        else:
            why = "the connection was lost" if exc is None else f"the connection was lost ({exc})"
            waiter.set_exception(Lost(why, untouched=self._answered and not reading.begun))

    def cut(self) -> None:
        """Close it at once."""
        self.usable = False
        if self._transport is not None:
            self._transport.abort()


class Pool:
    """The connections of one session to one hub."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._idle: list[Connection] = []
        self._room = asyncio.Semaphore(MAX_CONNECTIONS)
        self._tls: ssl.SSLContext | None = None

    async def ask(self, request: bytes, patience: float, *, fresh: bool = False) -> Answer:
        """Send a request, and wait so many seconds for its reply; ``fresh``: not on a reused connection.

        :raises NotSent: there is no connection :raises Lost: no whole reply came
        """
        async with self._room:
            if fresh:
                self.drop_idle()
            connection = self._kept() or await self._connect()
            waiter = connection.ask(request)
            try:
                async with asyncio.timeout(patience):
                    answer = await waiter
            except TimeoutError:
                raise Lost(f"it did not answer within {patience:g} s") from None
            finally:
                if waiter.cancelled() or not waiter.done():
                    connection.cut()  # no caller waits for its reply
            if connection.usable:
                self._idle.append(connection)
            return answer

    def _kept(self) -> Connection | None:
        while self._idle:
            if (connection := self._idle.pop()).usable:
                return connection
        return None

    async def _connect(self) -> Connection:
        address, loop = self._address, asyncio.get_running_loop()
        more: dict[str, Any] = {}
        if address.tls:
            if self._tls is None:
                self._tls = await asyncio.to_thread(ssl.create_default_context)  # which reads files
            more = {"ssl": self._tls}
        try:
            async with asyncio.timeout(_CONNECT_TIMEOUT_SECONDS):
                _, connection = await loop.create_connection(Connection, address.host, address.port, **more)
        except TimeoutError:
            raise NotSent(f"no connection within {_CONNECT_TIMEOUT_SECONDS:g} s") from None
        except (OSError, ssl.SSLError) as error:
            raise NotSent(_words(error)) from None
        return connection

    def drop_idle(self) -> None:
        """Close idle connections."""
        while self._idle:
            self._idle.pop().cut()

    async def close(self) -> None:
        """Wait for what is under way, and close all connections."""
        for _ in range(MAX_CONNECTIONS):
            await self._room.acquire()
        self.drop_idle()
        for _ in range(MAX_CONNECTIONS):
            self._room.release()


def _words(error: OSError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted ({error.verify_message}): SSL_CERT_FILE names those that are"
    if isinstance(error, ssl.SSLError):
        return f"no TLS ({error.reason or error}): is it hub+http:// and not hub+https://?"
    if error.errno is not None and error.errno > 0:  # asyncio adds the address, which is known
        return os.strerror(error.errno).lower()
    return (error.strerror or str(error)).lower()
