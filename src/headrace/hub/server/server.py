"""A hub on its port, from its first request to its last."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Generator
from contextlib import contextmanager

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from headrace.errors import StoreLost
from headrace.hub.hub import Hub
from headrace.hub.server.connections import http_protocol, socket_protocol

__all__ = ["HubServer", "listen", "room_for"]

_log = logging.getLogger("headrace.hub")
_uvicorn = logging.getLogger("uvicorn.error")

CLOSE_SECONDS = 1.0
"""Seconds that sockets have for the closing handshake before they are cut off."""
_POLL_SECONDS = 0.05
_OTHER_FILES = 200
"""Files that a hub has open besides its connections: the store, the log, libraries."""


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens there; port 0: a free one.

    :raises OSError: the address cannot be used
    """
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP, flags=socket.AI_PASSIVE)
    family, kind, protocol, _, address = found[0]
    # The protocol is named: asyncio sends small replies at once (TCP_NODELAY) only on sockets that state TCP.
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(2048)
    except BaseException:
        listener.close()
        raise
    return listener


def room_for(sockets: int) -> int:
    """Return how many of so many connections the system allows this process; raise its limit of files if it is low."""
    try:
        import resource
    except ImportError:  # the system has no such limit
        return sockets
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = sockets + _OTHER_FILES
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return sockets if soft == resource.RLIM_INFINITY else max(1, min(sockets, soft - _OTHER_FILES))


class HubServer(uvicorn.Server):
    """Serves a hub until it is stopped: in good order, or at once on a second stop."""

    def __init__(self, hub: Hub, *, most: int | None = None) -> None:
        """``most``: the maximum of connections."""
        options = hub.options
        self.hub, self.most = hub, options.sockets if most is None else most
        self.lost: StoreLost | None = None
        """Why it stopped by itself: its store is lost."""
        self._up, self._stop, self._hurry = asyncio.Event(), asyncio.Event(), asyncio.Event()
        super().__init__(
            uvicorn.Config(
                hub,
                lifespan="off",  # so that an error while opening is raised, and not only logged
                interface="asgi3",
                http=http_protocol(options, self.most),
                ws=socket_protocol(options),
                ws_max_size=options.frame_most,
                # A compression context for each of thousands of sockets would cost more memory than their messages.
                ws_per_message_deflate=False,
                timeout_keep_alive=options.keep_alive,  # type: ignore[arg-type]  # it is a number of seconds
                proxy_headers=options.proxy_headers,
                forwarded_allow_ips=options.proxies,
                root_path=options.root_path,
                ssl_certfile=options.certfile,
                ssl_keyfile=options.keyfile,
                server_header=False,
                access_log=False,
                log_config=None,
            )
        )

    def stop(self) -> None:
        """Stop in good order; a second call stops at once."""
        if self.hub.draining.is_set():
            self._hurry.set()
        self.hub.draining.set()
        self._stop.set()

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve until stopped.

        :raises ConfigError: there are no keys, and the hub can be reached from elsewhere
        """
        try:
            with _quiet(logging.WARNING):  # its log lines would contain the whole address of a socket, secrets included
                async with self.hub.open():
                    await super().serve(sockets)
        finally:
            for one in sockets or ():
                one.close()

    async def begin(self, listener: socket.socket) -> asyncio.Task[None]:
        """Serve from now on; return the serving task, which ends when the server is stopped.

        :raises ConfigError: there are no keys, and the hub can be reached from elsewhere
        """
        serving, up = asyncio.create_task(self.serve([listener])), asyncio.create_task(self._up.wait())
        try:
            await asyncio.wait({serving, up}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            up.cancel()
        if serving.done():
            await serving
        return serving

    async def main_loop(self) -> None:
        """Wait for a stop, or until the store is lost, and keep the ``Date`` header current meanwhile."""
        self._up.set()
        while not await self.on_tick(0):
            if (lost := await self.hub.vitals.store_lost()) is not None:
                self.lost = lost
                return
            if await _happens(self._stop, 1.0):
                await _happens(self._hurry, self.hub.options.linger)
                return

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept no new connections, and let open requests finish."""
        self.hub.draining.set()
        for server in self.servers:
            server.close()
        if not await self._ended(min(CLOSE_SECONDS, self.hub.options.grace), http=True):
            for connection in list(self.server_state.connections):
                connection.shutdown()
        if not await self._ended(self.hub.options.grace):
            self._cut_off()
            with _quiet(logging.CRITICAL):  # their cancellation is no error
                if tasks := list(self.server_state.tasks):
                    await asyncio.wait(tasks, timeout=CLOSE_SECONDS)

    async def _ended(self, seconds: float, *, http: bool = False) -> bool:
        """Wait until no connection is left, at most so long. ``http``: close idle connections, but keep sockets."""
        state, until = self.server_state, asyncio.get_running_loop().time() + seconds
        for connection in list(state.connections) if http else ():
            if isinstance(connection, H11Protocol):
                connection.shutdown()
        while state.connections or state.tasks:
            if self._hurry.is_set() or asyncio.get_running_loop().time() >= until:
                return False
            await _happens(self._hurry, _POLL_SECONDS)
        return True

    def _cut_off(self) -> None:
        state = self.server_state
        if state.tasks and not self._hurry.is_set():
            _log.warning("%d requests were cut off: not finished within %g s", len(state.tasks), self.hub.options.grace)
        for task in list(state.tasks):
            task.cancel()

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        """Leave signals to the command."""
        yield


@contextmanager
def _quiet(level: int) -> Generator[None]:
    before = _uvicorn.level
    _uvicorn.setLevel(level)
    try:
        yield
    finally:
        _uvicorn.setLevel(before)


async def _happens(event: asyncio.Event, seconds: float) -> bool:
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return event.is_set()
    return True
