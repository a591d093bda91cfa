"""The hub: an App served over HTTP, as an ASGI application."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from headrace.hub.door import Door
from headrace.hub.options import HubOptions
from headrace.hub.positions import Positions
from headrace.hub.problems import Problem
from headrace.hub.serving import problem_response, routes
from headrace.hub.table import OPERATIONS

if TYPE_CHECKING:
    from headrace.app import App

__all__ = ["Hub"]


class Hub:
    """An App behind HTTP and WebSocket. It is an ASGI application; its lifespan opens and closes the App."""

    def __init__(self, app: App, options: HubOptions | None = None) -> None:
        self.app, self.options = app, options or HubOptions()
        self.door = Door()
        self.draining = asyncio.Event()
        """Set when the hub begins to stop: whoever waits within a request is answered at once."""
        self.positions = Positions(app)
        self._asgi = Starlette(
            routes=routes(self, OPERATIONS),
            lifespan=self._lifespan,
            exception_handlers={HTTPException: _unknown},
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        await self._asgi(scope, receive, send)

    @asynccontextmanager
    async def _lifespan(self, asgi: Any) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self.app)
            yield


async def _unknown(request: Request, error: Exception) -> Response:
    """A path or a method that is none of the table's."""
    assert isinstance(error, HTTPException)
    path = request.url.path
    if error.status_code == 405:
        headers = dict(error.headers or {})
        return problem_response(
            Problem(405, "method", "This method is not for this path", f"{request.method} {path}", headers=headers)
        )
    return problem_response(Problem(404, "no-such-path", "There is no such path", f"{path}: /docs lists all"))
