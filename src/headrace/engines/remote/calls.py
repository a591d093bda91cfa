"""Calls of a hub: a verb and its arguments, and its reply or its error; what other replies mean."""

from __future__ import annotations

from typing import Any

import msgspec

from headrace.engine.wire import LONG, MIN_PROTOCOL, PROTOCOL, Hello, WireCall, common, decode, encode
from headrace.engines.remote.connection import Address, Answer, Lost, NotSent, Pool
from headrace.engines.validation import UNENCODABLE
from headrace.errors import (
    ConfigError,
    EngineError,
    HeadraceError,
    NotOpen,
    NotSupported,
    StoreLost,
    Unavailable,
    Unstorable,
)

__all__ = ["MSGPACK", "Calls", "Draining", "OtherProtocol", "decoded", "meaning"]


MSGPACK = b"application/msgpack"

_REMEDY = "Make one next to the store (headrace keys create NAME --scope engine), and say it as HEADRACE_KEY"
_REFUSING = frozenset({"draining", "too-many-sockets", "too-slow", "too-many", "unavailable"})
"""Problems of requests that a hub did not begin to serve."""


class Draining(Unavailable):
    """The hub does not serve for now, and has not done the request."""


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
    """Return the reply of a hub; :raises EngineError: it is not of this type"""
    try:
        return decode(body, kind)
    except msgspec.MsgspecError as error:
        text = f"the hub at {address} answered what this version does not understand ({error}): upgrade headrace"
        raise EngineError(text) from None


def meaning(answer: Answer, address: Address, verb: WireCall | None, *, admitted: bool) -> HeadraceError:
    """Return the error of a reply. ``admitted``: whether this session was accepted before; ``verb``: None for hello."""
    if answer.kind == MSGPACK and verb is not None:
        error: HeadraceError = decoded(answer.body, HeadraceError, address)
        return error
    problem = _problem(answer)
    if problem is None:
        return _of_others(answer, address, admitted)
    where = f"the hub at {address}"
    if answer.status in (401, 403):
        # A session that was accepted and is no longer has lost the store: a revoked key never comes back.
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
    """Return the error of a reply that no hub sent, but something in its place or in front of it."""
    kind = answer.kind.decode("latin-1") or "without a media type"
    if admitted or answer.status >= 500:  # the hub was there before, so that it may come back
        text = f"something in front of the hub at {address} answered {answer.status} ({kind}) in its place"
        return Unavailable(text, outcome="unknown")
    return ConfigError(
        f"there is no hub of headrace at {address}: it answered {answer.status} ({kind}); check the path of the URL"
    )


def _not_understood(answer: Answer, problem: _Problem, where: str, verb: WireCall | None) -> HeadraceError:
    if problem.kind == "protocol":
        return OtherProtocol(f"{where} does not speak as this version does: {problem.words}; upgrade the older")
    if answer.status == 413:
        return Unstorable(f"{where} does not take so much at once: {problem.words}")
    if answer.status not in (404, 405):
        return NotSupported(f"{where} does not understand this version of headrace: {problem.words}")
    if verb is None:
        return NotSupported(f"{where} serves no remote engines ({problem.words}): check the path, or upgrade it")
    return NotSupported(f"{where} does not know {verb.path}: {problem.words}; upgrade the older of the two")


TIMEOUT_SECONDS, LONG_TIMEOUT_SECONDS = 30.0, 300.0
"""Seconds for a reply, and for one that may have to read every job: as engines have for their servers."""


class Calls:
    """The calls of one session."""

    def __init__(self, address: Address, silence: float) -> None:
        self._address = address
        self._patience = dict.fromkeys(LONG, LONG_TIMEOUT_SECONDS) | {"workers/beat": min(silence, TIMEOUT_SECONDS)}
        self._heads: dict[str, bytes] = {}
        self._pool: Pool | None = None
        self._most: int | None = None
        self._protocol = PROTOCOL
        self._admitted = False
        """Whether the hub accepted this session before."""

    async def open(self) -> Hello:
        """Connect, and agree on a protocol.

        :raises Unavailable: the hub cannot be reached :raises ConfigError: it does not accept this key, or speaks
        another protocol
        """
        pool = Pool(self._address)
        try:
            hello = await self._greet(pool)
        except BaseException:
            await pool.close()
            raise
        self._pool, self._most, self._admitted = pool, hello.most, True
        return hello

    async def close(self) -> None:
        """Wait for what is under way, and disconnect."""
        pool, self._pool, self._admitted = self._pool, None, False
        if pool is not None:
            await pool.close()

    async def greet(self) -> Hello:
        """Return what the hub says about itself; for this, the session need not be open."""
        if self._pool is not None:
            return await self._greet(self._pool)
        pool = Pool(self._address)
        try:
            return await self._greet(pool)
        finally:
            await pool.close()

    async def _greet(self, pool: Pool) -> Hello:
        try:
            answer = await pool.ask(self._head("GET", "hello"), TIMEOUT_SECONDS)
        except (NotSent, Lost) as error:
            raise self._away(error) from None
        if answer.status != 200:
            raise meaning(answer, self._address, None, admitted=self._admitted)
        try:
            hello = msgspec.json.decode(answer.body, type=Hello)
        except msgspec.MsgspecError:
            raise meaning(answer, self._address, None, admitted=self._admitted) from None
        found = common(hello)
        if found is None:
            older = "the hub" if hello.newest < MIN_PROTOCOL else "headrace here"
            raise ConfigError(
                f"the hub at {self._address} (headrace {hello.headrace}) speaks protocols {hello.oldest} to"
                f" {hello.newest}, and this version {MIN_PROTOCOL} to {PROTOCOL}: upgrade {older}"
            )
        if found != self._protocol:
            self._protocol, self._heads = found, {}
        return hello

    async def call(self, verb: WireCall, arguments: Any) -> Any:
        """Return the hub's reply to a verb; :raises Unavailable: it could not be reached, or it did not reply"""
        pool = self._pool
        if pool is None:
            raise NotOpen("the session is not open")
        request = self._request(verb, arguments)
        patience, fresh = self._patience.get(verb.path, TIMEOUT_SECONDS), False
        while True:
            try:
                answer = await pool.ask(request, patience, fresh=fresh)
            except NotSent as error:
                raise self._away(error) from None
            except Lost as error:
                if error.untouched and verb.reads and not fresh:
                    fresh = True
                    continue
                raise self._away(error) from None
            if answer.status == 200 and answer.kind == MSGPACK:
                return decoded(answer.body, verb.gives, self._address)
            failure = meaning(answer, self._address, verb, admitted=True)
            if isinstance(failure, OtherProtocol) and self._protocol != MIN_PROTOCOL:
                # Of two releases behind one address, this is the older: what both of them speak, all do.
                self._protocol, self._heads = MIN_PROTOCOL, {}
                request = self._request(verb, arguments)
            elif isinstance(failure, Draining) and not fresh:
                fresh = True  # another hub may be there by now
            else:
                raise failure

    def _request(self, verb: WireCall, arguments: Any) -> bytes:
        try:
            body = encode(arguments)
        except UNENCODABLE as error:  # of which UnicodeEncodeError is one
            if verb.reads and isinstance(error, UnicodeEncodeError):
                return self._request(verb, _without_halves(msgspec.to_builtins(arguments)))
            raise Unstorable(f"it cannot be sent to the hub, nor stored: {error}") from None
        if self._most is not None and len(body) > self._most:
            much = f"{len(body)} bytes are more than the {self._most} that the hub takes at once"
            raise Unstorable(f"{verb.path}: {much}: submit less in one call")
        head = self._heads.get(verb.path)
        if head is None:
            head = self._heads[verb.path] = self._head("POST", verb.path, content_type=MSGPACK.decode())
        return b"%bContent-Length: %d\r\n\r\n%b" % (head[:-2], len(body), body)

    def _head(self, method: str, path: str, **more: str) -> bytes:
        address = self._address
        fields = {
            "Host": address.authority,
            **address.headers,
            "X-Headrace-Protocol": str(self._protocol),
            **{name.replace("_", "-").title(): value for name, value in more.items()},
        }
        lines = [
            f"{method} {address.root}/rpc/{path} HTTP/1.1",
            *(f"{name}: {value}" for name, value in fields.items()),
        ]
        return "\r\n".join([*lines, "", ""]).encode()

    def _away(self, error: NotSent | Lost) -> Unavailable:
        if isinstance(error, NotSent):
            return Unavailable(f"the hub at {self._address} cannot be reached: {error}", outcome="refused")
        return Unavailable(f"the hub at {self._address} was asked, and gave no answer: {error}", outcome="unknown")


def _without_halves(value: Any) -> Any:
    """Return a query with an unencodable text as one that finds nothing either: no store has a NUL in a text."""
    if isinstance(value, str):
        return "".join("\0" if "\ud800" <= one <= "\udfff" else one for one in value)
    if isinstance(value, dict):
        return {name: _without_halves(one) for name, one in value.items()}
    return [_without_halves(one) for one in value] if isinstance(value, list | tuple | set | frozenset) else value
