"""Calls of a hub: a verb and its arguments there, and its answer or its error back."""

from __future__ import annotations

from typing import Any

import msgspec

from headrace.engines.remote.address import Address
from headrace.engines.remote.http import Answer, Lost, NotSent, Pool
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
from headrace.runtime.wire import LONG, OLDEST, PROTOCOL, Hello, Verb, common, decode, encode

__all__ = ["MSGPACK", "Calls"]

MSGPACK = b"application/msgpack"
PATIENCE, LONG_PATIENCE = 30.0, 300.0
"""Seconds for an answer, and for one that may have to look at every job: as engines have for their servers."""

_REMEDY = "make one next to the store (headrace keys create NAME --scope engine), and say it as HEADRACE_KEY"


class _Problem(msgspec.Struct):
    """What a hub says of a request that it does not serve."""

    type: str = ""
    title: str = ""
    detail: str = ""

    @property
    def kind(self) -> str:
        return self.type.rpartition("/")[2]

    @property
    def words(self) -> str:
        return self.detail or self.title


class Calls:
    """The calls of one session."""

    def __init__(self, address: Address, silence: float) -> None:
        self._address = address
        self._patience = dict.fromkeys(LONG, LONG_PATIENCE) | {"workers/beat": min(silence, PATIENCE)}
        self._heads: dict[str, bytes] = {}
        self._pool: Pool | None = None
        self._most: int | None = None
        self._protocol = PROTOCOL
        self._admitted = False
        """Whether the hub let this session in before."""

    async def open(self) -> Hello:
        """Connect, and agree on a protocol.

        :raises Unavailable: the hub cannot be reached
        :raises ConfigError: it does not let this key in, or speaks another protocol
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
        """What the hub says of itself; for this, the session need not be open."""
        if self._pool is not None:
            return await self._greet(self._pool)
        pool = Pool(self._address)
        try:
            return await self._greet(pool)
        finally:
            await pool.close()

    async def _greet(self, pool: Pool) -> Hello:
        try:
            answer = await pool.ask(self._head("GET", "hello"), PATIENCE)
        except (NotSent, Lost) as error:
            raise self._away(error) from None
        if answer.status != 200:
            raise self._failure(answer, None)
        try:
            hello = msgspec.json.decode(answer.body, type=Hello)
        except msgspec.MsgspecError:
            raise self._no_hub(answer) from None
        found = common(hello)
        if found is None:
            older = "the hub" if hello.newest < OLDEST else "headrace here"
            raise ConfigError(
                f"the hub at {self._address} (headrace {hello.headrace}) speaks protocols {hello.oldest} to"
                f" {hello.newest}, and this version {OLDEST} to {PROTOCOL}: upgrade {older}"
            )
        if found != self._protocol:
            self._protocol, self._heads = found, {}
        return hello

    async def call(self, verb: Verb, arguments: Any) -> Any:
        """The hub's answer to a verb.

        :raises Unavailable: it could not be asked, or it did not answer
        """
        pool = self._pool
        if pool is None:
            raise NotOpen("the session is not open")
        request = self._request(verb, arguments)
        patience, fresh = self._patience.get(verb.path, PATIENCE), False
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
                return self._decoded(answer.body, verb.gives)
            failure = self._failure(answer, verb)
            if fresh or not isinstance(failure, _Draining):
                raise failure
            fresh = True  # another hub may be there by now

    def _request(self, verb: Verb, arguments: Any) -> bytes:
        try:
            body = encode(arguments)
        except (UnicodeEncodeError, OverflowError) as error:
            if verb.reads and isinstance(error, UnicodeEncodeError):
                return self._request(verb, _without_halves(msgspec.to_builtins(arguments)))
            raise Unstorable(f"it cannot be sent to the hub, nor stored: {error}") from None
        if self._most is not None and len(body) > self._most:
            raise Unstorable(
                f"{verb.path}: {len(body)} bytes are more than the {self._most} that the hub takes at once"
            )
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

    # -- what goes wrong

    def _decoded(self, body: bytes, kind: Any) -> Any:
        try:
            return decode(body, kind)
        except msgspec.MsgspecError as error:
            raise EngineError(
                f"the hub at {self._address} answered what this version does not understand ({error}): upgrade headrace"
            ) from None

    def _away(self, error: NotSent | Lost) -> Unavailable:
        if isinstance(error, NotSent):
            return Unavailable(f"the hub at {self._address} cannot be reached: {error}", outcome="refused")
        return Unavailable(f"the hub at {self._address} was asked, and gave no answer: {error}", outcome="unknown")

    def _failure(self, answer: Answer, verb: Verb | None) -> HeadraceError:
        """What an answer means that is not what was asked for."""
        if answer.kind == MSGPACK and verb is not None:
            error = self._decoded(answer.body, HeadraceError)
            assert isinstance(error, HeadraceError)
            return error
        problem = _Problem()
        if answer.kind == b"application/problem+json":
            try:
                problem = msgspec.json.decode(answer.body, type=_Problem)
            except msgspec.MsgspecError:
                return self._no_hub(answer)
        where, status = f"the hub at {self._address}", answer.status
        if status in (401, 403):
            return self._not_admitted(f"{where} answered {status} to {self._address.whose}: {problem.words or 'no'}")
        if not problem.type and status < 500:
            return self._no_hub(answer)
        if problem.kind == "protocol" or status in (404, 405):
            if verb is None:
                return NotSupported(
                    f"{where} serves no remote engines ({problem.words}): check the path, or upgrade it"
                )
            return NotSupported(f"{where} does not know {verb.path}: {problem.words}; upgrade the older of the two")
        if status == 400:
            return NotSupported(f"{where} does not understand this version of headrace: {problem.words}")
        if status == 413:
            return Unstorable(f"{where} does not take so much at once: {problem.words}")
        if problem.kind in _REFUSING:
            return _Draining(f"{where} does not serve now: {problem.words}", outcome="refused")
        if problem.kind == "fault":
            return EngineError(f"{where}: {problem.words}")
        return Unavailable(f"{where} answered {status}: {problem.words or 'no word of why'}", outcome="unknown")

    def _not_admitted(self, why: str) -> HeadraceError:
        # Who was let in and is no longer has lost the store: a key that was revoked never comes back.
        text = f"{why}. {_REMEDY[0].upper()}{_REMEDY[1:]}"
        return StoreLost(text) if self._admitted else ConfigError(text)

    def _no_hub(self, answer: Answer) -> ConfigError:
        return ConfigError(
            f"there is no hub of headrace at {self._address}: it answered {answer.status}"
            f" ({answer.kind.decode('latin-1') or 'without a media type'}); check the path of the URL"
        )


def _without_halves(value: Any) -> Any:
    """A question whose text no line can carry, as one that finds nothing either: no store has a NUL in a text."""
    if isinstance(value, str):
        return "".join("\0" if "\ud800" <= one <= "\udfff" else one for one in value)
    if isinstance(value, dict):
        return {name: _without_halves(one) for name, one in value.items()}
    return [_without_halves(one) for one in value] if isinstance(value, list | tuple | set | frozenset) else value


class _Draining(Unavailable):
    """The hub goes away, and has not done what it was asked for."""


_REFUSING = frozenset({"draining", "too-many-sockets", "too-slow", "too-many", "unavailable"})
"""Problems of requests that the hub did not begin to serve."""
