"""Starlette: routes that become jobs (``JobRoutes``), and the pages that show them (``status_routes``).

jobs = App("sqlite:///jobs.db")
reports = JobRoutes(jobs, identity=lambda request: request.user.display_name)

@reports.post("/reports/{year}", job=JobOptions(timeout=600))
async def report(year: int, req: ReportRequest) -> Report: ...

web = Starlette(
    routes=[*reports, Mount("/jobs", routes=status_routes(jobs, public=True))],
    lifespan=jobs.lifespan(worker=True),
)
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import parse_qsl

from headrace.core.retry import Seconds
from headrace.endpoints.adapting import adapted
from headrace.endpoints.answers import Answers
from headrace.endpoints.asked import HEADERS, Asked
from headrace.endpoints.binding import Binding, FromHeader
from headrace.endpoints.failures import describe
from headrace.endpoints.in_worker import InWorker, in_worker, plan_of
from headrace.endpoints.status import StatusPages
from headrace.endpoints.submitting import LONGEST, BeforeSubmit, Submitting
from headrace.endpoints.waiting import HungUp
from headrace.errors import ConfigError, MissingExtra
from headrace.handler import is_context, read_hints
from headrace.options import JobOptions, TaskOptions
from headrace.task import Task
from headrace.web.problems import Fault, Problem

try:
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import BaseRoute, Route, compile_path
except ModuleNotFoundError as error:
    raise MissingExtra("headrace.endpoints.starlette", "starlette", "starlette") from error

from headrace.endpoints.asgi import Addresses, BoundedBody, asked_of, hung_up, identity_text, mark_pages, response_of

if TYPE_CHECKING:
    from headrace.app import App

__all__ = ["Answers", "FromHeader", "InWorker", "JobRoutes", "status_routes"]

_JOB: JobOptions = {}

Options = JobOptions | TaskOptions
Identity = Callable[[Request], Any]
"""Gives the caller's id as text, or None; it may be a coroutine function."""


class JobRoutes(Sequence[BaseRoute]):
    """Routes that are jobs, to be given to an application: ``Starlette(routes=[*reports, …])``.

    A handler's parameters are taken from the path, the query and the body, by their types: see ``headrace.endpoints
    .binding``. The answer is 202 with the job, or with ``Prefer: wait=10`` the result.
    """

    def __init__(
        self,
        jobs: App,
        *,
        identity: Identity | None = None,
        shared_keys: bool = False,
        headers: Sequence[str] = HEADERS,
        wait: Seconds = 0.0,
        longest_wait: Seconds = 30.0,
        before_submit: BeforeSubmit | None = None,
        answers: Answers | None = None,
        status_url: str | None = None,
    ) -> None:
        """The arguments are those of FastAPI's ``JobRouter``; ``identity`` is called with the request.

        :raises ConfigError: naming the argument
        """
        self.jobs = jobs
        """The App that keeps the jobs."""
        self._identity, self._routes = identity, list[BaseRoute]()
        self._submitting = Submitting(
            jobs,
            headers=headers,
            shared_keys=shared_keys,
            wait=wait,
            longest_wait=longest_wait,
            before_submit=before_submit,
            answers=answers,
        )
        self._addresses = Addresses(jobs, fixed=status_url)

    def __len__(self) -> int:
        return len(self._routes)

    def __getitem__(self, index: Any) -> Any:
        return self._routes[index]

    def __iter__(self) -> Iterator[BaseRoute]:
        return iter(self._routes)

    def get(self, path: str, *, job: Options = _JOB) -> Callable[[Callable[..., Any]], Task[Any, Any]]:
        """A GET route that is a job; ``job``: its options."""
        return self.route(path, methods=["GET"], job=job)

    def put(self, path: str, *, job: Options = _JOB) -> Callable[[Callable[..., Any]], Task[Any, Any]]:
        """A PUT route that is a job; ``job``: its options."""
        return self.route(path, methods=["PUT"], job=job)

    def post(self, path: str, *, job: Options = _JOB) -> Callable[[Callable[..., Any]], Task[Any, Any]]:
        """A POST route that is a job; ``job``: its options."""
        return self.route(path, methods=["POST"], job=job)

    def delete(self, path: str, *, job: Options = _JOB) -> Callable[[Callable[..., Any]], Task[Any, Any]]:
        """A DELETE route that is a job; ``job``: its options."""
        return self.route(path, methods=["DELETE"], job=job)

    def patch(self, path: str, *, job: Options = _JOB) -> Callable[[Callable[..., Any]], Task[Any, Any]]:
        """A PATCH route that is a job; ``job``: its options."""
        return self.route(path, methods=["PATCH"], job=job)

    def route(
        self, path: str, *, methods: Iterable[str], job: Options = _JOB
    ) -> Callable[[Callable[..., Any]], Task[Any, Any]]:
        """A route that is a job, for any of these methods."""
        options, wanted = dict(job), list(methods)

        def decorate(fn: Callable[..., Any]) -> Task[Any, Any]:
            task: Task[Any, Any] = cast("Any", self.jobs.task)(_run(fn), **options)
            binding = Binding(task.handler, list(compile_path(path)[2]), self._submitting.headers)
            task.handler.describe, task.handler.uncounted = describe, binding.uncounted
            self._routes.append(Route(path, self._endpoint(task, binding), methods=wanted, name=task.name))
            return task

        return decorate

    def _endpoint(self, task: Task[Any, Any], binding: Binding) -> Callable[[Request], Awaitable[Response]]:
        async def endpoint(request: Request) -> Response:
            try:
                asked = asked_of(request, await _caller(self._identity, request), await self._addresses.of(request))
                body = await _read(request)
                media = request.headers.get("content-type", "")
                answer = await self._submitting.answer(
                    task, lambda: binding.arguments(asked, media, body, _form), asked, request
                )
                return cast("Response", response_of(answer))
            except Problem as problem:
                return cast("Response", response_of(self._submitting.answers.problem(problem)))
            except HungUp:
                return hung_up()

        return endpoint


def _run(fn: Callable[..., Any]) -> Callable[..., Any]:
    """What a worker calls: the handler, with what is made in the worker."""
    hints, parameters = read_hints(fn), list(inspect.signature(fn).parameters.values())
    takes_context = bool(parameters) and is_context(parameters[0], hints)
    typed = {one.name: one.replace(annotation=hints.get(one.name, one.empty)) for one in parameters[takes_context:]}
    marks = {name: in_worker(one.annotation, one.default) for name, one in typed.items()}
    plans = {name: plan_of(mark.dependency) for name, mark in marks.items() if mark is not None}
    returns = hints.get("return", inspect.Signature.empty)
    return adapted(fn, typed, returns, takes_context=takes_context, adapters={}, plans=plans, result=None)


def _form(body: bytes) -> list[tuple[str, str]]:
    return parse_qsl(body.decode(errors="replace"), keep_blank_values=True)


async def _read(request: Request) -> bytes:
    receive = BoundedBody(request.receive)
    try:
        return await Request(request.scope, receive).body()
    except Problem:
        await receive.drain()
        raise


async def _caller(identity: Identity | None, request: Request) -> str | None:
    if identity is None:
        return None
    found = identity(request)
    return identity_text(await found if isinstance(found, Awaitable) else found)


# -- status pages

_Do = Callable[[StatusPages, str, Asked, Request], Awaitable[Any]]


def status_routes(
    jobs: App,
    *,
    may_see: Callable[[Request], Any] | None = None,
    public: bool = False,
    secret: str | bytes | None = None,
    identity: Identity | None = None,
    acts: bool = False,
    logs: bool = False,
    answers: Answers | None = None,
) -> list[BaseRoute]:
    """The routes that show the jobs of an App: ``Mount("/jobs", routes=status_routes(jobs, public=True))``.

    Ids are no secrets, so somebody must say who may look: ``may_see`` is called with the request, and raises an
    HTTPException or returns False; with ``identity`` everybody sees their own jobs; with ``public=True`` addresses have
    a signed token. The others are those of FastAPI's ``status_router``.

    :raises ConfigError: nobody says who may look
    """
    if may_see is None and identity is None and not public:
        raise ConfigError(
            "status_routes: job ids are no secrets, so whoever guesses one would see the job. Say who may: may_see=...,"
            " identity=... (everybody sees their own), or public=True (addresses have a signed token)"
        )
    if secret is not None and not public:
        raise ConfigError("secret is what tokens of public pages are signed with: say public=True, too")
    pages = StatusPages(jobs, public=public, secret=secret, known=identity is not None, logs=logs, answers=answers)
    addresses = Addresses(jobs)

    def page(method: str, path: str, do: _Do) -> Route:
        async def endpoint(request: Request) -> Response:
            try:
                await _admit(may_see, request)
                asked = asked_of(request, await _caller(identity, request), await addresses.of(request))
                return cast("Response", response_of(await do(pages, request.path_params["id"], asked, request)))
            except Problem as problem:
                return cast("Response", response_of(pages.answers.problem(problem)))
            except HungUp:
                return hung_up()

        if (method, path) == ("GET", "/{id}"):
            mark_pages(endpoint, pages)
        return Route(path, endpoint, methods=[method])

    found: list[BaseRoute] = [
        page("GET", "/{id}", lambda pages, id, asked, request: pages.show(id, asked, _wait(request))),
        page("GET", "/{id}/result", lambda pages, id, asked, request: pages.result(id, asked, _wait(request))),
        page("GET", "/{id}/events", lambda pages, id, asked, request: pages.events(id, asked, _since(request))),
        page("DELETE", "/{id}", lambda pages, id, asked, request: pages.cancel(id, asked)),
    ]
    if acts:
        found += [
            page("POST", "/{id}/retry", lambda pages, id, asked, request: pages.retry(id, asked)),
            page("POST", "/{id}/discard", lambda pages, id, asked, request: pages.discard(id, asked)),
        ]
    return found


async def _admit(may_see: Callable[[Request], Any] | None, request: Request) -> None:
    if may_see is None:
        return
    said = may_see(request)
    if (await said if isinstance(said, Awaitable) else said) is False:
        raise Problem(403, "forbidden", "This is not for this caller", "the service does not let you look at jobs")


def _wait(request: Request) -> float:
    text = request.query_params.get("wait", "0")
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= LONGEST:
        message = f"wait must be seconds from 0 to {LONGEST:g}, not {text!r}"
        raise Problem(400, "malformed", "The request cannot be understood", message, faults=[Fault("wait", message)])
    return seconds


def _since(request: Request) -> str | None:
    return request.headers.get("last-event-id") or request.query_params.get("since")
