"""The status pages of jobs as a router of FastAPI, with a guard against opening them to everyone by mistake."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, Unpack, cast

from fastapi import APIRouter, Depends, Header, Query
from fastapi import routing as fastapi_routing
from starlette.requests import Request
from starlette.responses import Response

from headrace.core.defaults import MAX_ENDPOINT_WAIT_SECONDS
from headrace.endpoints.asgi import Addresses, asked_of, find_pages, hung_up, mark_pages, response_of
from headrace.endpoints.documents import Errors, OnDelete
from headrace.endpoints.fastapi.openapi import status_responses
from headrace.endpoints.fastapi.options import RouterOptions
from headrace.endpoints.request import EndpointRequest, HungUp
from headrace.endpoints.responses import Answers
from headrace.endpoints.routes import identity_text
from headrace.endpoints.status import TOKEN, StatusPages
from headrace.endpoints.status_choice import StatusChoice
from headrace.endpoints.submit import Misused
from headrace.errors import ConfigError
from headrace.http.problems import Problem

if TYPE_CHECKING:
    from headrace.app import App

__all__ = ["expanded", "status_router"]

Show = Callable[[StatusPages, str, EndpointRequest, Mapping[str, Any]], Coroutine[Any, Any, Any]]


class _Page(NamedTuple):
    """One of the pages: its route and its function."""

    name: str
    method: str
    path: str
    text: str
    do: Show
    parameters: tuple[inspect.Parameter, ...] = ()


def _parameter(name: str, hint: Any, default: Any = inspect.Parameter.empty) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=hint, default=default)


def _optional(name: str, mark: Any) -> inspect.Parameter:
    return _parameter(name, Annotated[str | None, mark], None)


_REQUEST, _IDENTITY = "headrace_request", "headrace_identity"
_WAIT = _parameter(
    "wait", Annotated[float, Query(ge=0, le=MAX_ENDPOINT_WAIT_SECONDS, description="Seconds to wait for news")], 0.0
)
_KNOWN = _optional("if_none_match", Header(description="The ETag of what the client has: 304 if it is still so"))
_LAST = _optional("last_event_id", Header(description="The id of the last event that was read"))
_SINCE = _optional("since", Query(description="The same, for those who cannot send the header"))
_TOKEN = _optional(TOKEN, Query(description="The token in the address that the submit answered"))

_PAGES = (
    _Page(
        *("job", "GET", "/{id}", "The job as it stands; with `wait`, as soon as it has changed."),
        lambda pages, id, asked, said: pages.show(id, asked, said["wait"]),
        (_WAIT, _KNOWN),
    ),
    _Page(
        *("job_result", "GET", "/{id}/result", "What the job came to; with `wait`, as soon as it has ended."),
        lambda pages, id, asked, said: pages.result(id, asked, said["wait"]),
        (_WAIT,),
    ),
    _Page(
        *("job_events", "GET", "/{id}/events", "The job until it has ended, as server-sent events."),
        lambda pages, id, asked, said: pages.events(id, asked, said["last_event_id"] or said["since"]),
        (_LAST, _SINCE),
    ),
    _Page(
        *("cancel_job", "DELETE", "/{id}", "Cancel the job, or have its worker stop it."),
        lambda pages, id, asked, said: pages.delete(id, asked),
    ),
)
_ACTS = (
    _Page(
        *("retry_job", "POST", "/{id}/retry", "Give a failed or cancelled job another go."),
        lambda pages, id, asked, said: pages.retry(id, asked),
    ),
    _Page(
        *("discard_job", "POST", "/{id}/discard", "Put a completed or failed job away."),
        lambda pages, id, asked, said: pages.discard(id, asked),
    ),
)


def status_router(
    jobs: App,
    *,
    dependencies: Sequence[Any] | None = None,
    public: bool = False,
    secret: str | bytes | None = None,
    identity: Callable[..., Any] | None = None,
    acts: bool = False,
    logs: bool = False,
    answers: Answers | None = None,
    errors: Errors = "shown",
    delete: OnDelete = "cancel",
    **router: Unpack[RouterOptions],
) -> APIRouter:
    """Return an ``APIRouter`` that shows jobs of an App: ``/{id}``, ``/{id}/result``, ``/{id}/events``; DELETE cancels.

    Ids are no secrets, so access must be decided: ``dependencies`` here or where it is included, ``identity`` (a
    dependency that returns the caller's id: callers see their own jobs), or ``public=True``: then an address has a
    signed token, and gives access to everyone who has it. ``secret``: signs the tokens; by default the store keeps one.
    ``acts``: ``POST /{id}/retry`` and ``/{id}/discard``, too. ``logs``: log lines are among the events. ``errors``:
    ``"hidden"`` shows clients a reference instead of the text of an error. ``delete``: with ``"discard"`` DELETE
    discards a job that has ended; otherwise that is a 409. ``router``: all other arguments of an ``APIRouter``. If an
    App has two such routers, each ``JobRouter`` names its own (``status=``).

    :raises ConfigError: naming the argument. Pages that are open to everybody are refused when the service starts, and
        when they are asked for
    """
    if secret is not None and not public:
        raise ConfigError("secret is what tokens of public pages are signed with: say public=True, too")
    pages = StatusPages(
        jobs,
        public=public,
        secret=secret,
        known=identity is not None,
        logs=logs,
        answers=answers,
        errors=errors,
        delete=delete,
    )
    guard = _Guard(pages, bool(dependencies) or public or identity is not None)
    given: RouterOptions = {"tags": ["jobs"], "lifespan": guard.lifespan, **router}
    made = APIRouter(dependencies=None if dependencies is None else list(dependencies), **given)
    addresses = Addresses(jobs, StatusChoice("status_router", jobs, [pages], fixed=True, asks=True), expanded)
    for page in (*_PAGES, *(_ACTS if acts else ())):
        endpoint = _endpoint(page, pages, guard, addresses, identity, public)
        made.add_api_route(
            page.path,
            endpoint,
            methods=[page.method],
            response_model=None,
            responses=status_responses(page.name, public),
        )
    return made


def _endpoint(
    page: _Page,
    pages: StatusPages,
    guard: _Guard,
    addresses: Addresses,
    identity: Callable[..., Any] | None,
    public: bool,
) -> Callable[..., Any]:
    async def endpoint(id: str, **values: Any) -> Response:
        request: Request = values[_REQUEST]
        guard.check(request.scope.get("app"))
        try:
            asked = asked_of(request, identity_text(values.get(_IDENTITY)), await addresses.of(request))
            return cast("Response", response_of(await page.do(pages, id, asked, values)))
        except Problem as problem:
            return cast("Response", response_of(pages.answers.problem(problem)))
        except HungUp:
            return hung_up()

    parameters = [_parameter("id", str), *page.parameters, _parameter(_REQUEST, Request)]
    if public:
        parameters.append(_TOKEN)
    if identity is not None:
        parameters.append(_parameter(_IDENTITY, Annotated[Any, Depends(identity)]))
    endpoint.__name__ = endpoint.__qualname__ = page.name
    endpoint.__doc__ = page.text
    cast("Any", endpoint).__signature__ = inspect.Signature(parameters)
    if page.name == "job":
        mark_pages(endpoint, pages)
    return endpoint


def expanded(routes: Iterable[Any]) -> Iterable[Any]:
    """Return routes as FastAPI lists them: some versions keep included routers apart."""
    listed: Callable[[Any], Iterable[Any]] | None = getattr(fastapi_routing, "iter_route_contexts", None)
    return routes if listed is None else listed(list(routes))


_UNPROTECTED = (
    "status_router: job ids are no secrets, so whoever guesses one would see the job. Say who may:"
    " include_router(status_router(jobs), dependencies=[Depends(...)]), or status_router(jobs, dependencies=[...]),"
    " or identity=... (everybody sees their own), or public=True (addresses have a signed token)"
)


class _Guard:
    """Refuses to show jobs to everyone who knows an id.

    Access can be decided where the router is included, so this is checked when the service starts, and again when a
    page is requested: an application that is mounted in another does not get the start event.
    """

    def __init__(self, pages: StatusPages, protected: bool) -> None:
        self._pages, self._protected = pages, protected
        self._checked: list[Any] = []

    def check(self, asgi: Any) -> None:
        """Check that the pages in this ASGI application are protected; :raises ConfigError:"""
        if self._protected or any(one is asgi for one in self._checked):
            return
        routes = find_pages(getattr(asgi, "routes", ()), self._pages.app, expanded)
        found = [route for _, route, pages in routes if pages is self._pages]
        if not found or not all(route.dependencies for route in found):
            raise Misused(_UNPROTECTED)
        self._checked.append(asgi)

    @asynccontextmanager
    async def lifespan(self, asgi: Any) -> AsyncIterator[None]:
        """Check when the service starts."""
        self.check(asgi)
        yield
