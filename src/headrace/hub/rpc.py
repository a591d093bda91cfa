"""The contract, served to remote engines: verbs as operations, hints over a socket.

A key with the scope ``engine`` is trusted like a client of the database. A remote engine subscribes to hints over the
socket, receives them, and sends its own.
"""

from __future__ import annotations

from functools import cache
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response

from headrace.engine import Alive, Dead, Gone
from headrace.engine.wire import MIN_PROTOCOL, PROTOCOL, VERBS, Hello, WireCall, decode, do, encode
from headrace.errors import HeadraceError, NotOpen
from headrace.http.problems import Problem
from headrace.hub.live.connections import DRAINING
from headrace.hub.server.dispatch import read_body
from headrace.hub.server.operation import Operation, OperationReply, OperationRequest
from headrace.hub.server.problems import problem_of

if TYPE_CHECKING:
    from headrace.hub.hub import Hub
import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING
from uuid import UUID

import msgspec
from starlette.routing import WebSocketRoute
from starlette.websockets import WebSocket

from headrace.engine import Bus, Hint, Topic
from headrace.engine.wire import Hints, Listening
from headrace.errors import MAX_DURATION_SECONDS
from headrace.hub.auth.caller import Caller
from headrace.hub.server.sockets import ServedSocket, route_of

if TYPE_CHECKING:
    from headrace.hub.hub import Hub

__all__ = ["OPERATIONS", "Wanted", "hints_route"]


_MSGPACK = b"application/msgpack"
_SPOKEN = frozenset(b"%d" % number for number in range(MIN_PROTOCOL, PROTOCOL + 1))


def _operation(verb: WireCall) -> Operation:
    async def serve(ask: OperationRequest) -> Response:
        hub, request = ask.hub, ask.request
        _check_protocol(request)
        data = await read_body(request, hub.options.bulk_most, hub.options.read_timeout, media=_MSGPACK)
        arguments = _arguments(data, verb)
        try:
            answer = await _answer(hub, verb, arguments)
        except NotOpen:
            raise DRAINING from None
        except HeadraceError as error:
            problem = problem_of(error)
            return _Packed(encode(error), 500 if problem is None else problem.status, hub)
        return _Packed(encode(answer), 200, hub)

    return Operation(
        name=f"rpc_{verb.role}_{verb.name}",
        method="POST",
        path=f"/rpc/{verb.path}",
        summary=f"{verb.role}.{verb.name} of the contract",
        scope="engine",
        bounded="operator",
        do=serve,
        raw=True,
        media=_MSGPACK.decode(),
        largest="bulk",
    )


def _arguments(data: bytes, verb: WireCall) -> Any:
    try:
        return decode(data, verb.takes)
    except (UnicodeDecodeError, RecursionError, OverflowError, ValueError) as error:
        detail = str(error) or "it is nested too deep"
        raise Problem(400, "malformed", "The request cannot be understood", detail) from None


def _check_protocol(request: Request) -> None:
    for name, value in request.scope["headers"]:
        if name == b"x-headrace-protocol":
            if value in _SPOKEN:
                return
            break
    detail = f"this hub speaks protocols {MIN_PROTOCOL} to {PROTOCOL}: say which in X-Headrace-Protocol"
    raise Problem(400, "protocol", "There is no such protocol", detail)


class _Packed(Response):
    """A reply in msgpack, built without checks, since all replies here are such."""

    def __init__(self, data: bytes, status: int, hub: Hub) -> None:
        self.body, self.status_code, self.background = data, status, None
        self.raw_headers = [(b"content-length", b"%d" % len(data)), _IS_MSGPACK]
        if hub.draining.is_set():
            self.raw_headers.append((b"connection", b"close"))  # the next request goes to another hub


_IS_MSGPACK = (b"content-type", _MSGPACK)


async def _answer(hub: Hub, verb: WireCall, arguments: Any) -> Any:
    app = hub.app
    said = await do(app.session.engine, verb, arguments)
    if verb.path == "session/time":
        # A store that is a file on this machine has this machine's time: the caller's clock must not matter.
        return said or app.host.clock.now()
    if verb.path == "workers/beat":
        return _timed(said, hub)
    if verb.path == "workers/beat_many":
        return {worker: _timed(one, hub) for worker, one in said.items()}
    if verb.path == "workers/gone":
        found: Gone = said
        # Findings of another hub, or of this one before a restart, must not pass for this one's.
        return replace(found, by=hub.number + found.by)
    return said


def _timed(said: Alive | Dead, hub: Hub) -> Alive | Dead:
    return replace(said, now=hub.app.host.clock.now()) if isinstance(said, Alive) and said.now is None else said


@cache  # which reads and parses a file
def _version() -> str:
    return version("headrace")


async def _hello(ask: OperationRequest) -> OperationReply:
    engine, options = ask.hub.app.session.engine, ask.hub.options
    return OperationReply(
        Hello(
            newest=PROTOCOL,
            oldest=MIN_PROTOCOL,
            headrace=_version(),
            store=engine.name,
            most=options.bulk_most,
            rules=engine.rules,
            gone_after=engine.workers.gone_after,
        )
    )


OPERATIONS: tuple[Operation, ...] = (
    Operation(
        name="rpc_hello",
        path="/rpc/hello",
        summary="What this hub speaks with remote engines",
        scope="engine",
        do=_hello,
        gives={200: Hello},
    ),
    *map(_operation, VERBS),
)
"""Not in the OpenAPI document: they are for headrace itself, and change with it."""

_log = logging.getLogger("headrace.hub")

_MAX_WAITING_HINTS = 1000
"""Hints that may wait for a slow reader; of more, only their topics are sent."""
_POLL_SECONDS = 0.1
"""Seconds between two checks of the wanted topics."""


def hints_route(hub: Hub) -> WebSocketRoute:
    """Return the route of hints."""
    return route_of(
        "/rpc/hints", "hints", hub, lambda it: hub.authenticator.let_in(it, "engine", "operator"), _HintSocket
    )


class Wanted:
    """Notifies all sockets of the topics with listeners, whenever these change."""

    def __init__(self) -> None:
        self._tellers: dict[object, Callable[[frozenset[Topic]], None]] = {}
        self._known: frozenset[Topic] = frozenset()
        self._task: asyncio.Task[None] | None = None

    def join(self, bus: Bus, tell: Callable[[frozenset[Topic]], None]) -> Callable[[], None]:
        """Notify this socket, now and whenever the topics change; return what ends that."""
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
        """Check which topics are wanted now, and notify all sockets if they changed."""
        found = _wanted(bus)
        if found != self._known:
            self._known = found
            for tell in list(self._tellers.values()):
                tell(found)

    async def _follow(self, bus: Bus) -> None:
        while True:
            await asyncio.sleep(_POLL_SECONDS)
            self.look(bus)


def _wanted(bus: Bus) -> frozenset[Topic]:
    return frozenset(topic for topic in Topic if bus.wanted(topic))


class _HintSocket(ServedSocket):
    """One remote engine: its hints are passed on, and it gets those that it listens for."""

    _kind = "hints"

    def __init__(self, hub: Hub, websocket: WebSocket, caller: Caller | None) -> None:
        super().__init__(hub, websocket, caller)
        self._bus = hub.app.session.engine.bus
        self._unlisten: Callable[[], None] = lambda: None
        self._unwant: Callable[[], None] = lambda: None
        self._pending: list[Hint] = []
        self._heard: frozenset[Topic] | None = None
        self._wanted: frozenset[Topic] | None = None
        self._attends: tuple[UUID, str] | None = None
        """The worker that this connection belongs to, and the proof that it sends with its heartbeats."""
        self._cadence = hub.app.session.engine.rules.beat
        """Seconds between two heartbeats."""

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
                if said.beat is not None and 0 < said.beat <= MAX_DURATION_SECONDS:
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
        if len(self._pending) >= _MAX_WAITING_HINTS:
            self._pending = [Hint(topic) for topic in {one.topic for one in self._pending}]
        self._pending.append(hint)
        self._wake.set()

    def _tell_wanted(self, wanted: frozenset[Topic]) -> None:
        self._wanted = wanted
        self._wake.set()

    async def _tell(self) -> None:
        hints = Hints(self._heard, self._wanted, tuple(self._pending))
        self._heard = self._wanted = None
        self._pending = []
        await self._websocket.send_bytes(encode(hints))
