"""Hints over a socket: a remote engine says what it listens for, hears it, and sends its own."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING
from uuid import UUID

import msgspec
from starlette.routing import WebSocketRoute
from starlette.websockets import WebSocket

from headrace.engine import Bus, Hint, Topic
from headrace.errors import LONGEST
from headrace.hub.caller import Caller
from headrace.hub.sockets import ServedSocket, route_of
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
    return route_of("/rpc/hints", "hints", hub, lambda it: hub.door.let_in(it, "engine", "operator"), _HintSocket)


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


class _HintSocket(ServedSocket):
    """One remote engine: what it says is done, what it listens for is told."""

    _kind = "hints"

    def __init__(self, hub: Hub, websocket: WebSocket, caller: Caller | None) -> None:
        super().__init__(hub, websocket, caller)
        self._bus = hub.app.engine.bus
        self._unlisten: Callable[[], None] = lambda: None
        self._unwant: Callable[[], None] = lambda: None
        self._pending: list[Hint] = []
        self._heard: frozenset[Topic] | None = None
        self._wanted: frozenset[Topic] | None = None
        self._attends: tuple[UUID, str] | None = None
        """The worker whose connection this is, and by which proof it says so with its beats."""
        self._cadence = hub.app.engine.rules.beat
        """Seconds between two of these."""

    def _leave(self, cut_off: bool) -> None:
        self._unwant()
        self._unlisten()
        if cut_off and self._attends is not None:
            self.hub.fleet.parting.far(*self._attends, self._cadence)

    async def _listen(self) -> None:
        self._unwant = self.hub.wanted.join(self._bus, self._tell_wanted)
        while True:
            received = await self._receive()
            try:
                said: Listening = decode(received.get("bytes") or b"", Listening)
            except msgspec.MsgspecError as error:
                _log.debug("a frame with hints is not understood: %s", error)  # of another version; hints may be lost
                continue
            if said.topics is not None:
                self._listen_for(said.topics)
            if said.attends is not None:
                self._attends = said.attends
                if said.beat is not None and 0 < said.beat <= LONGEST:
                    self._cadence = said.beat
            for hint in said.hints:
                self._bus.send(hint)

    def _listen_for(self, topics: frozenset[Topic]) -> None:
        before, self._unlisten = self._unlisten, self._bus.listen(topics, self._hear) if topics else lambda: None
        before()
        self._heard = topics
        self._wake.set()
        self.hub.wanted.look(self._bus)

    def _hear(self, hint: Hint) -> None:
        if len(self._pending) >= _MOST:
            self._pending = [Hint(topic) for topic in {one.topic for one in self._pending}]
        self._pending.append(hint)
        self._wake.set()

    def _tell_wanted(self, wanted: frozenset[Topic]) -> None:
        self._wanted = wanted
        self._wake.set()

    async def _tell(self) -> None:
        told = Hints(self._heard, self._wanted, tuple(self._pending))
        self._heard = self._wanted = None
        self._pending = []
        await self._websocket.send_bytes(encode(told))
