"""Hints over a socket: a remote engine says what it listens for, hears it, and sends its own."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec
from starlette.routing import WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState

from headrace.engine import Bus, Hint, Topic
from headrace.hub.caller import Caller
from headrace.hub.problems import Problem
from headrace.hub.serving import problem_response
from headrace.runtime.wire import Hints, Listening, decode, encode

if TYPE_CHECKING:
    from headrace.hub.hub import Hub

__all__ = ["Wanted", "hints_route"]

_log = logging.getLogger("headrace.hub")

_MOST = 1000
"""Hints that may wait for a slow reader; of more, only their topics are told."""
_LOOK = 0.1
"""Seconds between two looks at what is wanted."""


def hints_route(hub: Hub) -> WebSocketRoute:
    """The route of hints."""

    async def endpoint(websocket: WebSocket) -> None:
        try:
            hub.live.connections.check()
            caller = hub.door.let_in(websocket, "engine", "operator")
            websocket.state.caller = caller  # for the access log
        except Problem as problem:
            await websocket.send_denial_response(problem_response(problem))
            return
        await _HintSocket(hub, websocket, caller).serve()

    return WebSocketRoute("/rpc/hints", endpoint, name="hints")


class Wanted:
    """Tells all sockets what anybody listens for, whenever that changes."""

    def __init__(self) -> None:
        self._tellers: dict[object, Callable[[frozenset[Topic]], None]] = {}
        self._known: frozenset[Topic] = frozenset()
        self._task: asyncio.Task[None] | None = None

    def join(self, bus: Bus, tell: Callable[[frozenset[Topic]], None]) -> Callable[[], None]:
        """Tell this one, now and whenever it changes; what the answer calls ends that."""
        key = object()
        self._tellers[key] = tell
        if self._task is None:
            self._known = _wanted(bus)
            self._task = asyncio.create_task(self._follow(bus), name="headrace-hub-wanted")
        tell(self._known)

        def leave() -> None:
            self._tellers.pop(key, None)
            if not self._tellers and self._task is not None:
                self._task.cancel()
                self._task = None

        return leave

    def look(self, bus: Bus) -> None:
        """See what is wanted now, and tell all if that is something else."""
        found = _wanted(bus)
        if found != self._known:
            self._known = found
            for tell in list(self._tellers.values()):
                tell(found)

    async def _follow(self, bus: Bus) -> None:
        while True:
            await asyncio.sleep(_LOOK)
            self.look(bus)


def _wanted(bus: Bus) -> frozenset[Topic]:
    return frozenset(topic for topic in Topic if bus.wanted(topic))


class _HintSocket:
    """One remote engine: what it says is done, what it listens for is told."""

    def __init__(self, hub: Hub, websocket: WebSocket, caller: Caller) -> None:
        self._hub, self._websocket, self._caller = hub, websocket, caller
        self._bus = hub.app.engine.bus
        self._unlisten: Callable[[], None] = lambda: None
        self._pending: list[Hint] = []
        self._heard: frozenset[Topic] | None = None
        self._wanted: frozenset[Topic] | None = None
        self._wake = asyncio.Event()
        self._ending = asyncio.timeout(None)
        self._problem: Problem | None = None

    @property
    def caller(self) -> Caller | None:
        """Whose it is."""
        return self._caller

    def let_go(self, problem: Problem) -> None:
        """Close it."""
        self._problem = problem
        with suppress(RuntimeError, AssertionError):  # it has not begun (asserted in 3.11.2), or is ending
            self._ending.reschedule(asyncio.get_running_loop().time())

    async def serve(self) -> None:
        """Serve it until either side has had enough."""
        with self._hub.live.connections.holding(self):
            telling: asyncio.Task[None] | None = None
            leave: Callable[[], None] = lambda: None  # noqa: E731
            try:
                await self._websocket.accept()
                async with self._ending:
                    if self._problem is None:
                        leave = self._hub.wanted.join(self._bus, self._tell_wanted)
                        telling = asyncio.create_task(self._tell(), name="headrace-hub-hints")
                        await self._listen()
            except TimeoutError:
                pass  # it was let go
            except (WebSocketDisconnect, OSError, RuntimeError):
                return
            finally:
                leave()
                self._unlisten()
                if telling is not None:
                    telling.cancel()
            with suppress(WebSocketDisconnect, OSError, RuntimeError):
                if self._websocket.application_state is WebSocketState.CONNECTED:
                    problem = self._problem
                    code = 1000 if problem is None else 1012 if problem.status == 503 else 1008
                    await self._websocket.close(code, "" if problem is None else problem.details.title)

    async def _listen(self) -> None:
        while True:
            received = await self._websocket.receive()
            if received["type"] == "websocket.disconnect":
                return
            try:
                said: Listening = decode(received.get("bytes") or b"", Listening)
            except msgspec.MsgspecError as error:
                _log.debug("a frame with hints is not understood: %s", error)  # of another version; hints may be lost
                continue
            if said.topics is not None:
                self._listen_for(said.topics)
            for hint in said.hints:
                self._bus.send(hint)

    def _listen_for(self, topics: frozenset[Topic]) -> None:
        before, self._unlisten = self._unlisten, self._bus.listen(topics, self._hear) if topics else lambda: None
        before()
        self._heard = topics
        self._wake.set()
        self._hub.wanted.look(self._bus)

    def _hear(self, hint: Hint) -> None:
        if len(self._pending) >= _MOST:
            self._pending = [Hint(topic) for topic in {one.topic for one in self._pending}]
        self._pending.append(hint)
        self._wake.set()

    def _tell_wanted(self, wanted: frozenset[Topic]) -> None:
        self._wanted = wanted
        self._wake.set()

    async def _tell(self) -> None:
        try:
            while True:
                await self._wake.wait()
                self._wake.clear()
                told = Hints(self._heard, self._wanted, tuple(self._pending))
                self._heard = self._wanted = None
                self._pending = []
                await self._websocket.send_bytes(encode(told))
        except (WebSocketDisconnect, OSError, RuntimeError):
            pass  # the loop that listens hears of it, too
