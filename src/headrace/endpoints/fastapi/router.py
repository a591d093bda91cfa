"""``JobRouter``: a router of FastAPI with routes that become jobs."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Annotated, Any, Unpack, cast

from headrace.client.options import JobOptions, TaskOptions
from headrace.client.task import Task
from headrace.core.defaults import MAX_ENDPOINT_BODY_BYTES
from headrace.core.times import Seconds
from headrace.core.words import Words
from headrace.endpoints.decorator import RouteDecorator
from headrace.endpoints.documents import Errors
from headrace.endpoints.errors import describe
from headrace.endpoints.request import HEADERS, HungUp
from headrace.endpoints.responses import Answers
from headrace.endpoints.routes import identity_text, too_large
from headrace.endpoints.status_choice import StatusChoice
from headrace.endpoints.submit import BeforeSubmit, Submitting
from headrace.errors import ConfigError, MissingExtra

try:
    from fastapi import APIRouter, Depends, HTTPException
    from fastapi.routing import APIRoute
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.types import Lifespan
except ModuleNotFoundError as error:
    raise MissingExtra("headrace.endpoints.fastapi", "fastapi", "fastapi") from error

from headrace.endpoints.asgi import Addresses, BoundedBody, asked_of, hung_up, length_of, named_pages, response_of
from headrace.endpoints.fastapi.openapi import job_responses, validation
from headrace.endpoints.fastapi.options import AllRouterOptions
from headrace.endpoints.fastapi.signature import read_signature, refuse_secrets
from headrace.endpoints.fastapi.status import expanded
from headrace.http.problems import Problem

if TYPE_CHECKING:
    from headrace.app import App

__all__ = ["JobRouter"]

_REQUEST, _IDENTITY = "headrace_request", "headrace_identity"
"""Parameters of headrace, by names that no handler has."""
_PLAIN = frozenset({"HEAD", "OPTIONS", "TRACE"})
"""Methods that change nothing."""
_OURS = ("response_model", "status_code", "response_class")
_JOB: JobOptions = {}

Options = JobOptions | TaskOptions


class JobRouter(APIRouter):
    """An ``APIRouter`` with routes that are jobs: FastAPI checks a request, headrace stores it, and a worker runs it.

    The response is 202 with the job and its address; with ``Prefer: wait=10`` it is the result itself, if the job ends
    within so many seconds.
    """

    def __init__(
        self,
        jobs: App,
        *,
        identity: Callable[..., Any] | None = None,
        shared_keys: bool = False,
        headers: Sequence[str] = HEADERS,
        cookies: Sequence[str] = (),
        wait: Seconds = 0.0,
        longest_wait: Seconds = 30.0,
        before_submit: BeforeSubmit | None = None,
        answers: Answers | None = None,
        errors: Errors = "shown",
        words: Words = "headrace",
        status: APIRouter | None = None,
        status_url: str | None = None,
        **router: Unpack[AllRouterOptions],
    ) -> None:
        """``router``: all arguments of an ``APIRouter``.

        ``identity``: a dependency that returns the caller's id as text, or None; it becomes the customer of the job,
        and request keys are the caller's own. ``shared_keys``: unknown callers may use keys, and all of them share
        these. ``headers``: an allow-list of those that are stored with the job, ``["*"]`` is all but credentials.
        ``cookies``: those that a handler may take. ``wait``: seconds to wait for the end of a job if the client sends
        no ``Prefer``; ``longest_wait``: the maximum. ``before_submit``: called with the request and the draft of the
        job; a response that it returns is sent instead. ``answers``: makes the responses. ``errors``: ``"hidden"``
        shows clients a reference instead of the text of an error. ``words``: those for statuses. ``status``: the
        ``status_router`` that shows its jobs, if the application has several of this App. ``status_url``: the address
        of jobs, with ``{id}`` in it, where they are shown elsewhere; tokens are added if the status pages are public
        (``status``, or those of this application).

        :raises ConfigError: naming the argument. Status pages that do not fit are refused when the service starts, and
            when a job is submitted
        """
        asks = identity is not None or before_submit is not None
        pages = named_pages(None if status is None else status.routes, expanded)
        choice = StatusChoice("JobRouter", jobs, pages, fixed=status_url is not None, asks=asks)
        self._addresses = Addresses(jobs, choice, expanded, status_url)
        super().__init__(**router)
        # That which is made, also of on_startup and on_shutdown, which a lifespan given above would replace.
        self.lifespan_context = self._checked(self.lifespan_context)
        self.jobs = jobs
        """The App that stores the jobs."""
        self._identity, self._cookies = identity, tuple(cookies)
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

    def _checked(self, lifespan: Lifespan[Any]) -> Lifespan[Any]:
        """Return a lifespan that also checks the status pages when the service starts."""

        @asynccontextmanager
        async def checked(asgi: Any) -> AsyncIterator[Any]:
            self._addresses.check(asgi)
            async with lifespan(asgi) as state:
                yield state

        return checked

    # -- decorators; their other options are those of FastAPI, and what they make is a task

    def get(self, path: str, *, job: Options | None = _JOB, **route: Any) -> RouteDecorator:  # type: ignore[override]
        """A GET route that is a job; ``job``: its options, None: a plain route."""
        return self.api_route(path, methods=["GET"], job=job, **route)

    def put(self, path: str, *, job: Options | None = _JOB, **route: Any) -> RouteDecorator:  # type: ignore[override]
        """A PUT route that is a job; ``job``: its options, None: a plain route."""
        return self.api_route(path, methods=["PUT"], job=job, **route)

    def post(self, path: str, *, job: Options | None = _JOB, **route: Any) -> RouteDecorator:  # type: ignore[override]
        """A POST route that is a job; ``job``: its options, None: a plain route."""
        return self.api_route(path, methods=["POST"], job=job, **route)

    def delete(self, path: str, *, job: Options | None = _JOB, **route: Any) -> RouteDecorator:  # type: ignore[override]
        """A DELETE route that is a job; ``job``: its options, None: a plain route."""
        return self.api_route(path, methods=["DELETE"], job=job, **route)

    def patch(self, path: str, *, job: Options | None = _JOB, **route: Any) -> RouteDecorator:  # type: ignore[override]
        """A PATCH route that is a job; ``job``: its options, None: a plain route."""
        return self.api_route(path, methods=["PATCH"], job=job, **route)

    def api_route(  # type: ignore[override]
        self, path: str, *, methods: Iterable[str] | None = None, job: Options | None = _JOB, **route: Any
    ) -> RouteDecorator:
        """A route that is a job, for any of these methods; ``job``: its options, None: a plain route."""
        wanted = [method.upper() for method in methods or ["GET"]]
        if job is None or _PLAIN.issuperset(wanted):
            return cast("RouteDecorator", super().api_route(path, methods=wanted, **route))
        for name in _OURS:
            if name in route:
                text = "the return annotation says what the result is, and the answer is 202, or 200 with the result"
                raise ConfigError(f"{name} is not for a route that is a job: {text}")
        options = dict(job)

        def decorate(fn: Callable[..., Any]) -> Task[Any, Any]:
            return self._add(path, fn, wanted, options, route)

        return cast("RouteDecorator", decorate)

    def _add(
        self, path: str, fn: Callable[..., Any], methods: list[str], options: dict[str, Any], route: dict[str, Any]
    ) -> Task[Any, Any]:
        signature = read_signature(fn, self._submitting.headers, self._cookies)
        task: Task[Any, Any] = cast("Any", self.jobs.task)(signature.run, **options)
        handler = task.handler
        refuse_secrets(fn.__qualname__, handler.schema())
        handler.describe, handler.uncounted = describe, signature.uncounted
        submitting, addresses = self._submitting, self._addresses

        async def endpoint(**values: Any) -> Response:
            request: Request = values.pop(_REQUEST)
            identity = identity_text(values.pop(_IDENTITY, None))
            try:
                asked = asked_of(request, identity, await addresses.of(request))
                answer = await submitting.answer(
                    task, lambda: signature.stored(values), asked, request, signature.depends
                )
            except Problem as problem:
                answer = submitting.answers.problem(problem)
            except HungUp:
                return hung_up()
            return cast("Response", response_of(answer))

        ours = [inspect.Parameter(_REQUEST, inspect.Parameter.KEYWORD_ONLY, annotation=Request)]
        if self._identity is not None:
            hint = Annotated[Any, Depends(self._identity)]
            ours.append(inspect.Parameter(_IDENTITY, inspect.Parameter.KEYWORD_ONLY, annotation=hint))
        endpoint.__name__, endpoint.__doc__, endpoint.__module__ = fn.__name__, fn.__doc__, fn.__module__
        endpoint.__qualname__ = fn.__qualname__
        cast("Any", endpoint).__signature__ = inspect.Signature([*signature.seen, *ours])
        responses = job_responses(signature.returns, handler)
        self.add_api_route(
            path,
            endpoint,
            **{
                **route,
                "methods": methods,
                "response_model": None,
                "status_code": 202,
                "responses": {**responses, **(route.get("responses") or {})},
                "openapi_extra": validation(route.get("openapi_extra")),
                "response_description": route.get("response_description", "The job is stored, and goes on"),
                "route_class_override": _limited(self.route_class, submitting.answers),
            },
        )
        return task


class _TooLarge(HTTPException):
    """The body has more bytes than are read."""


class _Bounded(BoundedBody):
    """A body that FastAPI reads: its error must be one that FastAPI lets pass."""

    def too_large(self) -> Exception:
        return _TooLarge(413)


def _limited(kind: type[APIRoute], answers: Answers) -> type[APIRoute]:
    """Return the class of routes that read no more of a request than a job could ever store."""

    class JobRoute(kind):  # type: ignore[misc, valid-type]  # a class that is given
        def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
            handle = super().get_route_handler()

            async def limited(request: Request) -> Response:
                length = length_of(request)
                if (
                    length is not None and length <= MAX_ENDPOINT_BODY_BYTES
                ):  # a server passes on no more than was announced
                    return cast("Response", await handle(request))
                receive = _Bounded(request.receive)
                try:
                    if length is not None:
                        raise _TooLarge(413)
                    return cast("Response", await handle(Request(request.scope, receive)))
                except _TooLarge:
                    await receive.drain()
                    return cast("Response", response_of(answers.problem(too_large())))

            return limited

    return JobRoute
