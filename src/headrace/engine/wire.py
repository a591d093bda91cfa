"""The contract as bytes: every argument and every reply of its verbs as msgpack, for remote engines.

The verbs are read from the Protocols of ``headrace.engine``, so that a new one can be called remotely at once.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterator
from functools import cache
from typing import Any, get_type_hints
from uuid import UUID

import msgspec
from msgspec.structs import astuple

from headrace import errors
from headrace.core.attempt import ErrorInfo
from headrace.core.defaults import Rules
from headrace.core.job import Job
from headrace.engine import Bus, Engine, Hint, Topic
from headrace.errors import HeadraceError

__all__ = [
    "LONG",
    "MIN_PROTOCOL",
    "NEAR",
    "PROTOCOL",
    "VERBS",
    "Hello",
    "Hints",
    "Listening",
    "WireCall",
    "common",
    "decode",
    "do",
    "encode",
    "far_role",
]


class _Told(msgspec.Struct, array_like=True):
    """An error as it is sent."""

    kind: str
    """The name of its class, or of its nearest base that every version knows."""
    message: str
    more: dict[str, Any]
    """The values that it carries."""


_CARRIED: dict[str, Any] = {"job": Job, "id": UUID, "ids": tuple[UUID, ...], "error": ErrorInfo | None}
"""The types of values that errors carry, by name; the others are plain."""

_KNOWN: dict[str, type[HeadraceError]] = {
    name: kind
    for name in errors.__all__
    if issubclass(kind := getattr(errors, name), HeadraceError) and not issubclass(kind, BaseExceptionGroup)
}


def encode(value: Any) -> bytes:
    """Return the value as msgpack."""
    return _encoder.encode(value)


def decode(data: bytes, type: Any) -> Any:
    """Return the value of this type in msgpack; :raises msgspec.ValidationError: it is none of this type"""
    return _decoder(type).decode(data)


@cache
def _decoder(type: Any) -> msgspec.msgpack.Decoder[Any]:
    return msgspec.msgpack.Decoder(type, dec_hook=_read)


def _tell(value: Any) -> Any:
    if not isinstance(value, HeadraceError):
        raise NotImplementedError(f"a {type(value).__name__} does not travel")
    kind = next(one.__name__ for one in type(value).__mro__ if _KNOWN.get(one.__name__) is one)
    return _Told(kind, str(value), dict(vars(value)))


def _read(type: Any, value: Any) -> Any:
    if not issubclass(type, HeadraceError):
        raise NotImplementedError(f"a {type.__name__} does not travel")
    told = msgspec.convert(value, _Told)
    kind = _KNOWN.get(told.kind, HeadraceError)
    # Not by its own constructor, which would compose the message a second time: here it is complete.
    error = kind.__new__(kind, told.message)
    error.args = (told.message,)
    for name, one in told.more.items():
        setattr(error, name, msgspec.convert(one, _CARRIED[name], dec_hook=_read) if name in _CARRIED else one)
    return error


_encoder = msgspec.msgpack.Encoder(enc_hook=_tell)


# -- the verbs


class WireCall(msgspec.Struct, frozen=True):
    """One verb of the contract: its path, its arguments, and its reply."""

    role: str
    """The name of the property of ``Engine``; ``session``: the engine's own."""
    name: str
    takes: type[msgspec.Struct]
    """Its arguments. Those with their default are not sent: so an argument that only one side knows does no harm until
    it is used."""
    gives: Any
    positional: int
    """How many of the arguments may be positional."""

    @property
    def path(self) -> str:
        """The path of its route."""
        return f"{self.role}/{self.name}"

    @property
    def reads(self) -> bool:
        """Return whether it writes nothing, so that it can be repeated safely."""
        return self.role in ("records", "session") or self.path in READS


class Hello(msgspec.Struct, frozen=True, kw_only=True):
    """What a server says first about itself: fields may be added, none is ever removed."""

    newest: int
    """The newest protocol that it speaks."""
    oldest: int
    headrace: str
    """Its version."""
    store: str
    """The name of its engine."""
    most: int
    """Bytes that the arguments of a call may have."""
    rules: Rules
    gone_after: float
    """As ``Workers`` has it."""


class Listening(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a client sends about hints."""

    topics: frozenset[Topic] | None = None
    """All topics that it listens for from now on; None: as before."""
    hints: tuple[Hint, ...] = ()
    """To be sent."""
    attends: tuple[UUID, str] | None = None
    """The worker of this connection, and the proof that its beats name meanwhile; None: as before."""
    beat: float | None = None
    """Seconds between two beats of that worker; None: as set at the server."""


class Hints(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a server sends about hints."""

    heard: frozenset[Topic] | None = None
    """It has begun to listen for these; None: no change."""
    wanted: frozenset[Topic] | None = None
    """All topics that may have a listener; None: no change."""
    hints: tuple[Hint, ...] = ()


PROTOCOL = 1
"""The protocol of this version. It is raised by every change of the bytes that earlier versions read or write, and by
every new field of a value that a store keeps: a version that does not know the field would lose it."""
MIN_PROTOCOL = 1
"""The oldest protocol that this version understands: that of the release before."""

NEAR = frozenset({"workers/attend", "session/open", "session/close", "session/exists", "session/migrate"})
"""Verbs that are not called remotely: a process holds what is held, and the server has opened the store."""

LONG = frozenset({"records/verify", "records/find", "records/count_matching", "records/failures", "session/check"})
"""Verbs that may have to read every job, and take minutes."""


READS = frozenset({"jobs/get", "jobs/overdue", "entries/tail", "rollups/read"}) | {
    *(f"workers/{name}" for name in ("list", "gone", "find_gone", "get_gone")),
    *(f"families/{name}" for name in ("batches", "find_batches")),
    *(f"documents/{name}" for name in ("profiles", "settings", "audit", "holder")),
}
"""Verbs that write nothing, beside all verbs of ``records`` and ``session``."""


def common(hello: Hello) -> int | None:
    """Return the protocol to use with such a server; None: there is none that both know."""
    spoken = min(PROTOCOL, hello.newest)
    return spoken if spoken >= max(MIN_PROTOCOL, hello.oldest) else None


def _roles() -> Iterator[tuple[str, type]]:
    """Yield the Protocols of an engine's roles, by the names of its properties; without those of one process only."""
    yield "session", Engine
    for name, value in vars(Engine).items():
        if isinstance(value, property):
            role = get_type_hints(value.fget)["return"]
            if isinstance(role, type) and role is not Bus:
                yield name, role


def _verb(role: str, name: str, function: Any) -> WireCall:
    hints, (_, *given) = get_type_hints(function), inspect.signature(function).parameters.values()
    gives = hints.pop("return")
    fields: list[Any] = [
        (one.name, hints[one.name]) if one.default is one.empty else (one.name, hints[one.name], one.default)
        for one in given
    ]
    takes = msgspec.defstruct(f"{role}_{name}", fields, frozen=True, omit_defaults=True, forbid_unknown_fields=True)
    positional = sum(one.kind is not one.KEYWORD_ONLY for one in given)
    return WireCall(role, name, takes, gives, positional)


VERBS: tuple[WireCall, ...] = tuple(
    _verb(role, name, function)
    for role, protocol in _roles()
    for name, function in vars(protocol).items()
    if inspect.iscoroutinefunction(function) and f"{role}/{name}" not in NEAR
)
"""Every verb that can be called remotely, read from the Protocols."""


def far_role(role: str, call: Callable[[WireCall, Any], Awaitable[Any]]) -> Any:
    """Return a role with calls as its verbs: what a remote engine has in its place."""
    verbs = {verb.name: _far_verb(verb, call) for verb in VERBS if verb.role == role}
    return type(f"Far{role.capitalize()}", (), {name: staticmethod(verb) for name, verb in verbs.items()})()


def _far_verb(verb: WireCall, call: Callable[[WireCall, Any], Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    takes = verb.takes

    def ask(*args: Any, **more: Any) -> Awaitable[Any]:
        return call(verb, takes(*args, **more))

    ask.__name__ = verb.name
    return ask


async def do(engine: Engine, verb: WireCall, arguments: Any) -> Any:
    """Call a verb: return what the engine of a server replies to these arguments, which are of ``verb.takes``."""
    role = engine if verb.role == "session" else getattr(engine, verb.role)
    given, names = astuple(arguments), verb.takes.__struct_fields__
    here = verb.positional
    return await getattr(role, verb.name)(*given[:here], **dict(zip(names[here:], given[here:], strict=True)))
