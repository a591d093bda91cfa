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

from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, cast

from headrace.client.options import JobOptions, TaskOptions
from headrace.client.task import Task
from headrace.core.times import Seconds
from headrace.core.words import Words
from headrace.endpoints.arguments import Binding, FromHeader
from headrace.endpoints.decorator import RouteDecorator
from headrace.endpoints.dependencies import InWorker, MadeInWorker
from headrace.endpoints.documents import Errors, OnDelete
from headrace.endpoints.errors import describe
from headrace.endpoints.request import HEADERS, HungUp
from headrace.endpoints.responses import Answers
from headrace.endpoints.routes import ACTS, PAGES, Page, check_access, forbidden, form_of, identity_text, runs
from headrace.endpoints.status import StatusPages
from headrace.endpoints.status_choice import StatusChoice
from headrace.endpoints.submit import BeforeSubmit, Submitting
from headrace.errors import MissingExtra
from headrace.http.problems import Problem

try:
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import BaseRoute, Route, compile_path
except ModuleNotFoundError as error:
    raise MissingExtra("headrace.endpoints.starlette", "starlette", "starlette") from error

from headrace.endpoints.asgi import Addresses, BoundedBody, asked_of, hung_up, mark_pages, named_pages, response_of

if TYPE_CHECKING:
    from headrace.app import App

__all__ = ["Answers", "FromHeader", "InWorker", "JobRoutes", "MadeInWorker", "Words", "status_routes"]

_JOB: JobOptions = {}

Options = JobOptions | TaskOptions
Identity = Callable[[Request], Any]
"""Returns the caller's id as text, or None; it may be a coroutine function."""


class JobRoutes(Sequence[BaseRoute]):
    """Routes that are jobs, to be passed to an application: ``Starlette(routes=[*reports, …])``.

    A handler's parameters are taken from the path, the query and the body, by their types: see
    ``headrace.endpoints.arguments``. The response is 202 with the job, or with ``Prefer: wait=10`` the result.
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
        errors: Errors = "shown",
        words: Words = "headrace",
        status: Sequence[BaseRoute] | None = None,
        status_url: str | None = None,
    ) -> None:
        """The arguments are those of FastAPI's ``JobRouter``; ``identity`` is called with the request, and ``status``
        is what ``status_routes`` returned.

        :raises ConfigError: naming the argument. Status pages that do not fit are refused when the service starts with
            ``lifespan=jobs.lifespan()``, and when a job is submitted
        """
        self.jobs = jobs
        """The App that stores the jobs."""
        self._identity, self._routes = identity, list[BaseRoute]()
        self._submitting = Submitting(
            jobs,
            headers=headers,
            shared_keys=shared_keys,
            wait=wait,
            longest_wait=longest_wait,
            before_submit=before_submit,
            answers=answers,
            errors=errors,
            words=words,
        )
        asks = identity is not None or before_submit is not None
        pages = named_pages(status, lambda routes: routes)
        choice = StatusChoice("JobRoutes", jobs, pages, fixed=status_url is not None, asks=asks)
        self._addresses = Addresses(jobs, choice, fixed=status_url)
        jobs._start_checks.append(lambda asgi: self._addresses.check_routes(asgi, self._routes))

    def __len__(self) -> int:
        return len(self._routes)

    def __getitem__(self, index: Any) -> Any:
        return self._routes[index]

    def __iter__(self) -> Iterator[BaseRoute]:
        return iter(self._routes)

    def get(self, path: str, *, job: Options = _JOB) -> RouteDecorator:
        """A GET route that is a job; ``job``: its options."""
        return self.route(path, methods=["GET"], job=job)

    def put(self, path: str, *, job: Options = _JOB) -> RouteDecorator:
        """A PUT route that is a job; ``job``: its options."""
        return self.route(path, methods=["PUT"], job=job)

    def post(self, path: str, *, job: Options = _JOB) -> RouteDecorator:
        """A POST route that is a job; ``job``: its options."""
        return self.route(path, methods=["POST"], job=job)

    def delete(self, path: str, *, job: Options = _JOB) -> RouteDecorator:
        """A DELETE route that is a job; ``job``: its options."""
        return self.route(path, methods=["DELETE"], job=job)

    def patch(self, path: str, *, job: Options = _JOB) -> RouteDecorator:
        """A PATCH route that is a job; ``job``: its options."""
        return self.route(path, methods=["PATCH"], job=job)

    def route(self, path: str, *, methods: Iterable[str], job: Options = _JOB) -> RouteDecorator:
        """A route that is a job, for any of these methods."""
        options, wanted = dict(job), list(methods)

        def decorate(fn: Callable[..., Any]) -> Task[Any, Any]:
            task: Task[Any, Any] = cast("Any", self.jobs.task)(runs(fn), **options)
            binding = Binding(task.handler, list(compile_path(path)[2]), self._submitting.headers)
            task.handler.describe, task.handler.uncounted = describe, binding.uncounted
            made = Route(path, self._endpoint(task, binding), methods=wanted, name=task.name)
            if made.methods is not None and "HEAD" not in wanted:
                made.methods.discard("HEAD")  # it comes along with GET, and must change nothing
            self._routes.append(made)
            return task

        return cast("RouteDecorator", decorate)

    def _endpoint(self, task: Task[Any, Any], binding: Binding) -> Callable[[Request], Awaitable[Response]]:
        async def endpoint(request: Request) -> Response:
            try:
                asked = asked_of(request, await _caller(self._identity, request), await self._addresses.of(request))
                body = await _read(request)
                media = request.headers.get("content-type", "")
                answer = await self._submitting.answer(
                    task, lambda: binding.arguments(asked, media, body, form_of), asked, request
                )
                return cast("Response", response_of(answer))
            except Problem as problem:
                return cast("Response", response_of(self._submitting.answers.problem(problem)))
            except HungUp:
                return hung_up()

        return endpoint


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
    errors: Errors = "shown",
    words: Words = "headrace",
    delete: OnDelete = "cancel",
) -> list[BaseRoute]:
    """Return the routes that show the jobs of an App: ``Mount("/jobs", routes=status_routes(jobs, public=True))``.

    Ids are no secrets, so access must be decided: ``may_see`` is called with the request, and raises an HTTPException
    or returns False; with ``identity`` callers see their own jobs; with ``public=True`` addresses have a signed token.
    Other arguments are those of FastAPI's ``status_router``.

    :raises ConfigError: nothing decides access
    """
    check_access("status_routes", may_see=may_see, identity=identity, public=public, secret=secret)
    pages = StatusPages(
        jobs,
        public=public,
        secret=secret,
        known=identity is not None,
        logs=logs,
        answers=answers,
        errors=errors,
        words=words,
        delete=delete,
    )
    addresses = Addresses(jobs, StatusChoice("status_routes", jobs, [pages], fixed=True, asks=True))

    def route(page: Page) -> BaseRoute:
        async def endpoint(request: Request) -> Response:
            try:
                await _admit(may_see, request)
                asked = asked_of(request, await _caller(identity, request), await addresses.of(request))
                return cast("Response", response_of(await page.do(pages, request.path_params["id"], asked)))
            except Problem as problem:
                return cast("Response", response_of(pages.answers.problem(problem)))
            except HungUp:
                return hung_up()

        if page is PAGES[0]:
            mark_pages(endpoint, pages)
        return Route("/{id}" + page.path, endpoint, methods=[page.method])

    return [route(page) for page in (*PAGES, *(ACTS if acts else ()))]


async def _admit(may_see: Callable[[Request], Any] | None, request: Request) -> None:
    if may_see is None:
        return
    said = may_see(request)
    if (await said if isinstance(said, Awaitable) else said) is False:
        raise forbidden()
