"""Clients of the live side of a hub, for tests: they read server-sent events, and talk over a socket."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx2
import websockets

from tests.hub.serving import Served

__all__ = ["Event", "Socket", "Stream", "connected", "listening"]


@dataclass(frozen=True)
class Event:
    """One event as it came."""

    name: str
    data: Any
    id: str | None


class Stream:
    """An open stream of events."""

    def __init__(self, answer: httpx2.Response) -> None:
        self.answer = answer
        self.comments: list[str] = []
        self._lines = answer.aiter_lines()

    async def next(self) -> Event | None:
        """The next event; None: the stream is over."""
        fields: dict[str, str] = {}
        async for line in self._lines:
            if line.startswith(":"):
                self.comments.append(line[1:].strip())
            elif line:
                name, _, value = line.partition(":")
                fields[name] = value.removeprefix(" ")
            elif "data" in fields:
                return Event(fields.get("event", "message"), json.loads(fields["data"]), fields.get("id"))
            else:
                fields = {}
        return None

    async def until(self, name: str, **wanted: Any) -> Event:
        """The first event of this name whose data has these fields."""
        async with asyncio.timeout(30):
            while (event := await self.next()) is not None:
                if event.name == name and all(event.data.get(field) == value for field, value in wanted.items()):
                    return event
        raise AssertionError(f"the stream ended without {name} {wanted}")

    async def rest(self) -> list[Event]:
        """All events up to the end."""
        events = []
        async with asyncio.timeout(30):
            while (event := await self.next()) is not None:
                events.append(event)
        return events


@asynccontextmanager
async def listening(hub: Served, path: str, **headers: str) -> AsyncIterator[Stream]:
    """Open a stream of events."""
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    async with hub.client.stream("GET", path, headers=given) as answer:
        assert answer.status_code == 200, await answer.aread()
        yield Stream(answer)


class Socket:
    """An open socket."""

    def __init__(self, connection: websockets.ClientConnection) -> None:
        self.connection = connection

    async def send(self, type: str, **fields: Any) -> None:
        """Send a message."""
        await self.connection.send(json.dumps({"type": type, **fields}))

    async def next(self) -> dict[str, Any]:
        """The next message."""
        async with asyncio.timeout(30):
            message: dict[str, Any] = json.loads(await self.connection.recv())
        return message

    async def ask(self, type: str, **fields: Any) -> dict[str, Any]:
        """Send a message, and skip to its answer."""
        await self.send(type, id="asked", **fields)
        while (message := await self.next()).get("id") != "asked":
            pass
        return message

    async def until(self, type: str, **wanted: Any) -> dict[str, Any]:
        """The first message of this type with these fields."""
        while True:
            message = await self.next()
            if message["type"] == type and all(message.get(field) == value for field, value in wanted.items()):
                return message

    async def closed(self) -> int | None:
        """The code with which it was closed."""
        async with asyncio.timeout(30):
            await self.connection.wait_closed()
        return self.connection.close_code


@asynccontextmanager
async def connected(hub: Served, **options: Any) -> AsyncIterator[Socket]:
    """Open a socket."""
    address = hub.address.replace("http", "ws") + "/ws"
    async with websockets.connect(address, proxy=None, **options) as connection:
        yield Socket(connection)
