"""A request as values, with any framework: what is stored of it with the job, its key, and how long it waits.

``Idempotency-Key`` names a request; ``Prefer`` (RFC 7240) says how long a client waits for the result. The wait ends
when the client disconnects.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from typing import Any, TypeVar
from uuid import UUID

import msgspec

from headrace.core.job import Pairs, Values
from headrace.core.validation import checked_key
from headrace.errors import ConfigError
from headrace.http.problems import Fault, Problem

__all__ = [
    "ALL",
    "HEADERS",
    "EndpointRequest",
    "HungUp",
    "Preference",
    "checked_headers",
    "is_credential",
    "kept_headers",
    "kept_query",
    "key_of",
    "patiently",
    "preference_of",
    "route_of",
    "values_of",
]


ALL = "*"
"""All headers but credentials."""
HEADERS = ("accept-language", "user-agent", "x-request-id", "x-correlation-id")
"""The headers that are stored by default."""

_PARTS = (
    *(
        "authorization",
        "cookie",
        "token",
        "secret",
        "session",
        "sessid",
        "signature",
        "credential",
        "assertion",
        "jwt",
        "oauth",
    ),
    *("password", "passwd", "passphrase", "passcode", "apikey", "accesskey", "authkey", "privatekey"),
    *("authcode", "accesscode", "otpcode", "smscode", "logincode", "verificationcode", "userpwd", "newpwd", "oldpwd"),
)
"""Parts of the names of credentials, wherever they stand in a header or parameter."""
_WORDS = frozenset({"auth", "code", "hmac", "key", "keys", "otp", "pass", "pin", "pwd", "sid", "sig", "totp"})
"""Words in such names: ``author`` differs from ``x-auth``."""
_OF_GATES = (
    *("x-goog-iap-", "x-goog-authenticated-user-", "x-amzn-oidc-", "x-amzn-request-context", "cf-access-"),
    *("x-ms-client-principal", "x-ms-token-", "x-forwarded-client-cert", "x-appengine-user-", "x-amzn-mtls-clientcert"),
    *("x-apigateway-api-userinfo", "x-endpoint-api-userinfo"),
)
"""Prefixes of the headers with which gateways of Google, AWS, Cloudflare and Azure name the caller, and prove it."""
_HARMLESS = frozenset({"idempotency-key", "sec-websocket-key"})
_NO_SECRET_KEYS = frozenset({"foreign", "group", "natural", "order", "partition", "primary", "row", "sort"})
"""Words before ``key`` that make it the name of a field or row, and no credential."""
_COUNTED = frozenset({"completion", "count", "input", "limit", "max", "min", "num", "output", "prompt", "total"})
"""Words beside ``tokens`` that make these pieces of text, which are counted."""
_NO_SECRET_CODES = frozenset(
    {"area", "color", "country", "coupon", "currency", "error", "language", "locale", "postal", "product", "promo"}
    | {"region", "state", "status", "zip"}
)
"""Words before ``code`` that make it a classification, and no credential."""
_word = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|[0-9]+")
_PLAIN = (str, int, float)


class EndpointRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request, as far as a route that becomes a job, or a status page, needs it."""

    headers: Values
    """By their names in lower case; a header that is given more than once has all values in their order."""
    route: Mapping[str, Any] = {}
    """The parameters in its path."""
    query: Sequence[tuple[str, str]] = ()
    """The parameters in its query, in their order."""
    identity: str | None = None
    """The caller, if known."""
    where: Callable[[UUID], str | None] = lambda id: None
    """Returns the address of a job's status page; None: there is none."""
    left: Callable[[], Awaitable[object]] | None = None
    """Returns when the client disconnects; None: that cannot be detected."""

    def all(self, name: str) -> Sequence[str]:
        """Return the values of a header, in their order."""
        return self.headers.get(name, ())


def checked_headers(names: Iterable[str]) -> frozenset[str]:
    """Return an allow-list of headers in lower case; :raises ConfigError:"""
    given: list[Any] = [None] if isinstance(names, str) else list(names)
    if not all(isinstance(name, str) for name in given):
        raise ConfigError(f'headers must be a list of names, as in ["x-tenant"], or ["*"], not {names!r}')
    return frozenset(name.lower() for name in given)


def is_credential(name: str) -> bool:
    """Return whether this is the name of a possible credential; such headers are stored only if they are named."""
    words = [word.lower() for word in _word.findall(name)]
    plain, joined = name.lower().replace("_", "-"), "".join(words)
    if plain in _HARMLESS or _says_what(words):
        return False
    if plain.startswith(_OF_GATES) or any(part in joined for part in _PARTS):
        return True
    if "code" in words and not _NO_SECRET_CODES.isdisjoint(words):
        words.remove("code")
    return not _WORDS.isdisjoint(words)


def _says_what(words: list[str]) -> bool:
    """Return whether a name of a few words means a field, as ``sort_key`` does, or a number of pieces of text, as
    ``max_tokens``."""
    *before, last = words or [""]
    if last in {"key", "keys"}:
        return len(before) == 1 and before[0] in _NO_SECRET_KEYS
    return "tokens" in words and 2 <= len(words) <= 3 and set(words) - {"tokens", "new"} <= _COUNTED


def kept_headers(headers: Values, allowed: Collection[str]) -> Values:
    """Return the headers that an allow-list lets pass."""
    every = ALL in allowed
    return {name: values for name, values in headers.items() if name in allowed or (every and not is_credential(name))}


def kept_query(query: Iterable[tuple[str, str]]) -> Pairs:
    """Return the query parameters that are stored, in their order: no credentials. A handler's own are among its
    arguments."""
    return tuple((name, value) for name, value in query if not is_credential(name))


def route_of(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters in a path as they are stored: values that a framework converted are text again."""
    return {name: one if isinstance(one, _PLAIN) else str(one) for name, one in parameters.items()}


def values_of(pairs: Iterable[tuple[str, str]]) -> Values:
    """Return the values of each name, in their order."""
    found: dict[str, list[str]] = {}
    for name, value in pairs:
        found.setdefault(name, []).append(value)
    return {name: tuple(values) for name, values in found.items()}


KEY_HEADERS = ("idempotency-key", "x-async-request-id")
"""Each of them names a request."""

_TITLE = "The request cannot be understood"


def key_of(asked: EndpointRequest, shared: bool) -> str | None:
    """Return the key of a request; None: it has none.

    ``shared``: unknown callers share their keys.

    :raises Problem: 400, it is not clear which key it is, or which caller's
    """
    if asked.headers.keys().isdisjoint(KEY_HEADERS):  # like most requests
        return None
    keys = {(name, value.strip()) for name in KEY_HEADERS for value in asked.all(name)}
    if len({value for _, value in keys}) > 1:
        raise Problem(400, "malformed", _TITLE, f"a request has one key: {', '.join(KEY_HEADERS)} say different ones")
    name, key = keys.pop()
    if asked.identity is None and not shared:
        text = (
            f"{name}: keys belong to callers, and nobody knows who is asking: sign in, or leave the key out"
            " (for who runs this service: JobRouter(identity=...) says who asks, shared_keys=True lets all share keys)"
        )
        raise Problem(400, "key-without-caller", "Nobody knows whose key this is", text, faults=[Fault(name, text)])
    try:
        return checked_key(key, name)
    except ConfigError as error:
        raise Problem(400, "malformed", _TITLE, str(error), faults=[Fault(name, str(error))]) from None


class Preference(msgspec.Struct, frozen=True):
    """How long a client waits for the end of a job before it gets the response that the job goes on."""

    wait: int | None = None
    """Seconds; None: it does not say."""
    respond_async: bool = False
    """The response may come before the job has ended; without ``wait``, at once."""

    def seconds(self, default: float, longest: float) -> float:
        """Return how long to wait; ``default``: without a preference, ``longest``: the maximum."""
        if self.wait is not None:
            return min(float(self.wait), longest)
        return 0.0 if self.respond_async else min(default, longest)

    def applied(self, longest: float) -> dict[str, str]:
        """Return the header that says what was applied."""
        if self.wait is not None:
            said = f"wait={min(self.wait, int(longest))}"
            return {"Preference-Applied": f"respond-async, {said}" if self.respond_async else said}
        return {"Preference-Applied": "respond-async"} if self.respond_async else {}


def preference_of(headers: Iterable[str]) -> Preference:
    """Parse the ``Prefer`` headers of a request; the first of equal preferences counts, unknown ones are ignored."""
    said: dict[str, str] = {}
    for one in ",".join(headers).split(","):
        name, _, value = one.partition(";")[0].partition("=")
        said.setdefault(name.strip().lower(), value.strip().strip('"'))
    wait = said.get("wait", "")
    known = wait.isascii() and wait.isdigit() and len(wait) < 10
    return Preference(int(wait) if known else None, "respond-async" in said)


T = TypeVar("T")


class HungUp(Exception):
    """The client has disconnected, and gets no response."""


async def patiently(asked: EndpointRequest, work: Coroutine[Any, Any, T]) -> T:
    """Return the result of the work, which ends by itself in time.

    :raises HungUp: the client is gone; what the work waited for goes on
    """
    if asked.left is None:
        return await work
    working = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(asked.left())
    try:
        await asyncio.wait((working, leaving), return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise HungUp
        return working.result()
    finally:
        working.cancel()
        leaving.cancel()
        await asyncio.gather(working, leaving, return_exceptions=True)
