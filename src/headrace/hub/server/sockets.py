"""A socket from beginning to end: authentication, its two loops, and its close."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from starlette.routing import WebSocketRoute
from starlette.types import Message
from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState

from headrace.http.problems import Problem
from headrace.hub.auth.caller import Caller
from headrace.hub.server.dispatch import problem_response

if TYPE_CHECKING:
    from headrace.hub.hub import Hub

__all__ = ["GONE", "Closing", "ServedSocket", "route_of"]

GONE = (WebSocketDisconnect, OSError, RuntimeError)
"""Raised where the other end is gone."""
GOODBYES = frozenset({1000, 1005})
"""The codes of a socket closed on purpose; 1005 stands for none. A process that ended sends no close frame, and a
client that goes away (1001) does not come back."""


def route_of(
    path: str, name: str, hub: Hub, let_in: Callable[[WebSocket], Caller | None], kind: type[ServedSocket]
) -> WebSocketRoute:
    """Return the route of sockets of this kind; ``let_in`` returns the caller, or raises the problem to reply with."""

    async def endpoint(websocket: WebSocket) -> None:
        try:
            hub.live.connections.check()
            caller = let_in(websocket)
            websocket.state.caller = caller  # for the access log
        except Problem as problem:
            await websocket.send_denial_response(problem_response(problem))
            return
        await kind(hub, websocket, caller).serve()

    return WebSocketRoute(path, endpoint, name=name)


class Closing(Exception):
    """Ends a socket with a code that gives the reason."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code, self.reason = code, reason


class ServedSocket(ABC):
    """One client: a loop that receives from it, and one that sends to it."""

    def __init__(self, hub: Hub, websocket: WebSocket, caller: Caller | None) -> None:
        self.hub, self._websocket, self._caller = hub, websocket, caller
        self._wake = asyncio.Event()
        """Set when there may be something to send."""
        self._ending = asyncio.timeout(None)
        self._problem: Problem | None = None

    @property
    def caller(self) -> Caller | None:
        """The caller; None: it has not authenticated yet."""
        return self._caller

    def let_go(self, problem: Problem) -> None:
        """Close it with the reason."""
        self._problem = problem
        with suppress(RuntimeError, AssertionError):  # it has not begun (asserted in 3.11.2), or is ending
            self._ending.reschedule(asyncio.get_running_loop().time())

    async def serve(self) -> None:
        """Serve it until either side closes."""
        with self.hub.live.connections.holding(self):
            telling: asyncio.Task[None] | None = None
            closing, cut_off = Closing(1000, ""), False
            try:
                await self._websocket.accept()
                async with self._ending:
                    if self._problem is None:
                        telling = asyncio.create_task(self._tell_always(), name=f"headrace-hub-{self._kind}")
                        await self._listen()
            except Closing as found:
                closing = found
            except TimeoutError:
                pass  # ``let_go`` ended it
            except GONE as gone:
                cut_off = not (isinstance(gone, WebSocketDisconnect) and gone.code in GOODBYES)
                return
            finally:
                if telling is not None:
                    telling.cancel()
                # The end of a hub says nothing about its clients.
                self._leave(cut_off and not self.hub.draining.is_set())
            await self._close(closing)

    async def _receive(self) -> Message:
        """Return the next frame; :raises WebSocketDisconnect: there is none"""
        received = await self._websocket.receive()
        if received["type"] == "websocket.disconnect":
            raise WebSocketDisconnect(received.get("code") or 1005)
        return received

    async def _tell_always(self) -> None:
        with suppress(*GONE):  # the receiving loop notices it, too
            while True:
                await self._wake.wait()
                self._wake.clear()
                await self._tell()

    async def _close(self, closing: Closing) -> None:
        with suppress(*GONE):
            if self._problem is not None:
                closing = Closing(1012 if self._problem.status == 503 else 1008, self._problem.details.title)
            if self._websocket.application_state is WebSocketState.CONNECTED:
                await self._websocket.close(closing.code, closing.reason)

    # -- what each kind does itself

    _kind: str
    """Its name in names of tasks."""

    @abstractmethod
    async def _listen(self) -> None:
        """Handle what the client sends, frame by frame; never returns."""

    @abstractmethod
    async def _tell(self) -> None:
        """Send everything that there is to send."""

    @abstractmethod
    def _leave(self, cut_off: bool) -> None:
        """Release what was kept for it; ``cut_off``: this side did not close it, and no close frame came."""
