"""A hub on a real port of this machine, for tests."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import httpx2

from headrace import App
from headrace.hub import Hub, HubOptions
from headrace.hub.server.server import HubServer, listen

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
    address = f"http://127.0.0.1:{listener.getsockname()[1]}"
    running = await server.begin(listener)
    try:
        # Without keys, whatever changes something must say that it is JSON, also if it has no body.
        kind = {"content-type": "application/json"}
        async with httpx2.AsyncClient(base_url=address, headers=kind, timeout=20, trust_env=False) as client:
            yield Served(hub, app, address, client, server)
    finally:
        server.stop()
        server.stop()
        await running
