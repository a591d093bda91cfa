"""The hub: an App served over HTTP, as an ASGI application."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from headrace.dashboard.security import secured
from headrace.http.positions import Positions
from headrace.http.problems import Problem
from headrace.hub.api.vocabulary import Drafts
from headrace.hub.auth.authenticator import Authenticator
from headrace.hub.auth.login import DashboardLogin
from headrace.hub.auth.quotas import Quotas
from headrace.hub.health import Vitals
from headrace.hub.live.connections import Live
from headrace.hub.live.socket import socket_route
from headrace.hub.metrics import Metrics
from headrace.hub.operations import ENGINE, OPERATIONS
from headrace.hub.options import HubOptions
from headrace.hub.remote_workers.fleet import Fleet
from headrace.hub.rpc import Wanted, hints_route
from headrace.hub.server.access_log import AccessLog
from headrace.hub.server.dispatch import Direct, problem_response, routes
from headrace.hub.webhooks import webhook_worker
from headrace.worker.log_capture import caught_logs

if TYPE_CHECKING:
    from headrace.app import App

__all__ = ["Hub"]


class Hub:
    """An App behind HTTP and WebSocket. It is an ASGI application; its lifespan opens and closes the App."""

    def __init__(self, app: App, options: HubOptions | None = None) -> None:
        self.app, self.options = app, options or HubOptions()
        self.authenticator, self.quotas = Authenticator(app, self.options), Quotas(app, self.options)
        self.draining = asyncio.Event()
        """Set when the hub begins to stop: streams and sockets end, and waiting requests get their replies at once."""
        self.vitals, self.access, self.metrics = Vitals(self), AccessLog(self), Metrics(self)
        self.drafts, self.positions = Drafts(app), Positions(app)
        self.live = Live(self)
        """Open streams and sockets."""
        self.fleet = Fleet(self)
        """Workers that are connected to this hub."""
        self.wanted = Wanted()
        """Topics that remote engines should send hints of."""
        self.number = app.host.dice.token() >> 1
        """Random, to distinguish hubs."""
        self.front = DashboardLogin(self)
        """The login of the dashboard."""
        found = [
            *routes(self, (*OPERATIONS, *ENGINE)),
            socket_route(self),
            hints_route(self),
            *self.front.routes(),
        ]
        self._asgi = Starlette(
            routes=found,
            lifespan=lambda _: self.open(),
            exception_handlers={HTTPException: self._unknown},
        )
        self._direct = Direct(found, self._asgi)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        if scope["type"] == "lifespan":
            await self._asgi(scope, receive, send)
        else:
            await self.access.serve(self._direct, scope, receive, send)

    @asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        """Run what runs beside the requests; as an ASGI application the hub opens itself, by its lifespan.

        :raises ConfigError: there are no keys, and the hub can be reached from elsewhere
        :raises SecretMismatch: the secret here differs from that of other hubs
        """
        async with AsyncExitStack() as stack:
            stack.enter_context(caught_logs())  # texts of clients are logged too, by any handler
            await stack.enter_async_context(self.app)
            await self.app.session.vault.derives()  # raises if the secret here differs from that of other hubs
            await stack.enter_async_context(self.live.running())
            await stack.enter_async_context(self.authenticator.open())
            await stack.enter_async_context(self.fleet.running())
            self.vitals.loops["work"] = lambda: self.fleet.alive
            self.vitals.loops["keys"] = lambda: self.authenticator.alive
            stack.enter_context(self.metrics)
            stack.push_async_callback(self.vitals.close)
            if self.options.maintenance:
                maintenance = await stack.enter_async_context(self.app.maintenance())
                self.vitals.loops["maintenance"] = lambda: maintenance.alive
            if self.options.webhooks:
                deliveries = await stack.enter_async_context(webhook_worker(self.app, self.options))
                self.vitals.loops["webhooks"] = lambda: deliveries.alive
            yield

    async def _unknown(self, request: Request, error: Exception) -> Response:
        """Reply to an unknown path: with a page of the dashboard to a browser that wants one."""
        root = request.scope.get("root_path", "")
        if "text/html" in request.headers.get("accept", "") and not request.url.path.startswith(f"{root}/api/"):
            return await self.front.dashboard.nothing_here(request, error)
        detail = f"{request.url.path}: {root}/docs lists all"
        return secured(problem_response(Problem(404, "no-such-path", "There is no such path", detail)))
