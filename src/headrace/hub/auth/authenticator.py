"""The authenticator of the hub: it finds the caller of each request, and decides whether to admit it.

Every request passes here, so it reads nothing from the store: it follows changes of keys beside the requests.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager, suppress
from typing import TYPE_CHECKING

from starlette.requests import HTTPConnection
from starlette.types import Scope as Connection

from headrace.client.api.keys import POLL_SECONDS, USE_NOTE_INTERVAL, note_key_use, watch_keys
from headrace.core.auth.api_keys import SHOWN_KEY_CHARACTERS, Keyring, Scope, StoredKey, is_key
from headrace.errors import ConfigError, HeadraceError
from headrace.http.problems import Problem
from headrace.hub.auth.caller import ANYBODY, LOCAL, Caller
from headrace.hub.auth.loopback import refuse_strangers, unsafe
from headrace.hub.auth.quotas import SubmitRate
from headrace.hub.server.operation import Bounded, Operation

if TYPE_CHECKING:
    from headrace.app import App
    from headrace.hub.options import HubOptions

__all__ = ["Authenticator", "Revoked"]

_log = logging.getLogger("headrace.hub")

Revoked = Callable[[str | None], object]
"""Called with ``Caller.key`` of callers that are no longer admitted; None: callers from before there were keys."""


class _Holder:
    """A key with its caller and its counters."""

    __slots__ = ("caller", "digest", "noted_at", "rate")

    def __init__(self, stored: StoredKey, rate: SubmitRate | None) -> None:
        key, grant = stored.key, stored.key.grant
        self.digest, self.noted_at, self.rate = stored.digest, key.used_at, rate
        self.caller = Caller(
            name=key.name,
            key=key.prefix,
            scopes=grant.scopes,
            customer=grant.customer,
            tasks=grant.tasks,
            queues=grant.queues,
            expires_at=grant.expires_at,
        )


class Authenticator:
    """Admits callers, or refuses them with a problem."""

    def __init__(self, app: App, options: HubOptions) -> None:
        self._app, self._options = app, options
        self._holders: dict[str, _Holder] = {}
        """By the prefix of the key."""
        self._keyed = True
        """Whether keys are needed: until they are loaded, and from the first on. Revoking the last does not open the
        hub."""
        self._deaf = False
        """Whether it no longer learns of revoked keys, since the store was lost: then no caller is admitted."""
        self._listeners: dict[object, Revoked] = {}
        self._used: set[str] = set()
        self._use = asyncio.Event()
        self._loops: list[asyncio.Task[None]] = []

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Load the keys, and follow their changes while entered.

        :raises ConfigError: there are none, and the hub can be reached from elsewhere
        """
        async with aclosing(watch_keys(self._app)) as rings:
            ring = await anext(rings)
            if not ring and (why := unsafe(self._options)):
                raise ConfigError(why)
            self._keyed, self._deaf = bool(ring), False
            self._take(ring)
            works = self._follow(rings), self._expire(), self._note_uses()
            self._loops = loops = [asyncio.create_task(one) for one in works]
            try:
                yield
            finally:
                for loop in loops:
                    loop.cancel()
                await asyncio.gather(*loops, return_exceptions=True)
                self._keyed, self._holders = True, {}

    @property
    def alive(self) -> bool:
        """Whether it learns of revoked keys; if not, the process must be restarted."""
        return not any(loop.done() for loop in self._loops)

    @property
    def keyed(self) -> bool:
        """Whether a key is needed."""
        return self._keyed

    # -- authentication

    def caller(self, connection: HTTPConnection, operation: Operation) -> Caller:
        """Return the caller of this operation.

        :raises Problem: 401, 403, 429 or 503
        """
        return self.let_in(connection, operation.scope, operation.bounded)

    def let_in(self, connection: HTTPConnection, scope: Scope | None, bounded: Bounded) -> Caller:
        """Return the caller of what needs this scope; None: no key is needed.

        :raises Problem: 401, 403, 429 or 503
        """
        if not self._keyed:
            refuse_strangers(connection.scope)
            if self._deaf and scope is not None:
                raise _DEAF
            return LOCAL
        if scope is None:
            return ANYBODY
        text = _bearer(connection.scope)
        if text is None:
            raise _unknown("send a key, as in Authorization: Bearer hr_…", challenge="")
        holder = self._holder(text)
        connection.scope.setdefault("state", {})["caller"] = holder.caller  # the access log names refused callers, too
        self.admit(holder.caller, scope, bounded)
        if scope == "submit" and holder.rate is not None:
            holder.rate.spend(self._app.host.clock.monotonic())
        return holder.caller

    def owe(self, caller: Caller, count: int) -> None:
        """Count refused jobs of a bulk as submits."""
        holder = self._holders.get(caller.key or "")
        if holder is not None and holder.rate is not None:
            holder.rate.owe(self._app.host.clock.monotonic(), count)

    def too_fast(self, caller: Caller) -> Problem | None:
        """Return why the caller may submit nothing at the moment; None: it may."""
        holder = self._holders.get(caller.key or "")
        return None if holder is None or holder.rate is None else holder.rate.refusal(self._app.host.clock.monotonic())

    def spend(self, caller: Caller) -> None:
        """Count as a submit an operation that makes jobs and needs another scope.

        :raises Problem: 429
        """
        holder = self._holders.get(caller.key or "")
        if holder is not None and holder.rate is not None:
            holder.rate.spend(self._app.host.clock.monotonic())

    def socket(self, connection: HTTPConnection) -> Caller | None:
        """Return the caller that opens a socket; None: it must authenticate in its first message.

        :raises Problem: 401, 403 or 503
        """
        if not self._keyed:
            refuse_strangers(connection.scope)
            if self._deaf:
                raise _DEAF
            return LOCAL
        text = _bearer(connection.scope)
        return None if text is None else self.authenticate(text)

    def local(self, connection: HTTPConnection) -> Caller | None:
        """Return the caller of the dashboard of a hub without keys; None: there are keys, and one is needed.

        :raises Problem: 403 or 503
        """
        if self._keyed:
            return None
        refuse_strangers(connection.scope)
        if self._deaf:
            raise _DEAF
        return LOCAL

    def holder_of(self, prefix: str) -> tuple[Caller, str] | None:
        """Return the caller of the key with this prefix, and its digest: a session is valid while both stay."""
        holder = None if self._deaf else self._holders.get(prefix)
        if holder is None or holder.caller.has_expired(self._app.host.clock.now()):
            return None
        self._note(holder)
        return holder.caller, holder.digest

    def authenticate(self, text: str) -> Caller:
        """Return the caller of this key.

        :raises Problem: 401
        """
        return self._holder(text).caller

    def admit(self, caller: Caller, scope: Scope | None, bounded: Bounded) -> None:
        """Check that this caller may do what needs this scope.

        :raises Problem: 403
        """
        if scope is not None and scope not in caller.scopes:
            raise Problem(
                403,
                "scope",
                "The key lacks a scope",
                f"this needs the scope {scope}; the key {caller.name!r} has {', '.join(sorted(caller.scopes))}",
                headers={"WWW-Authenticate": f'Bearer realm="headrace", error="insufficient_scope", scope="{scope}"'},
            )
        if bounded == "operator" and caller.customer is not None:
            raise Problem(403, "operator", "Not for the key of a customer", "this concerns more than one customer")

    def _holder(self, text: str) -> _Holder:
        if self._deaf:
            raise _DEAF
        holder = self._holders.get(text[:SHOWN_KEY_CHARACTERS])
        if holder is None or not is_key(text, holder.digest):
            raise _unknown("there is no such key: it was revoked, or never was")
        if holder.caller.has_expired(self._app.host.clock.now()):
            raise _unknown(f"the key {holder.caller.name!r} has expired")
        self._note(holder)
        return holder

    def _note(self, holder: _Holder) -> None:
        """Store from time to time that a key is used."""
        now = self._app.host.clock.now()
        if holder.noted_at is None or holder.noted_at + USE_NOTE_INTERVAL <= now:
            holder.noted_at = now
            self._used.add(holder.caller.name)
            self._use.set()

    # -- revocation

    def knows(self, caller: Caller) -> bool:
        """Return whether an admitted caller would be admitted now; to be called after ``on_revoked``."""
        if self._deaf:
            return False
        if caller.key is None:
            return not self._keyed
        return caller.key in self._holders and not caller.has_expired(self._app.host.clock.now())

    def on_revoked(self, callback: Revoked) -> Callable[[], None]:
        """Call this, on the loop, when a key is revoked or has expired; return what ends that."""
        token = object()
        self._listeners[token] = callback

        def undo() -> None:
            self._listeners.pop(token, None)

        return undo

    def _revoke(self, key: str | None) -> None:
        for callback in list(self._listeners.values()):
            try:
                callback(key)
            except Exception:
                _log.exception("what a revoked key had open could not be closed")

    def _take(self, ring: Keyring) -> None:
        before, options = self._holders, self._options
        self._holders = {}
        for stored in ring.keys:
            known = before.get(stored.key.prefix)
            if known is not None and known.digest == stored.digest:
                known.noted_at = max(filter(None, (known.noted_at, stored.key.used_at)), default=None)
                self._holders[stored.key.prefix] = known
            else:
                rate = options.submits_per_second
                self._holders[stored.key.prefix] = _Holder(
                    stored, None if rate is None else SubmitRate(rate, options.submit_burst)
                )
        for prefix, holder in before.items():
            if self._holders.get(prefix) is not holder:
                self._revoke(prefix)
        if ring and not self._keyed:
            self._keyed = True
            self._revoke(None)

    async def _follow(self, rings: AsyncGenerator[Keyring, None]) -> None:
        try:
            async for ring in rings:
                self._take(ring)
        finally:
            self._deaf = True
            for key in (*self._holders, None):
                self._revoke(key)

    async def _expire(self) -> None:
        """Close the connections of expired keys, as when a key is revoked."""
        notified = set[_Holder]()
        while True:
            now = self._app.host.clock.now()
            ended = {one for one in self._holders.values() if one.caller.has_expired(now)}
            for holder in ended - notified:
                self._revoke(holder.caller.key)
            notified = ended
            await asyncio.sleep(POLL_SECONDS)

    async def _note_uses(self) -> None:
        while True:
            await self._use.wait()
            self._use.clear()
            while self._used:
                name = self._used.pop()
                with suppress(HeadraceError):  # it is stored another time
                    await note_key_use(self._app, name)


_DEAF = Problem(
    503,
    "unavailable",
    "The store was lost",
    "the hub would not hear of keys that are revoked, and must be started anew",
    headers={"Retry-After": "5"},
)


def _bearer(scope: Connection) -> str | None:
    for name, value in scope["headers"]:
        if name == b"authorization":
            kind, _, text = value.decode("latin-1").partition(" ")
            return text.strip() if kind.lower() == "bearer" else None
    return None


def _unknown(detail: str, challenge: str = ', error="invalid_token"') -> Problem:
    headers = {"WWW-Authenticate": f'Bearer realm="headrace"{challenge}'}
    return Problem(401, "key", "A key is needed", detail, headers=headers)
