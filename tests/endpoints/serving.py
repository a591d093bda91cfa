"""A service on a real port of this machine, for tests."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx2
import uvicorn

__all__ = ["Event", "Served", "read_events", "serving"]


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield  # signals are for pytest


@dataclass(frozen=True)
class Served:
    """A service that answers."""

    client: httpx2.AsyncClient
    address: str


@asynccontextmanager
async def serving(asgi: Any, **client: Any) -> AsyncIterator[Served]:
    """Serve an ASGI application on the loop of the test, with its lifespan."""
    listener = socket.create_server(("127.0.0.1", 0))
    server = _Server(uvicorn.Config(asgi, lifespan="on", log_config=None, timeout_graceful_shutdown=1))
    running = asyncio.create_task(server.serve(sockets=[listener]))
    while not server.started:
        if running.done():
            running.result()
            raise RuntimeError("the service did not start")
        await asyncio.sleep(0.01)
    address = f"http://127.0.0.1:{listener.getsockname()[1]}"
    try:
        async with httpx2.AsyncClient(base_url=address, timeout=120, trust_env=False, **client) as made:
            yield Served(made, address)
    finally:
        server.should_exit = True
        await running


@dataclass
class Event:
    """A server-sent event."""

    name: str = ""
    id: str = ""
    data: Any = None


async def read_events(client: httpx2.AsyncClient, address: str, **headers: str) -> list[Event]:
    """All events until the stream ends."""
    found, event = list[Event](), Event()
    async with client.stream("GET", address, headers=headers) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream"), answer.status_code
        async for line in answer.aiter_lines():
            if not line:
                if event.name:
                    found.append(event)
                event = Event()
            elif line.startswith("id: "):
                event.id = line[4:]
            elif line.startswith("event: "):
                event.name = line[7:]
            elif line.startswith("data: "):
                event.data = json.loads(line[6:])
    return found
