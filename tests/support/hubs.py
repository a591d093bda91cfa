"""Hubs on real ports, on a loop of their own, in front of an engine: what remote engines are tested with.

To make the routes of a hub takes longer than most tests do. So a hub that was stopped is opened again, on a new
store.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from headrace import App
from headrace.core.defaults import Rules
from headrace.engine import Engine
from headrace.engines.remote import RemoteEngine
from headrace.engines.remote.connection import Address
from headrace.hub import Hub, HubOptions
from headrace.hub.live.connections import Live
from headrace.hub.remote_workers.fleet import Fleet
from headrace.hub.rpc import Wanted
from headrace.hub.server.server import HubServer, listen
from headrace.runtime.host import Host

__all__ = ["Hubs"]

T = TypeVar("T")


class _Served:
    def __init__(self, hub: Hub, server: HubServer, running: asyncio.Task[None], port: int) -> None:
        self.hub, self.server, self.running, self.port = hub, server, running, port


class Hubs:
    """Hubs by the names of their places, each started when it is first asked for."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="hubs", daemon=True)
        self._thread.start()
        self._served: dict[object, _Served] = {}
        self._idle: list[Hub] = []

    def engine(self, place: object, rules: Rules, host: Host, make: Callable[[], Engine]) -> RemoteEngine:
        """A remote engine on the store of this place, which a hub has opened by now."""
        if place not in self._served:
            self._served[place] = self._do(_serve(make(), self._idle.pop() if self._idle else None))
        return RemoteEngine(Address(host="127.0.0.1", port=self._served[place].port), rules=rules, host=host)

    def stop(self) -> None:
        """Stop all hubs; the next ones may come."""
        served, self._served = list(self._served.values()), {}
        self._do(_stop(served))
        self._idle += [one.hub for one in served if not one.server.server_state.tasks]

    def close(self) -> None:
        """Stop, for good."""
        self.stop()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    def _do(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(60)


async def _serve(engine: Engine, idle: Hub | None) -> _Served:
    hub = idle or Hub(App("memory://"), HubOptions(maintenance=False, webhooks=False))
    hub.app._made["engine"] = engine
    hub.draining.clear()
    hub.live, hub.fleet, hub.wanted = Live(hub), Fleet(hub), Wanted()  # what a hub that stopped has ended for good
    server, listener = HubServer(hub), listen("127.0.0.1", 0)
    port: int = listener.getsockname()[1]
    return _Served(hub, server, await server.begin(listener), port)


async def _stop(served: list[_Served]) -> None:
    for one in served:
        one.server.stop()
        one.server.stop()
    await asyncio.gather(*(one.running for one in served))
