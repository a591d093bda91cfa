"""A web server whose pages are there, are not, are broken, or take as long as a test likes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

__all__ = ["Pages", "pages"]

STATUS = {"/there": "200 OK", "/missing": "404 Not Found", "/broken": "503 Service Unavailable", "/slow": "200 OK"}


class Pages:
    """The server: where it is, and what was asked of it."""

    def __init__(self, port: int) -> None:
        self.address = f"http://127.0.0.1:{port}"
        self.asked: list[str] = []
        self.go_on = asyncio.Event()
        """What the slow page waits for."""

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request."""
        try:
            path = (await reader.readuntil(b"\r\n\r\n")).split()[1].decode()
            self.asked.append(path)
            if path == "/slow":
                await self.go_on.wait()
            writer.write(f"HTTP/1.1 {STATUS[path]}\r\nConnection: close\r\nContent-Length: 5\r\n\r\nhello".encode())
            await writer.drain()
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def pages() -> AsyncIterator[Pages]:
    """Serve them; whoever still waits at the end is answered."""

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await made.answer(reader, writer)

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    made = Pages(server.sockets[0].getsockname()[1])
    try:
        yield made
    finally:
        made.go_on.set()
        server.close()
