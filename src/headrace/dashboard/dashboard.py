"""The dashboard as an ASGI application: it can be mounted anywhere, and all its links are relative to its mount."""

from __future__ import annotations

import logging
from hashlib import sha256
from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import Receive, Scope, Send

from headrace.client.api.store import shared_secret
from headrace.dashboard import static_files
from headrace.dashboard.access import Access, Gate, HostGate
from headrace.dashboard.actions import ACTS
from headrace.dashboard.actions import endpoint as acting
from headrace.dashboard.cache import SharedReads
from headrace.dashboard.chart_data import Past
from headrace.dashboard.format import exact, iso
from headrace.dashboard.outage import StoreWatch
from headrace.dashboard.page import Foreign, Missing, PageRequest, PageView, Shown
from headrace.dashboard.pages import VIEWS
from headrace.dashboard.renderer import Renderer
from headrace.dashboard.security import COOKIE, Tokens, secured, set_cookie
from headrace.errors import ConfigError, HeadraceError, NotOpen, Unavailable, Unreadable

if TYPE_CHECKING:
    from headrace.app import App

__all__ = ["Dashboard", "dashboard"]

_log = logging.getLogger("headrace.dashboard")

STORE_HEADER = "X-Headrace-Store"
"""Tells an open page of an outage: ``away`` or ``unwritable``, and since when."""


def dashboard(app: App, *, access: Access) -> Dashboard:
    """Return the dashboard of an App, to be mounted: ``http.mount("/dashboard", dashboard(jobs, access=allowed))``.

    ``access`` is a function of the request, plain or async, that returns ``"read"``, ``"act"`` or ``"no"``, or a
    ``Viewer``. The App must be open on the same event loop, as ``lifespan=jobs.lifespan()`` has it.

    :raises ConfigError: access is no function
    """
    return Dashboard(app, HostGate(access))


class Dashboard:
    """The pages of an App, for viewers that its gate admits."""

    def __init__(self, app: App, gate: Gate) -> None:
        self.app, self.gate = app, gate
        self.shared = SharedReads(app.host.clock)
        """Reads that all viewers share."""
        self.watch = StoreWatch(app, self.shared.forget)
        self.past = Past(app)
        self.renderer = Renderer()
        self._tokens: Tokens | None = None
        self._asgi = Starlette(routes=self.routes(), exception_handlers={HTTPException: self.nothing_here})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        await self._asgi(scope, receive, send)

    def routes(self) -> list[BaseRoute]:
        """Return the routes of all pages, their files, and their actions."""
        found: list[BaseRoute] = [static_files.route()]
        found += [Route(one.path, self._endpoint(one), methods=["GET"], name=one.name) for one in VIEWS]
        return [*found, Route("/act", acting.endpoint(self, ACTS), methods=["POST"], name="act")]

    async def tokens(self) -> Tokens:
        """Return the tokens by which requests of the dashboard's own pages are recognised."""
        if self._tokens is None:
            self._tokens = Tokens(await shared_secret(self.app.session.vault, "dashboard"))
        return self._tokens

    def _endpoint(self, view: PageView) -> acting.Endpoint:
        async def endpoint(request: Request) -> Response:
            try:
                response = await self.watch.read(lambda: self._answer(view, request))
                if (since := self.watch.unwritable_since) is not None:
                    response.headers[STORE_HEADER] = f"unwritable {iso(since)}"
                return response
            except (NotOpen, Unavailable) as error:
                return self._failed(request, error)
            except ConfigError:
                raise  # of ``access``: the application's developer must see it
            except Exception:
                _log.exception("%s cannot be shown", request.url.path)
                text = "The log of the server says more."
                return self._plain(request, 500, "Something is broken", text)

        endpoint.__name__ = f"dashboard_{view.name}"  # a hub counts requests by this name
        return endpoint

    async def _answer(self, view: PageView, request: Request) -> Response:
        viewer = await self.gate.enter(request)
        if isinstance(viewer, Response):
            return secured(viewer)
        ask = PageRequest(self, request, viewer)
        if view.whose == "operator" and viewer.customer is not None:
            if view.path == "/":
                return secured(Response(status_code=303, headers={"Location": ask.link("/jobs")}))
            return await self.page(ask, view, _refused("this concerns more than one customer"))
        if ask.live:
            # The changing part of a page is equal for viewers with equal permissions: it is made once for all of them.
            who = (viewer.scopes, viewer.customer, viewer.tasks, viewer.queues, viewer.errors)
            key = ("live", ask.base, request.url.path, request.url.query, str(ask.zone), who)
            again = await self.shared.get(key, view.alike, lambda: self._live(view, ask), sparing=0.0)
            if again is not None:
                return _changed(ask, *again)
        shown = await self._shown(view, ask)
        return secured(shown) if isinstance(shown, Response) else await self.page(ask, view, shown)

    async def _shown(self, view: PageView, ask: PageRequest) -> Shown | Response:
        try:
            return await view.show(ask)
        except Missing as missing:
            return missing.shown
        except Foreign as foreign:
            return _refused(str(foreign))
        except Unreadable as error:
            return Shown("wrong.html", "Cannot be shown", {"why": str(error)}, 500, every=0)
        except (ConfigError, ValueError) as error:
            return Shown("wrong.html", "Bad request", {"why": str(error)}, 400, every=0)

    async def _live(self, view: PageView, ask: PageRequest) -> tuple[bytes, str] | None:
        """Return the changing part of a page, and its tag; None: it is no page."""
        shown = await self._shown(view, ask)
        return None if isinstance(shown, Response) else self._made(ask, view, shown, "")

    async def page(self, ask: PageRequest, view: PageView | None, shown: Shown) -> Response:
        """Return the response with a page: whole, or only its changing part."""
        tokens = await self.tokens()
        browser, is_new = tokens.browser(ask.request)
        token = tokens.token(browser, ask.viewer) if ask.viewer.acts or self.gate.leaves(ask.viewer) else ""
        body, tag = self._made(ask, view, shown, token)
        if ask.live:
            return _changed(ask, body, tag)
        response = Response(body, shown.status, {"ETag": tag}, "text/html; charset=utf-8")
        if is_new:
            set_cookie(ask.request, response, COOKIE, browser)
        return secured(response)

    def _made(self, ask: PageRequest, view: PageView | None, shown: Shown, token: str) -> tuple[bytes, str]:
        section = None if view is None else view.section
        body = self.renderer.page(ask, shown, section, token, self.gate.leaves(ask.viewer))
        return body, f'"{sha256(body).hexdigest()[:24]}"'

    async def nothing_here(self, request: Request, error: Exception) -> Response:
        """Return the response to an address without a page: a page for people, and a line for programs."""
        status = error.status_code if isinstance(error, HTTPException) else 404
        if status == 404 and request.method == "GET" and "text/html" in request.headers.get("accept", ""):
            return await self._endpoint(PageView("", "nothing", _no_page, ""))(request)
        text = "There is no such page.\n" if status == 404 else "This is not possible here.\n"
        return secured(Response(text, status, media_type="text/plain"))

    def _failed(self, request: Request, error: HeadraceError) -> Response:
        """Return the response where no page can be made: a missing store is no fault of the viewer."""
        since = self.watch.away_since
        if isinstance(error, NotOpen):
            text = "This dashboard's App is not open. Give the web application lifespan=jobs.lifespan()."
        elif since is not None:
            text = f"It has not answered since {exact(since)}. This page tries again by itself."
        else:
            text = "It refused this for now. This page tries again by itself."
        if since is None:  # an outage is logged once
            _log.warning("%s cannot be shown: %s", request.url.path, error)
        response = self._plain(request, 503, "The store cannot be read", text)
        response.headers["Retry-After"] = "2"
        if since is not None:
            response.headers[STORE_HEADER] = f"away {iso(since)}"
        return response

    def _plain(self, request: Request, status: int, title: str, text: str) -> Response:
        body = self.renderer.plain(request.scope.get("root_path", ""), title, text)
        return secured(Response(body, status, media_type="text/html; charset=utf-8"))


def _changed(ask: PageRequest, body: bytes, tag: str) -> Response:
    """Return the response to an open page; also when its subject is gone, which is no error for it."""
    if ask.request.headers.get("if-none-match") == tag:
        return secured(Response(status_code=304, headers={"ETag": tag}))
    return secured(Response(body, 200, {"ETag": tag}, "text/html; charset=utf-8"))


def _refused(why: str) -> Shown:
    return Shown("refused.html", "Not allowed", {"why": why}, 403, every=0)


async def _no_page(ask: PageRequest) -> Shown:
    raise Missing("page")
