"""Lines of JSON: bodies that are read as they come, and responses that are written as the client reads."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import aclosing, suppress
from typing import Any

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from headrace.core.words import Vocabulary, worded
from headrace.http.problems import Problem
from headrace.hub.auth.caller import Caller
from headrace.hub.live.connections import Connections

__all__ = ["LINES", "MEDIA", "Lines", "NdjsonResponse", "lines_response", "wants_lines"]


MEDIA = "application/x-ndjson"

_GROUP_LINES = 500
"""Maximum lines that are handled together: their work must not delay other requests."""
_MAX_OPEN_GROUPS = 2
"""Groups that are handled at once: one is prepared while the other is being stored."""


class Lines:
    """Splits bytes into lines of at most ``most`` bytes."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._parts: list[bytes] = []
        self._size = 0

    def feed(self, data: bytes) -> list[bytes | None]:
        """Return the lines that end here; None for one that is too long, which is dropped. Empty ones are left out."""
        *ended, rest = data.split(b"\n")
        lines = [self._line(part) for part in ended]
        self._add(rest)
        return [line for line in lines if line is None or line]

    def end(self) -> list[bytes | None]:
        """Return the last line, if no line feed ended it."""
        return self.feed(b"\n")

    def _line(self, last: bytes) -> bytes | None:
        self._add(last)
        line = None if self._size > self._most else b"".join(self._parts).strip()
        self._parts, self._size = [], 0
        return line

    def _add(self, part: bytes) -> None:
        self._size += len(part)
        if self._size > self._most:
            self._parts.clear()
        elif part:
            self._parts.append(part)


class _Outbox:
    """Replies that wait to be sent; beyond so many bytes, adding more has to wait."""

    def __init__(self, most: int) -> None:
        self._most, self._parts, self._size = most, list[bytes](), 0
        self._closed = False
        self._changed = asyncio.Condition()

    async def put(self, data: bytes) -> None:
        async with self._changed:
            while self._size >= self._most:
                await self._changed.wait()
            self._parts.append(data)
            self._size += len(data)
            self._changed.notify_all()

    async def close(self) -> None:
        async with self._changed:
            self._closed = True
            self._changed.notify_all()

    async def take(self) -> bytes | None:
        """Return everything that waits; None after the last."""
        async with self._changed:
            while not self._parts and not self._closed:
                await self._changed.wait()
            if not self._parts:
                return None
            data, self._parts, self._size = b"".join(self._parts), [], 0
            self._changed.notify_all()
            return data


Prepare = Callable[[Sequence[bytes | None]], Awaitable[Any]]
Finish = Callable[[Any], Awaitable[bytes]]


class NdjsonResponse(Response):
    """Replies to a body of lines with lines. ``prepare`` is called with some lines at a time, one call after the other;
    ``finish`` with its result, while the next are prepared, and returns their replies.

    A client need not read before it has sent everything, as long as its replies are less than ``unread`` bytes. After
    that, no more is read until it reads. When nothing comes for ``patience`` seconds, the hub is about to stop, or the
    caller's key is revoked, received lines still get replies, and ``last`` returns the last line, which gives the
    reason.
    """

    media_type = MEDIA

    def __init__(
        self,
        request: Request,
        prepare: Prepare,
        finish: Finish,
        last: Callable[[Problem | None], bytes],
        *,
        longest: int,
        unread: int,
        patience: float,
        caller: Caller,
        connections: Connections,
    ) -> None:
        """``last`` is called with the reason why the hub ends it; None: the client sends nothing any more."""
        super().__init__()
        del self.headers["content-length"]
        self._request, self._prepare, self._finish, self._last = request, prepare, finish, last
        self._lines, self._patience = Lines(longest), patience
        self.caller, self._connections = caller, connections
        self._problem: Problem | None = None
        self._limit = asyncio.timeout(None)
        """The timeout for the next bytes."""
        self._outbox = _Outbox(unread)
        self._ahead = asyncio.Semaphore(_MAX_OPEN_GROUPS)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve it."""
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        try:
            with self._connections.holding(self):
                async with asyncio.TaskGroup() as group:
                    group.create_task(self._read(group))
                    group.create_task(self._write(send))
        except* ClientDisconnect:
            pass  # the client is gone; what is being stored is stored or not

    def let_go(self, problem: Problem) -> None:
        """Read no more lines."""
        self._problem = problem
        with suppress(RuntimeError, AssertionError):  # no read is under way
            self._limit.reschedule(asyncio.get_running_loop().time())

    async def _read(self, group: asyncio.TaskGroup) -> None:
        before: asyncio.Task[None] | None = None
        last = b""
        try:
            async for lines in self._incoming():
                for start in range(0, len(lines), _GROUP_LINES):
                    await self._ahead.acquire()
                    if self._problem is not None:
                        raise TimeoutError
                    ready = await self._prepare(lines[start : start + _GROUP_LINES])
                    before = group.create_task(self._answer(ready, before))
        except TimeoutError:
            last = self._last(self._problem)
        if before is not None:
            await asyncio.wait([before])
        if last:
            await self._outbox.put(last)
        await self._outbox.close()

    async def _incoming(self) -> AsyncIterator[list[bytes | None]]:
        """Yield the lines as they come; :raises TimeoutError: no more come"""
        parts = aiter(self._request.stream())
        while True:
            if self._problem is not None:
                raise TimeoutError
            async with asyncio.timeout(self._patience) as self._limit:
                part = await anext(parts, None)
            if part is None:
                break
            yield self._lines.feed(part)
        yield self._lines.end()

    async def _answer(self, ready: Any, before: asyncio.Task[None] | None) -> None:
        try:
            if before is not None:
                await asyncio.wait([before])  # its lines come first, in the store as in the reply
            await self._outbox.put(await self._finish(ready))
        finally:
            self._ahead.release()

    async def _write(self, send: Send) -> None:
        while (data := await self._outbox.take()) is not None:
            await send({"type": "http.response.body", "body": data, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


LINES = "application/x-ndjson"

_encode_lines = msgspec.json.Encoder().encode_lines


def wants_lines(request: Request) -> bool:
    """Return whether the client wants lines of JSON."""
    accepted = (one.partition(";")[0].strip().lower() for one in request.headers.get("accept", "").split(","))
    return LINES in accepted


def lines_response(
    request: Request, parts: AsyncGenerator[Iterable[Any], None], words: Vocabulary | None = None
) -> Response:
    """Return a response with a line for each document, as they come; those of one part are written together."""
    if request.method == "HEAD":
        return Response(media_type=LINES)
    return StreamingResponse(_written(parts, words), media_type=LINES)


async def _written(parts: AsyncGenerator[Iterable[Any], None], words: Vocabulary | None) -> AsyncIterator[bytes]:
    async with aclosing(parts):
        async for part in parts:
            yield _encode_lines(part if words is None else [worded(one, words) for one in part])
