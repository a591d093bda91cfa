"""A hub on a real port of this machine, for tests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import httpx2

from headrace import App
from headrace.hub import Hub, HubOptions
from headrace.hub.running import HubServer, listen

__all__ = ["Served", "serving"]


@dataclass(frozen=True)
class Served:
    """A hub that answers."""

    hub: Hub
    app: App
    address: str
    client: httpx2.AsyncClient
    server: HubServer


@asynccontextmanager
async def serving(app: App | str, options: HubOptions | None = None) -> AsyncIterator[Served]:
    """Serve an App, or a new one of this URL, on the loop of the test."""
    app = App(app) if isinstance(app, str) else app
    hub = Hub(app, options or HubOptions(maintenance=False, webhooks=False))
    listener = listen("127.0.0.1", 0)
    server = HubServer(hub)
    running = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        while not server.started:
            if running.done():
                await running
                raise AssertionError("the server ended before it began")
            await asyncio.sleep(0.005)
        address = f"http://127.0.0.1:{listener.getsockname()[1]}"
        async with httpx2.AsyncClient(base_url=address, timeout=20, trust_env=False) as client:
            yield Served(hub, app, address, client, server)
    finally:
        server.stop()
        server.stop()
        await running
        listener.close()
