"""What an answer of a hub means that is not what was asked for."""

from __future__ import annotations

from typing import Any

import msgspec

from headrace.engines.remote.address import Address
from headrace.engines.remote.http import Answer
from headrace.errors import ConfigError, EngineError, HeadraceError, NotSupported, StoreLost, Unavailable, Unstorable
from headrace.runtime.wire import Verb, decode

__all__ = ["MSGPACK", "Draining", "OtherProtocol", "decoded", "meaning"]

MSGPACK = b"application/msgpack"

_REMEDY = "Make one next to the store (headrace keys create NAME --scope engine), and say it as HEADRACE_KEY"
_REFUSING = frozenset({"draining", "too-many-sockets", "too-slow", "too-many", "unavailable"})
"""Problems of requests that a hub did not begin to serve."""


class Draining(Unavailable):
    """The hub does not serve for now, and has not done what it was asked for."""


class OtherProtocol(NotSupported):
    """The hub does not speak the protocol of the call."""


class _Problem(msgspec.Struct):
    type: str = ""
    title: str = ""
    detail: str = ""

    @property
    def kind(self) -> str:
        return self.type.rpartition("/")[2]

    @property
    def words(self) -> str:
        return self.detail or self.title


def decoded(body: bytes, kind: Any, address: Address) -> Any:
    """What a hub has answered.

    :raises EngineError: it is not of this type
    """
    try:
        return decode(body, kind)
    except msgspec.MsgspecError as error:
        text = f"the hub at {address} answered what this version does not understand ({error}): upgrade headrace"
        raise EngineError(text) from None


def meaning(answer: Answer, address: Address, verb: Verb | None, *, admitted: bool) -> HeadraceError:
    """The error that an answer is. ``admitted``: whether this session was let in before; ``verb``: None for hello."""
    if answer.kind == MSGPACK and verb is not None:
        error: HeadraceError = decoded(answer.body, HeadraceError, address)
        return error
    problem = _problem(answer)
    if problem is None:
        return _of_others(answer, address, admitted)
    where = f"the hub at {address}"
    if answer.status in (401, 403):
        # Who was let in and is no longer has lost the store: a key that was revoked never comes back.
        text = f"{where} answered {answer.status} to {address.whose}: {problem.words}. {_REMEDY}"
        return StoreLost(text) if admitted else ConfigError(text)
    if problem.kind in _REFUSING:
        return Draining(f"{where} does not serve now: {problem.words}", outcome="refused")
    if answer.status < 500:
        return _not_understood(answer, problem, where, verb)
    if problem.kind == "fault":
        return EngineError(f"{where}: {problem.words}")
    return Unavailable(f"{where} answered {answer.status}: {problem.words}", outcome="unknown")


def _problem(answer: Answer) -> _Problem | None:
    if answer.kind != b"application/problem+json":
        return None
    try:
        problem = msgspec.json.decode(answer.body, type=_Problem)
    except msgspec.MsgspecError:
        return None
    return problem if problem.type else None


def _of_others(answer: Answer, address: Address, admitted: bool) -> HeadraceError:
    """Of an answer that no hub gave, but something in its place or in front of it."""
    kind = answer.kind.decode("latin-1") or "without a media type"
    if admitted or answer.status >= 500:  # the hub was there before, so that it may come back
        text = f"something in front of the hub at {address} answered {answer.status} ({kind}) in its place"
        return Unavailable(text, outcome="unknown")
    return ConfigError(
        f"there is no hub of headrace at {address}: it answered {answer.status} ({kind}); check the path of the URL"
    )


def _not_understood(answer: Answer, problem: _Problem, where: str, verb: Verb | None) -> HeadraceError:
    if problem.kind == "protocol":
        return OtherProtocol(f"{where} does not speak as this version does: {problem.words}; upgrade the older")
    if answer.status == 413:
        return Unstorable(f"{where} does not take so much at once: {problem.words}")
    if answer.status not in (404, 405):
        return NotSupported(f"{where} does not understand this version of headrace: {problem.words}")
    if verb is None:
        return NotSupported(f"{where} serves no remote engines ({problem.words}): check the path, or upgrade it")
    return NotSupported(f"{where} does not know {verb.path}: {problem.words}; upgrade the older of the two")
