"""The login of the dashboard at the root of a hub: a browser sends a key once, and a cookie holds the session.

A session is a random text in a cookie; the store keeps only its digest. It is valid on every hub of the store until it
ends or expires, and as long as its key is: each request checks with the authenticator, which learns of revoked keys. A
hub without keys needs no login, since only this machine reaches it. Wrong keys are counted by address: after a few, an
address must wait.
"""

from __future__ import annotations

import logging
from collections.abc import Generator
from contextlib import contextmanager
from datetime import datetime
from math import ceil
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import parse_qs, quote

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from headrace.client.api.dashboard_sessions import DashboardSessions
from headrace.client.api.filters import Filters
from headrace.core.auth.api_keys import SHOWN_KEY_CHARACTERS
from headrace.core.auth.sessions import form_secret, prefix_of
from headrace.core.defaults import DASHBOARD_SESSION_LIFETIME
from headrace.core.job import Job
from headrace.core.status import Verb
from headrace.dashboard import Dashboard, Viewer
from headrace.dashboard.actions.endpoint import ActionRefused
from headrace.dashboard.security import COOKIE, Tokens, secured, set_cookie
from headrace.http.problems import Problem
from headrace.hub.api.hidden_errors import hides
from headrace.hub.auth.caller import Caller
from headrace.hub.server.dispatch import problem_response

if TYPE_CHECKING:
    from headrace.hub.hub import Hub
from ipaddress import IPv6Address, ip_address, ip_network

__all__ = ["DashboardLogin", "LoginAttempts"]


MAX_WRONG_KEYS = 5
"""Wrong keys before an address has to wait."""
WRONG_KEY_SECONDS = 12.0
"""Seconds after which one of them is forgotten: five a minute."""
MAX_ADDRESSES = 10_000
"""Addresses that are kept at once; beyond that, those with the fewest wrong keys are dropped."""


class LoginAttempts:
    """Decides how long an address has to wait before the next key is checked, right or wrong.

    If right keys were accepted meanwhile, guessing would go on at full speed. All moments are monotonic seconds.
    """

    def __init__(self) -> None:
        self._until: dict[str, float] = {}
        """When all wrong keys of an address are forgotten; each adds ``WRONG_KEY_SECONDS`` seconds."""

    def wait(self, address: str | None, now: float) -> float:
        """Return the seconds until a key from this address is checked; 0: at once."""
        return max(0.0, self._until.get(_sender(address), now) - now - (MAX_WRONG_KEYS - 1) * WRONG_KEY_SECONDS)

    def wrong(self, address: str | None, now: float) -> None:
        """Count a wrong key."""
        sender = _sender(address)
        self._until[sender] = max(self._until.get(sender, now), now) + WRONG_KEY_SECONDS
        if len(self._until) > MAX_ADDRESSES:
            kept = sorted(((until, one) for one, until in self._until.items() if until > now), reverse=True)
            self._until = {one: until for until, one in kept[: MAX_ADDRESSES // 2]}


def _sender(address: str | None) -> str:
    """Return what identifies a sender: with IPv6, each has a whole network of addresses."""
    try:
        found = ip_address(address or "")
    except ValueError:
        return address or ""
    if isinstance(found, IPv6Address):
        if found.ipv4_mapped is not None:
            return str(found.ipv4_mapped)
        return str(ip_network((found, 64), strict=False))
    return str(found)


_log = logging.getLogger("headrace.hub")

SESSION = "headrace_session"
SESSION_CACHE_SECONDS = 1.0
"""Seconds for which a session is cached: one that was ended at another hub is refused after that."""
_MAX_CACHED_SESSIONS = 1000
"""How many sessions are cached."""
_WRITTEN = "/?#[]@!$&'()*+,;=:%"
"""Characters that stay unescaped in URLs."""
MAX_LOGIN_BYTES = 16 * 1024
"""Maximum bytes of a login form."""


class _Found(NamedTuple):
    """A session in the store."""

    key: str
    until: datetime
    asked_at: float


class DashboardLogin:
    """The login of the dashboard of a hub."""

    def __init__(self, hub: Hub) -> None:
        self._hub, self._guesses = hub, LoginAttempts()
        self._found: dict[str, _Found] = {}
        self.dashboard = Dashboard(hub.app, self)

    def routes(self) -> list[BaseRoute]:
        """Return the routes of the pages, and of login and logout."""
        return [
            Route("/login", self._login_page, methods=["GET"], name="login"),
            Route("/login", self._login, methods=["POST"], name="log_in"),
            Route("/logout", self._logout, methods=["POST"], name="log_out"),
            Route("/session", self._session, methods=["GET"], name="session"),
            *self.dashboard.routes(),
        ]

    # -- authentication of pages

    async def enter(self, request: Request) -> Viewer | Response:
        """Return the viewer: the caller of a session, or everyone on this machine if there are no keys."""
        try:
            caller = self._hub.authenticator.local(request) or await self._remembered(request)
        except Problem as problem:
            return problem_response(problem)
        if caller is None:
            if request.method != "GET" or request.headers.get("x-headrace-live") == "1":
                return Response('{"error":"Log in again."}', 401, media_type="application/json")
            there = request.url.path + (f"?{request.url.query}" if request.url.query else "")
            return _sent_to(request, f"/login?next={quote(there, safe='')}")
        request.scope.setdefault("state", {})["caller"] = caller
        if "read" not in caller.scopes:
            detail = f"the key {caller.name!r} lacks the scope read"
            return problem_response(Problem(403, "scope", "The key lacks a scope", detail))
        return Viewer(
            name=caller.name,
            key=caller.key,
            session=form_secret(request.cookies.get(SESSION, "")),
            scopes=caller.scopes,
            customer=caller.customer,
            tasks=caller.tasks,
            queues=caller.queues,
            expires_at=caller.expires_at,
            errors="hidden" if hides(self._hub.options, caller) else "shown",
        )

    def leaves(self, viewer: Viewer) -> bool:
        """Return whether the viewer can log out, as everyone who has logged in can."""
        return viewer.key is not None

    async def admit(self, viewer: Viewer, job: Job) -> None:
        """Apply the limits of customers, as everywhere else in the hub."""
        with _refused():
            await self._hub.quotas.admit(_caller(viewer), job.task, job.priority)
            await self._hub.quotas.admit_messages(_caller(viewer), job.task, job.queue, job.spec.webhook or ())

    async def admit_all(self, viewer: Viewer, verb: Verb, filters: Filters, count: int) -> None:
        """Apply them to an action on many jobs."""
        with _refused():
            await self._hub.quotas.revive(_caller(viewer), verb, filters, count)

    # -- sessions

    async def _remembered(self, request: Request) -> Caller | None:
        """Return the caller of the browser's session; None: it has none, or the session is no longer valid."""
        text = request.cookies.get(SESSION, "")
        prefix = prefix_of(text)
        known = None if prefix is None else self._hub.authenticator.holder_of(prefix)
        if known is None:
            return None
        caller, key = known
        clock = self._hub.app.host.clock
        found = self._found.get(text)
        if found is None or found.key != key or found.asked_at + SESSION_CACHE_SECONDS <= clock.monotonic():
            until = await DashboardSessions(self._hub.app).find(text, key)
            self._found.pop(text, None)
            if until is None:
                return None
            if len(self._found) >= _MAX_CACHED_SESSIONS:
                self._found.clear()
            found = self._found[text] = _Found(key, until, clock.monotonic())
        return caller if clock.now() < found.until else None

    async def _login_page(self, request: Request) -> Response:
        try:
            caller = self._hub.authenticator.local(request) or await self._remembered(request)
        except Problem as problem:
            return secured(problem_response(problem))
        there = _inside(request, request.query_params.get("next", ""))
        if caller is not None:
            return secured(Response(status_code=303, headers={"Location": there}))
        return await self._form(request, there)

    async def _form(self, request: Request, there: str, wrong: str = "", status: int = 401) -> Response:
        browser, is_new = Tokens.browser(request)
        token = (await self.dashboard.tokens()).token(browser, None)
        body = self.dashboard.renderer.plain(
            _base(request), "Log in", "", template="login.html", token=token, next=there, wrong=wrong
        )
        response = Response(body, status if wrong else 200, media_type="text/html; charset=utf-8")
        if is_new:
            set_cookie(request, response, COOKIE, browser)
        return secured(response)

    async def _login(self, request: Request) -> Response:
        given = await _fields(request)
        there, tokens = _inside(request, given.get("next", "")), await self.dashboard.tokens()
        if not tokens.accepts(request, None, given.get("token", "")):
            return await self._form(request, there, "This page was too old. Try again.")
        now, whence = self._hub.app.host.clock.monotonic(), None if request.client is None else request.client.host
        if (wait := ceil(self._guesses.wait(whence, now))) > 0:
            return await self._closed(request, there, wait)
        try:
            text = given.get("key", "").strip()
            caller = self._hub.authenticator.authenticate(text)
        except Problem as problem:
            if problem.status != 401:
                return secured(problem_response(problem))
            self._guesses.wrong(whence, now)
            _log.warning("a wrong key at the login of the dashboard, from %s", whence)
            return await self._form(request, there, "There is no such key: it was revoked, has expired, or never was.")
        known = self._hub.authenticator.holder_of(text[:SHOWN_KEY_CHARACTERS])
        assert known is not None
        response = Response(status_code=303, headers={"Location": there})
        value = await DashboardSessions(self._hub.app).begin(caller.key or "", known[1])
        set_cookie(request, response, SESSION, value, int(DASHBOARD_SESSION_LIFETIME.total_seconds()))
        return secured(response)

    async def _closed(self, request: Request, there: str, wait: int) -> Response:
        text = f"Too many wrong keys came from your address. Wait {wait} s, then try again with the whole key."
        response = await self._form(request, there, text, 429)
        response.headers["Retry-After"] = str(wait)
        return response

    async def _logout(self, request: Request) -> Response:
        given = await _fields(request)
        viewer = await self.enter(request)
        tokens = await self.dashboard.tokens()
        response = _sent_to(request, "/login")
        if isinstance(viewer, Viewer):
            if not tokens.accepts(request, viewer, given.get("token", "")):
                return secured(Response("This page was too old: load it again.\n", 403, media_type="text/plain"))
            text = request.cookies.get(SESSION, "")
            self._found.pop(text, None)
            await DashboardSessions(self._hub.app).end(text)
            response.delete_cookie(SESSION, path=_base(request) or "/", httponly=True, samesite="strict")
        return secured(response)

    async def _session(self, request: Request) -> Response:
        """Return whether there is a session; requested by the login page."""
        try:
            caller = self._hub.authenticator.local(request) or await self._remembered(request)
        except Problem as problem:
            return secured(problem_response(problem))
        known = b"false" if caller is None else b"true"
        return secured(Response(b'{"session":%s}' % known, media_type="application/json"))


def _caller(viewer: Viewer) -> Caller:
    return Caller(name=viewer.name, scopes=viewer.scopes, customer=viewer.customer)


@contextmanager
def _refused() -> Generator[None]:
    """Turn a problem into a refusal of the dashboard."""
    try:
        yield
    except Problem as problem:
        raise ActionRefused(problem.status, f"{problem.details.detail}.") from None


def _base(request: Request) -> str:
    root: str = request.scope.get("root_path", "")
    return root.rstrip("/")


def _sent_to(request: Request, path: str) -> Response:
    return Response(status_code=303, headers={"Location": f"{_base(request)}{path}"})


def _inside(request: Request, there: str) -> str:
    """Return where to go after the login: a page of the dashboard, whatever the parameter says."""
    home = f"{_base(request)}/"
    usable = there.startswith(home) and not there.startswith("//") and "\\" not in there and there.isprintable()
    return quote(there, safe=_WRITTEN) if usable else home  # a header allows no other characters


async def _fields(request: Request) -> dict[str, str]:
    """Return the fields of a form."""
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > MAX_LOGIN_BYTES:
            return {}
    return {name: values[0] for name, values in parse_qs(body.decode("utf-8", "replace")).items()}
