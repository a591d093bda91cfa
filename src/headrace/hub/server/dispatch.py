"""From a request to a reply: authenticate, authorise, decode, call the operation, encode its reply or the problem."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Generator, Iterable
from datetime import datetime
from functools import cache
from typing import TYPE_CHECKING, Any, get_args, get_origin, get_type_hints

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route, compile_path
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headrace.core.codec.record import Record, plain
from headrace.core.words import Vocabulary, vocabulary_of, worded
from headrace.errors import ConfigError
from headrace.http.problems import Fault, Problem, ProblemDetails
from headrace.http.responses import Made
from headrace.hub.api.hidden_errors import hidden_document, hides
from headrace.hub.server.operation import WORDS, Operation, OperationReply, OperationRequest
from headrace.hub.server.problems import FAULT, decoded, malformed, problem_of

if TYPE_CHECKING:
    from headrace.hub.hub import Hub

__all__ = ["Direct", "problem_response", "read_body", "routes"]

_log = logging.getLogger("headrace.hub")

_encode = msgspec.json.Encoder().encode


def routes(hub: Hub, operations: Iterable[Operation]) -> list[BaseRoute]:
    """Return a route for each operation, ordered so that none hides another; other methods are refused."""
    made: dict[str, dict[str, Route]] = {}
    for one in operations:
        route = Route(one.path, _endpoint(hub, one), methods=[one.method], name=one.name)
        made.setdefault(one.path, {})[one.method] = route
    ranks = _ranks(tuple(made))
    found = list[BaseRoute]()
    for rank in sorted(set(ranks.values())):
        paths = [path for path in made if ranks[path] == rank]
        found += (route for path in paths for route in made[path].values())
        found += (_refusing(path, made[path]) for path in sorted(paths, key=lambda path: path.endswith("}")))
    return found


@cache  # the table never changes, and a process may have several hubs
def _ranks(paths: tuple[str, ...]) -> dict[str, int]:
    """Return the order in which paths are tried: ``/api/jobs/count`` before ``/api/jobs/{id}`` would match it, and last
    the paths that end with a name that may hold slashes, which could match what follows a name elsewhere."""
    patterns = [compile_path(path)[0] for path in paths if "{" in path]

    def rank(path: str) -> int:
        if path.endswith(":path}"):
            return 2
        return 0 if "{" not in path and any(one.match(path) for one in patterns) else 1

    return {path: rank(path) for path in paths}


class Direct:
    """Finds endpoints without path parameters by their path, which is faster than trying each route.

    All other requests go to the router.
    """

    def __init__(self, routes: Iterable[BaseRoute], router: ASGIApp) -> None:
        self._router = router
        self._found = {
            (method, route.path): route.endpoint
            for route in routes
            if isinstance(route, Route) and "{" not in route.path
            for method in route.methods or ()
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        endpoint = None
        if scope["type"] == "http":
            path: str = scope["path"]
            if root := scope.get("root_path"):  # as the router removes it: at a slash only
                path = path.removeprefix(root) if path.startswith(f"{root}/") else path
            endpoint = self._found.get((scope["method"], path))
        if endpoint is None:
            await self._router(scope, receive, send)
            return
        scope["endpoint"], scope["path_params"] = endpoint, {}
        response = await endpoint(Request(scope, receive, send))
        await response(scope, receive, send)


def _refusing(path: str, methods: Iterable[str]) -> BaseRoute:
    """Return the route that refuses all other methods of a path."""
    allowed = ", ".join(sorted({*methods, "HEAD"} if "GET" in methods else methods))

    async def no_such_method(request: Request) -> Response:
        detail = f"{request.method} {request.url.path}: {allowed} may be asked for"
        title = "This method is not for this path"
        return problem_response(Problem(405, "method", title, detail, headers={"Allow": allowed}))

    return Route(path, no_such_method, methods=[])  # all methods match


def _endpoint(hub: Hub, operation: Operation) -> Callable[[Request], Awaitable[Response]]:
    body = None if operation.body is None or operation.raw else msgspec.json.Decoder(operation.body)
    read = operation.decode
    most = hub.options.bulk_most if operation.largest == "bulk" else hub.options.body_most

    async def endpoint(request: Request) -> Response:
        try:
            caller = hub.authenticator.caller(request, operation)
            state = request.scope["state"]
            state["caller"] = caller
            query, words = _query(request, operation)
            document = None
            if read is not None:
                document = read(await read_body(request, most, hub.options.read_timeout))
            elif body is not None and not (operation.bare and _is_bare(request)):
                document = decoded(body, await read_body(request, most, hub.options.read_timeout))
            elif body is not None:
                document = body.decode(b"{}")
            ask = OperationRequest(
                hub=hub,
                caller=caller,
                request=request,
                path=request.path_params,
                query=query,
                body=document,
                words=words,
            )
            answer = await operation.do(ask)
            if isinstance(answer, Response):
                return answer
            state["job_id"] = getattr(answer.document, "job_id", None)  # for the access log
            return _response(answer, hides(hub.options, caller), words)
        except ClientDisconnect:
            return Response(status_code=400)  # the client is gone
        except Exception as error:
            problem = problem_of(error)
            if problem is None:
                about = {"request_id": request.scope["state"].get("request_id")}
                _log.exception("%s %s failed", request.method, request.url.path, extra=about)
                problem = FAULT
            return problem_response(problem)

    endpoint.__name__ = operation.name  # requests are counted by this name
    return endpoint


def _response(answer: OperationReply, hidden: bool, words: Vocabulary | None) -> Response:
    document = hidden_document(answer.document) if hidden else answer.document
    if document is None:
        return Response(status_code=answer.status, headers=dict(answer.headers))
    if words is not None:
        document = worded(document, words)
    data = _encode(plain(document) if isinstance(document, Record | list | tuple) else document)
    headers = [(_lower(name), value.encode("latin-1")) for name, value in answer.headers.items()]
    return Made(data, answer.status, b"application/json", headers)


@cache
def _lower(name: str) -> bytes:
    """Return the name of a header as it is sent; there are few."""
    return name.lower().encode("latin-1")


def problem_response(problem: Problem) -> Response:
    """Return the response for a problem."""
    details: ProblemDetails = problem.details
    return Response(_encode(details), problem.status, problem.headers, "application/problem+json")


def _query(request: Request, operation: Operation) -> tuple[Any, Vocabulary | None]:
    """Decode the query parameters; one that is given more than once is a list. The words for statuses stand apart."""
    kind = operation.query
    if kind is None and not request.scope["query_string"]:
        return None, None
    given: dict[str, Any] = {}
    for name, value in request.query_params.multi_items():
        if name not in operation.parameters:
            known = ", ".join(operation.parameters) or "none"
            raise _wrong(name, f"there is no parameter {name!r} here: {known}")
        given.setdefault(name, []).append(value)
    words = _words(given.pop(WORDS)) if WORDS in given else None
    if kind is None:
        return None, words
    lists = _lists(kind)
    for name, values in given.items():
        if name not in lists and len(values) > 1:
            raise _wrong(name, f"{name} is given {len(values)} times, and may be given once")
        if name in _moments(kind) and ":" not in values[0]:  # msgspec would read seconds since 1970
            raise _wrong(name, f"{name} must be a moment as in 2026-01-31T08:00:00Z, not {values[0]!r}")
    said = {name: given[name] if name in lists else given[name][0] for name in given}
    try:
        query = msgspec.convert(said, kind, strict=False)
    except msgspec.ValidationError as error:
        raise malformed(error, kind) from None
    for name in given:
        if getattr(query, name) is None:  # msgspec reads the word null so
            raise _wrong(name, f"{name} has no value: leave it out")
    return query, words


def _words(values: list[str]) -> Vocabulary:
    try:
        if len(values) > 1:
            raise ConfigError(f"{WORDS} is given {len(values)} times, and may be given once")
        return vocabulary_of(values[0])
    except ConfigError as error:
        raise _wrong(WORDS, str(error)) from None


def _wrong(name: str, message: str) -> Problem:
    return Problem(400, "malformed", "The request cannot be understood", message, faults=[Fault(name, message)])


@cache
def _lists(kind: type[msgspec.Struct]) -> frozenset[str]:
    """Return the parameters that may be given more than once: those with a tuple as their type."""
    found = [(name, hint, *get_args(hint)) for name, hint in get_type_hints(kind).items()]
    return frozenset(name for name, *hints in found if any(get_origin(hint) is tuple for hint in hints))


@cache
def _moments(kind: type[msgspec.Struct]) -> frozenset[str]:
    """Return the parameters that are moments."""
    return frozenset(name for name, hint in get_type_hints(kind).items() if datetime in (hint, *get_args(hint)))


def _is_bare(request: Request) -> bool:
    """Return whether a request has no body, by its head."""
    headers = request.headers
    return headers.get("content-length", "0") == "0" and "transfer-encoding" not in headers


async def read_body(request: Request, most: int, patience: float, media: bytes = b"application/json") -> bytes:
    """Return the body; refuse one that is not of this media type, is too large, or does not come in time."""
    given = dict(request.scope["headers"])
    kind = given.get(b"content-type", b"")
    if kind != media and kind.partition(b";")[0].strip().lower() != media:
        what, name = "JSON" if media == b"application/json" else "msgpack", media.decode()
        raise Problem(415, "media-type", f"The body must be {what}", f"send it with Content-Type: {name}")
    length = given.get(b"content-length", b"")
    if length.isdigit() and int(length) > most:
        raise _too_large(most)
    parts, size = list[bytes](), 0

    def add(message: Message) -> bool:
        """Add a part; return whether there are more."""
        nonlocal size
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > most:
            raise _too_large(most)
        more: bool = message.get("more_body", False)
        return more

    receiving, rest = request.receive().__await__(), None
    try:
        rest = _Rest(receiving, next(receiving))
    except StopIteration as came:  # mostly the whole body is there already, and needs no timer
        if not add(came.value):
            return parts[0]
    try:
        async with asyncio.timeout(patience):
            if rest is None or add(await rest):
                while add(await request.receive()):  # as Request.stream does; its generator costs as much as all this
                    pass
    except TimeoutError:
        detail, last = f"it must come within {patience:g} s", {"Connection": "close"}
        raise Problem(408, "too-slow", "The body did not come in time", detail, headers=last) from None
    return parts[0] if len(parts) == 1 else b"".join(parts)


class _Rest:
    """The rest of an awaitable that was begun, with what it waits for."""

    def __init__(self, begun: Generator[Any, None, Message], waits_for: Any) -> None:
        self._begun, self._waits_for = begun, waits_for

    def __await__(self) -> Generator[Any, None, Message]:
        try:
            yield self._waits_for
        except BaseException as error:
            self._begun.throw(error)
            raise
        return (yield from self._begun)


def _too_large(most: int) -> Problem:
    detail = f"the body may have {most} bytes"
    return Problem(413, "too-large", "The body is too large", detail, headers={"Connection": "close"})
