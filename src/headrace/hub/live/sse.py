"""Server-sent events: a response that goes on until there are no more events, or the client is gone."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from headrace.http.problems import Problem
from headrace.http.sse import HEADERS, HELLO, STILL_HERE, event
from headrace.hub.live.connections import Connections
from headrace.hub.server.problems import FAULT, problem_of

if TYPE_CHECKING:
    from headrace.hub.server.operation import OperationRequest

__all__ = ["EventStream"]

_log = logging.getLogger("headrace.hub")


class EventStream(Response):
    """Sends ``parts`` as they come; an empty one is a sign of life.

    Each part is sent when the reader has taken the previous one. So events for a slow reader are made when it can take
    them, and nothing is kept meanwhile. The server cuts off readers that read nothing (``hub.server.connections``).
    """

    def __init__(self, ask: OperationRequest, parts: AsyncGenerator[bytes, None], close: Callable[[], object]) -> None:
        """``close`` is called at the end, also if no part was read."""
        super().__init__(status_code=200, headers=HEADERS)
        del self.headers["content-length"]  # it is unknown
        self._parts, self._close = parts, close
        self._connections: Connections = ask.hub.live.connections
        self.caller = ask.caller
        self._ending = asyncio.timeout(None)
        self._problem: Problem | None = None
        self._over = self._left = False

    def let_go(self, problem: Problem) -> None:
        """End it with a last event that gives the reason."""
        self._problem = problem
        self._end()

    def _end(self) -> None:
        self._over = True
        with suppress(RuntimeError, AssertionError):  # it has not begun (asserted in 3.11.2), or is ending
            self._ending.reschedule(asyncio.get_running_loop().time())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve it."""
        try:
            async with aclosing(self._parts):
                if scope["method"] == "HEAD":
                    return await super().__call__(scope, receive, send)
                with self._connections.holding(self):
                    leaving = asyncio.create_task(self._notice_leaving(receive))
                    try:
                        await self._serve(send)
                    finally:
                        leaving.cancel()
        finally:
            self._close()

    async def _serve(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        try:
            async with self._ending:
                if not self._over:
                    await send({"type": "http.response.body", "body": HELLO, "more_body": True})
                    async for part in self._parts:
                        await send({"type": "http.response.body", "body": part or STILL_HERE, "more_body": True})
        except TimeoutError:
            pass  # ``let_go`` ended it
        except Exception as error:
            self._problem = problem_of(error) or _fault(error)
        if self._left:
            return
        last = b"" if self._problem is None else event("error", self._problem.details)
        await send({"type": "http.response.body", "body": last, "more_body": False})

    async def _notice_leaving(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self._left = True
        self._end()


def _fault(error: Exception) -> Problem:
    _log.error("a stream of events failed", exc_info=error)
    return FAULT
