"""What FastAPI and Starlette share: reading requests, sending responses, and finding the status pages."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from uuid import UUID

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount
from starlette.types import Message, Receive, Scope, Send

from headrace.core.defaults import MAX_ENDPOINT_BODY_BYTES
from headrace.endpoints.request import EndpointRequest, route_of, values_of
from headrace.endpoints.responses import JSON, PROBLEM, EndpointResponse
from headrace.endpoints.routes import broken_off, too_large
from headrace.endpoints.status import StatusPages
from headrace.endpoints.status_choice import StatusChoice, check_status_url
from headrace.http.responses import Made
from headrace.http.sse import HEADERS, HELLO, STILL_HERE, Telling

if TYPE_CHECKING:
    from headrace.app import App

__all__ = ["Addresses", "EventResponse", "asked_of", "find_pages", "mark_pages", "named_pages", "response_of"]

_MARK = "__headrace_pages__"

MAX_DRAINED_BYTES = 64 * 1024 * 1024
"""Bytes of a refused request after which the connection is cut."""


# -- requests


def asked_of(request: Request, identity: str | None, where: Callable[[UUID], str | None]) -> EndpointRequest:
    """Return the request as values."""
    return EndpointRequest(
        headers=values_of(
            (name.decode("latin-1"), value.decode("latin-1")) for name, value in request.scope["headers"]
        ),
        route=route_of(request.path_params),
        query=request.query_params.multi_items(),
        identity=identity,
        where=where,
        left=lambda: _left(request),
    )


async def _left(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def length_of(request: Request) -> int | None:
    """Return the size of the body; None: it is not known before the body is read."""
    length = None
    for name, value in request.scope["headers"]:
        if name == b"transfer-encoding":  # it counts, whatever else is given
            return None
        if name == b"content-length" and value.isdigit():
            length = int(value)
    return length


class BoundedBody:
    """Receives the body of a request, up to so many bytes, then raises ``too_large``."""

    def __init__(self, receive: Receive) -> None:
        self._receive, self._size, self._more = receive, 0, True

    async def __call__(self) -> Message:
        """Receive the next message."""
        message = await self._next()
        if self._size > MAX_ENDPOINT_BODY_BYTES:
            raise self.too_large()
        return message

    async def _next(self) -> Message:
        message = await self._receive()
        self._size += len(message.get("body", b""))
        self._more = message["type"] == "http.request" and message.get("more_body", False)
        return message

    def too_large(self) -> Exception:
        """Return the error to raise when there are more."""
        return too_large()

    async def drain(self) -> None:
        """Read on and keep nothing: a client that is cut off while it sends does not get the reason."""
        while self._more and self._size < MAX_DRAINED_BYTES:
            await self._next()


# -- status pages


def mark_pages(endpoint: Any, pages: StatusPages) -> None:
    """Mark an endpoint as the one that shows a job of these pages."""
    setattr(endpoint, _MARK, pages)


Expand = Callable[[Iterable[Any]], Iterable[Any]]


def find_pages(
    routes: Iterable[Any], app: App, expand: Expand, prefix: str = ""
) -> Iterator[tuple[str, Any, StatusPages]]:
    """Yield the path, the route and the pages of every route that shows jobs of this App; ``expand``: lists the routes
    of included routers, as the framework does."""
    for route in expand(routes):
        pages = getattr(getattr(route, "endpoint", None), _MARK, None)
        if isinstance(pages, StatusPages) and pages.app is app:
            yield prefix + route.path_format, route, pages
        inner = getattr(route, "original_route", route)
        if isinstance(inner, Mount):
            yield from find_pages(inner.routes or (), app, expand, prefix + inner.path)


class Addresses:
    """The addresses of an App's jobs, found in the routes of the ASGI application that serves the request."""

    def __init__(
        self, app: App, choice: StatusChoice, expand: Expand = lambda routes: routes, fixed: str | None = None
    ) -> None:
        """``fixed``: the address, with ``{id}`` in it, where it cannot be found so.

        :raises ConfigError: it has no ``{id}``
        """
        check_status_url(fixed)
        self._app, self._choice, self._expand, self._fixed = app, choice, expand, fixed
        self._found: dict[tuple[int, int], tuple[Any, str, str | None, StatusPages | None]] = {}
        """By ASGI application and endpoint: the application, the endpoint's mount in it, and the path of the pages."""

    def check(self, asgi: Any) -> None:
        """Check that the application has the pages of this router; :raises Misused: naming the cause and the remedy"""
        self._choose(getattr(asgi, "routes", ()))

    def check_routes(self, asgi: Any, routes: Sequence[Any]) -> None:
        """Check every application, also mounted ones, that has one of these routes;
        :raises Misused: naming the cause and the remedy"""
        for one in _applications(asgi, {id(route) for route in routes}):
            self.check(one)

    def _choose(self, routes: Iterable[Any]) -> tuple[str | None, StatusPages | None]:
        found = list(find_pages(routes, self._app, self._expand))
        pages = self._choice.choose(one for _, _, one in found)
        return next((path for path, _, one in found if one is pages), None), pages

    async def of(self, request: Request) -> Callable[[UUID], str | None]:
        """Return a function from a job's id to the address of its page."""
        asgi, endpoint = request.scope.get("app"), request.scope.get("endpoint")
        place = id(asgi), id(endpoint)
        found = self._found.get(place)
        if found is None or found[0] is not asgi:
            routes = getattr(asgi, "routes", ())
            path, pages = self._choose(routes)
            found = asgi, next(_mounts(routes, endpoint, self._expand), ""), path, pages
            if pages is not None:  # else a router may still be included
                self._found[place] = found
        _, mounted, path, pages = found
        if pages is not None:
            await pages.ready()
        fixed = self._fixed
        if fixed is not None:
            return lambda id: _fixed_address(fixed, pages, id)
        if path is None or pages is None:
            return lambda id: None
        root = str(request.scope.get("root_path", "")).removesuffix(mounted)
        return lambda id: _address(root + path, request.path_params, pages, id)


def _fixed_address(fixed: str, pages: StatusPages | None, id: UUID) -> str:
    address = fixed.replace("{id}", str(id))
    return address if pages is None else pages.address(address, id)


def named_pages(routes: Iterable[Any] | None, expand: Expand) -> list[StatusPages] | None:
    """Return the pages in these routes; None: there are no routes."""
    if routes is None:
        return None
    marks = (getattr(getattr(route, "endpoint", None), _MARK, None) for route in expand(routes))
    return [one for one in marks if isinstance(one, StatusPages)]


def _mounts(routes: Iterable[Any], endpoint: Any, expand: Expand, prefix: str = "") -> Iterator[str]:
    """Yield the paths at which an endpoint is mounted within an application."""
    for route in expand(routes):
        if getattr(route, "endpoint", None) is endpoint:
            yield prefix
        inner = getattr(route, "original_route", route)
        if isinstance(inner, Mount):
            yield from _mounts(inner.routes or (), endpoint, expand, prefix + inner.path)


def _applications(asgi: Any, wanted: Collection[int]) -> Iterator[Any]:
    """Yield the application and those mounted in it, if routes with these ids are among their own: a request knows the
    innermost one."""
    found, rest = False, list(getattr(asgi, "routes", ()))
    while rest:
        route = rest.pop()
        found = found or id(route) in wanted
        if isinstance(route, Mount):
            if isinstance(route._base_app, Starlette):
                yield from _applications(route._base_app, wanted)
            else:
                rest += route.routes or ()
    if found:
        yield asgi


def _address(path: str, given: Mapping[str, Any], pages: StatusPages, id: UUID) -> str | None:
    try:
        return pages.address(path.format_map({**given, "id": id}), id)
    except KeyError:  # a parameter in the path of the pages that this request does not have
        return None


# -- responses

_QUICK = {JSON: JSON.encode(), PROBLEM: PROBLEM.encode()}
"""The media types of headrace's responses."""
_MADE = {b"content-type", b"content-length"}


def response_of(answer: Any) -> Any:
    """Return the response of Starlette; a response that is not headrace's stays as it is."""
    if isinstance(answer, Telling):
        return EventResponse(answer)
    if not isinstance(answer, EndpointResponse):
        return answer
    if answer.body and (media := _QUICK.get(answer.media)) is not None:
        headers = {name.lower().encode("latin-1"): value.encode("latin-1") for name, value in answer.headers.items()}
        if headers.keys().isdisjoint(_MADE):
            return Made(answer.body, answer.status, media, headers.items())
    kind = answer.media if answer.body or answer.status == 200 else None
    return Response(answer.body, answer.status, dict(answer.headers), kind)


def hung_up() -> Response:
    """Return a response for a client that is gone."""
    return Response(status_code=499)


class EventResponse(Response):
    """Sends the events of a job as they come, until it has ended or the client disconnects."""

    def __init__(self, telling: Telling) -> None:
        super().__init__(status_code=200, headers=HEADERS)
        del self.headers["content-length"]  # it is unknown
        self._telling = telling

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve it."""
        if scope["method"] == "HEAD":
            await self._telling.parts.aclose()
            self._telling.close()
            return await super().__call__(scope, receive, send)
        telling, leaving = asyncio.ensure_future(self._tell(send)), asyncio.ensure_future(_gone(receive))
        try:
            await asyncio.wait((telling, leaving), return_when=asyncio.FIRST_COMPLETED)
            if telling.done():
                telling.result()
        finally:
            telling.cancel()
            leaving.cancel()
            await asyncio.gather(telling, leaving, return_exceptions=True)
            await self._telling.parts.aclose()
            self._telling.close()

    async def _tell(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        await send({"type": "http.response.body", "body": HELLO, "more_body": True})
        last = b""
        try:
            async for part in self._telling.parts:
                await send({"type": "http.response.body", "body": part or STILL_HERE, "more_body": True})
        except Exception as error:
            last = broken_off(error)
        await send({"type": "http.response.body", "body": last, "more_body": False})


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
