"""Verbs of the contract as operations: whoever has the scope ``engine`` is trusted as the database would trust them."""

from __future__ import annotations

from functools import cache
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response

from headrace.engine import Alive, Dead, Gone
from headrace.errors import HeadraceError, NotOpen
from headrace.hub.live.open import DRAINING
from headrace.hub.operation import Answer, Ask, Operation
from headrace.hub.problems import Problem, problem_of
from headrace.hub.serving import read_body
from headrace.runtime.wire import OLDEST, PROTOCOL, VERBS, Hello, Verb, decode, do, encode

if TYPE_CHECKING:
    from headrace.hub.hub import Hub

__all__ = ["OPERATIONS"]

_MSGPACK = b"application/msgpack"
_SPOKEN = frozenset(b"%d" % number for number in range(OLDEST, PROTOCOL + 1))


def _operation(verb: Verb) -> Operation:
    async def serve(ask: Ask) -> Response:
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


def _arguments(data: bytes, verb: Verb) -> Any:
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
    detail = f"this hub speaks protocols {OLDEST} to {PROTOCOL}: say which in X-Headrace-Protocol"
    raise Problem(400, "protocol", "There is no such protocol", detail)


class _Packed(Response):
    """An answer in msgpack, made at once, since all answers are such."""

    def __init__(self, data: bytes, status: int, hub: Hub) -> None:
        self.body, self.status_code, self.background = data, status, None
        self.raw_headers = [(b"content-length", b"%d" % len(data)), _IS_MSGPACK]
        if hub.draining.is_set():
            self.raw_headers.append((b"connection", b"close"))  # the next request goes to another hub


_IS_MSGPACK = (b"content-type", _MSGPACK)


async def _answer(hub: Hub, verb: Verb, arguments: Any) -> Any:
    app = hub.app
    said = await do(app.engine, verb, arguments)
    if verb.path == "session/time":
        # A store that is a file of this machine has its time: the clock of whoever asks must not matter.
        return said or app.host.clock.now()
    if verb.path == "workers/beat":
        return _timed(said, hub)
    if verb.path == "workers/beat_many":
        return {worker: _timed(one, hub) for worker, one in said.items()}
    if verb.path == "workers/gone":
        found: Gone = said
        # What another hub has found, or this one before it was started anew, says nothing about what is found now.
        return replace(found, by=hub.number + found.by)
    return said


def _timed(said: Alive | Dead, hub: Hub) -> Alive | Dead:
    return replace(said, now=hub.app.host.clock.now()) if isinstance(said, Alive) and said.now is None else said


@cache  # which reads and parses a file
def _version() -> str:
    return version("headrace")


async def _hello(ask: Ask) -> Answer:
    engine, options = ask.hub.app.engine, ask.hub.options
    return Answer(
        Hello(
            newest=PROTOCOL,
            oldest=OLDEST,
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
        method="GET",
        path="/rpc/hello",
        summary="What this hub speaks with remote engines",
        scope="engine",
        bounded="operator",
        do=_hello,
        gives={200: Hello},
    ),
    *map(_operation, VERBS),
)
"""Not in the OpenAPI document: they are for headrace itself, and change with it."""
