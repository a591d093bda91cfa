"""A hub on a real port of this machine, for tests."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Generator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass

import httpx2
import uvicorn

from headrace import App
from headrace.hub import Hub, HubOptions

__all__ = ["Served", "serving"]


@dataclass(frozen=True)
class Served:
    """A hub that answers."""

    hub: Hub
    app: App
    address: str
    client: httpx2.AsyncClient


@asynccontextmanager
async def serving(app: App | str, options: HubOptions | None = None) -> AsyncIterator[Served]:
    """Serve an App, or a new one of this URL, on the loop of the test."""
    app = App(app) if isinstance(app, str) else app
    hub = Hub(app, options)
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    config = uvicorn.Config(hub, log_config=None, lifespan="on", timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    server.capture_signals = _no_signals  # type: ignore[method-assign]  # they are the test runner's
    running = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        while not server.started:
            if running.done():
                await running
                raise AssertionError("the server ended before it began")
            await asyncio.sleep(0.005)
        address = f"http://127.0.0.1:{listener.getsockname()[1]}"
        # Without keys, whatever changes something must say that it is JSON, also if it has no body.
        kind = {"content-type": "application/json"}
        async with httpx2.AsyncClient(base_url=address, headers=kind, timeout=20, trust_env=False) as client:
            yield Served(hub, app, address, client)
    finally:
        server.should_exit = True
        await running
        listener.close()


@contextmanager
def _no_signals() -> Generator[None]:
    yield
