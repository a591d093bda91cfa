"""A receiver of webhooks on a real port of this machine, for tests."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

__all__ = ["Receiver", "Request", "receiving"]


@dataclass(frozen=True)
class Request:
    """What came in."""

    line: str
    headers: dict[str, str]
    body: bytes


@dataclass
class Receiver:
    """Answers what it is told to; keeps what it was sent."""

    port: int = 0
    answers: list[str] = field(default_factory=list)
    """Status lines, and headers, of the next answers; the last one is given again and again."""
    requests: list[Request] = field(default_factory=list)
    silent: bool = False
    """Whether it answers nothing at all."""
    connections: int = 0
    open: int = 0
    """Connections there are now."""
    most_open: int = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.open += 1
        self.most_open = max(self.most_open, self.open)
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            line, *lines = head.strip().split("\r\n")
            headers = {name.lower(): value.strip() for name, _, value in (one.partition(":") for one in lines)}
            body = await reader.readexactly(int(headers.get("content-length", "0")))
            self.requests.append(Request(line, headers, body))
            if self.silent:
                await reader.read()  # until the other side goes
            else:
                answer = self.answers.pop(0) if len(self.answers) > 1 else (self.answers or ["204 No Content"])[0]
                writer.write(f"HTTP/1.1 {answer}\r\ncontent-length: 0\r\n\r\n".encode())
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError, ssl.SSLError):
            pass
        finally:
            self.open -= 1
            writer.close()


@asynccontextmanager
async def receiving(
    *answers: str, host: str = "127.0.0.1", context: ssl.SSLContext | None = None
) -> AsyncIterator[Receiver]:
    """A receiver, until the block ends."""
    receiver = Receiver(answers=list(answers))
    server = await asyncio.start_server(receiver.serve, host, 0, ssl=context)
    receiver.port = server.sockets[0].getsockname()[1]
    try:
        yield receiver
    finally:
        server.close()


class Names:
    """A resolver of a test's own: answers in turn, the last one again and again, and remembers what it was asked."""

    def __init__(self, *answers: Sequence[str]) -> None:
        self.answers, self.asked = list(answers), list[str]()

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        self.asked.append(host)
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
