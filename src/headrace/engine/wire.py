"""The contract as bytes: every argument and every answer of its verbs as msgpack, for engines that are far away.

The verbs are read from the Protocols of ``headrace.engine``, so that a new one can be asked for from afar at once.
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
    """An error as it travels."""

    kind: str
    """The name of its class; of the nearest one that everybody knows."""
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
    """The value as msgpack."""
    return _encoder.encode(value)


def decode(data: bytes, type: Any) -> Any:
    """The value of this type in msgpack.

    :raises msgspec.ValidationError: it is none of this type
    """
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
    # Not by its own constructor, which would put the message together once more: here it is as it was.
    error = kind.__new__(kind, told.message)
    error.args = (told.message,)
    for name, one in told.more.items():
        setattr(error, name, msgspec.convert(one, _CARRIED[name], dec_hook=_read) if name in _CARRIED else one)
    return error


_encoder = msgspec.msgpack.Encoder(enc_hook=_tell)


# -- the verbs


class WireCall(msgspec.Struct, frozen=True):
    """One verb of the contract: where it is asked for, what it takes, and what it gives."""

    role: str
    """As the property of ``Engine`` is called; ``session``: the engine's own."""
    name: str
    takes: type[msgspec.Struct]
    """Its arguments. What has its default is not sent: so an argument that only one side knows of does no harm until
    somebody uses it."""
    gives: Any
    positional: int
    """How many of the arguments may be given by place."""

    @property
    def path(self) -> str:
        """Where it is asked for."""
        return f"{self.role}/{self.name}"

    @property
    def reads(self) -> bool:
        """Whether it writes nothing, so that it can be asked once more without a thought."""
        return self.role in ("records", "session") or self.path in READS


class Hello(msgspec.Struct, frozen=True, kw_only=True):
    """What a server says of itself, before anything else is said: fields may come, none ever goes."""

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
    """What a client says about hints."""

    topics: frozenset[Topic] | None = None
    """All topics that it listens for from now on; None: as before."""
    hints: tuple[Hint, ...] = ()
    """To be sent."""
    attends: tuple[UUID, str] | None = None
    """The worker whose connection this is, and the proof that its beats name while it is; None: as before."""
    beat: float | None = None
    """Seconds between two beats of that worker; None: as the server's settings say."""


class Hints(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a server says about hints."""

    heard: frozenset[Topic] | None = None
    """It has begun to listen for these; None: no news."""
    wanted: frozenset[Topic] | None = None
    """All topics that anybody may be listening for; None: no news."""
    hints: tuple[Hint, ...] = ()


PROTOCOL = 1
"""What this version speaks. It is raised by whatever makes another of the bytes that earlier versions read or write,
and by every new field of a value that a store keeps: who does not know the field would lose it."""
MIN_PROTOCOL = 1
"""The oldest that this version understands: that of the release before."""

NEAR = frozenset({"workers/attend", "session/open", "session/close", "session/exists", "session/migrate"})
"""What is not asked of a far engine: what is held is held by a process, and whoever serves has opened the store."""

LONG = frozenset({"records/verify", "records/find", "records/count_matching", "records/failures", "session/check"})
"""What may have to look at every job, and take minutes."""


READS = frozenset({"jobs/get", "jobs/overdue", "entries/tail", "rollups/read", "workers/list", "workers/gone"}) | {
    *(f"families/{name}" for name in ("batches", "find_batches")),
    *(f"documents/{name}" for name in ("profiles", "settings", "audit", "holder")),
}
"""What writes nothing, beside all verbs of ``records`` and ``session``."""


def common(hello: Hello) -> int | None:
    """The protocol to speak with a server that says this; None: there is none that both know."""
    spoken = min(PROTOCOL, hello.newest)
    return spoken if spoken >= max(MIN_PROTOCOL, hello.oldest) else None


def _roles() -> Iterator[tuple[str, type]]:
    """The Protocols of an engine's roles, by the names of its properties; but for what is of one process only."""
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
"""Every verb that can be asked for from afar, read from the Protocols."""


def far_role(role: str, call: Callable[[WireCall, Any], Awaitable[Any]]) -> Any:
    """A role whose verbs are calls: what the engine of a client has in its place."""
    verbs = {verb.name: _far_verb(verb, call) for verb in VERBS if verb.role == role}
    return type(f"Far{role.capitalize()}", (), {name: staticmethod(verb) for name, verb in verbs.items()})()


def _far_verb(verb: WireCall, call: Callable[[WireCall, Any], Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    takes = verb.takes

    def ask(*args: Any, **more: Any) -> Awaitable[Any]:
        return call(verb, takes(*args, **more))

    ask.__name__ = verb.name
    return ask


async def do(engine: Engine, verb: WireCall, arguments: Any) -> Any:
    """Do a verb: what the engine of a server answers to these arguments, which are of ``verb.takes``."""
    role = engine if verb.role == "session" else getattr(engine, verb.role)
    given, names = astuple(arguments), verb.takes.__struct_fields__
    here = verb.positional
    return await getattr(role, verb.name)(*given[:here], **dict(zip(names[here:], given[here:], strict=True)))
