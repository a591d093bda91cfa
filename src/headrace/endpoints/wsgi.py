"""Requests that are served on threads: headrace's part runs on the background loop of the App."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import Context, copy_context
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

from headrace.client.draft import Draft
from headrace.endpoints.request import EndpointRequest, route_of, values_of
from headrace.endpoints.responses import EndpointResponse
from headrace.endpoints.routes import broken_off
from headrace.endpoints.status import StatusPages
from headrace.endpoints.submit import BeforeSubmit
from headrace.http.sse import HELLO, STILL_HERE, Telling

if TYPE_CHECKING:
    from headrace.app import App

__all__ = ["PLACE", "Here", "Told", "asking", "in_threads", "sent_headers"]

PLACE = UUID(int=0)
"""Stands for the id of a job in an address that a framework makes."""


def asking(
    headers: Iterable[tuple[str, str]],
    values: Mapping[str, Any],
    query: Sequence[tuple[str, str]],
    caller: str | None,
    place: str | None,
    pages: StatusPages | None,
) -> Callable[[], Awaitable[EndpointRequest]]:
    """Read a request on its own thread; return a function that returns it as values, on the loop.

    ``values``: the parameters in its path. ``place``: the address of a job's page, with ``PLACE`` in it; None: there is
    none. ``pages``: the status pages, if known.
    """
    given, route = values_of((name.lower(), value) for name, value in headers), route_of(values)

    def where(id: UUID) -> str | None:
        path = None if place is None else place.replace(str(PLACE), str(id))
        return path if path is None or pages is None else pages.address(path, id)

    async def ask() -> EndpointRequest:
        if pages is not None:
            await pages.ready()
        return EndpointRequest(headers=given, route=route, query=query, identity=caller, where=where)

    return ask


def sent_headers(answer: EndpointResponse) -> dict[str, str]:
    """Return the headers of a response without those of the connection, which belong to the server (PEP 3333)."""
    return {name: value for name, value in answer.headers.items() if name != "Connection"}


class Here(NamedTuple):
    """A request, and the context of its thread, for functions of the service that are called for it elsewhere."""

    request: Any
    context: Context

    @classmethod
    def of(cls, request: Any) -> Here:
        """Return the request of this thread, with its context."""
        return cls(request, copy_context())


def in_threads(hook: BeforeSubmit | None) -> BeforeSubmit | None:
    """Return a hook that may block: it is called with ``here.request``, in the context of the request, on a thread."""
    if hook is None:
        return None

    async def called(here: Here, draft: Draft[Any]) -> Any:
        said = await asyncio.to_thread(here.context.run, hook, here.request, draft)
        return await said if isinstance(said, Awaitable) else said

    return called


class Told(Iterator[bytes]):
    """The events of a job as they come, for a server that iterates on a thread, and closes what it does not read."""

    def __init__(self, jobs: App, telling: Telling) -> None:
        self._jobs, self._telling = jobs, telling
        self._begun = self._over = self._closed = False

    def __next__(self) -> bytes:
        if not self._begun:
            self._begun = True
            return HELLO
        if self._over:
            raise StopIteration
        try:
            part = self._jobs.wait(self._next())
        except Exception as error:
            self._over = True
            return broken_off(error)
        if part is None:
            self._over = True
            raise StopIteration
        return part or STILL_HERE

    async def _next(self) -> bytes | None:
        return await anext(self._telling.parts, None)

    def close(self) -> None:
        """Stop following the job."""
        self._over = True
        if not self._closed:
            self._closed = True
            self._jobs.wait(self._close())

    async def _close(self) -> None:
        await self._telling.parts.aclose()
        self._telling.close()
