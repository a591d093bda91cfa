"""Views that become jobs (``job_view``), and the pages that show them (``status_urls``).

@job_view("POST", identity=lambda request: request.user.pk, job=JobOptions(timeout=600))
def report(year: int, req: ReportRequest) -> Report: ...

urlpatterns = [
    path("reports/<int:year>", report),
    path("jobs/", include(status_urls(identity=lambda request: request.user.pk))),
]
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import parse_qsl

from django.core.handlers.asgi import ASGIRequest
from django.db import connections
from django.http import HttpRequest, HttpResponse, HttpResponseNotAllowed, StreamingHttpResponse
from django.urls import NoReverseMatch, path, reverse

from headrace.client.draft import Draft
from headrace.client.options import JobOptions, TaskOptions
from headrace.client.task import Task
from headrace.contrib.django.checks import mark_choice, mark_pages
from headrace.contrib.django.project import project_app
from headrace.core.defaults import MAX_ENDPOINT_BODY_BYTES
from headrace.core.times import Seconds
from headrace.core.words import Words
from headrace.endpoints.arguments import Binding, FromHeader
from headrace.endpoints.dependencies import InWorker, MadeInWorker
from headrace.endpoints.documents import Errors, OnDelete
from headrace.endpoints.errors import describe
from headrace.endpoints.request import HEADERS, EndpointRequest
from headrace.endpoints.responses import Answers, EndpointResponse
from headrace.endpoints.routes import (
    ACTS,
    PAGES,
    Page,
    check_access,
    forbidden,
    form_of,
    identity_text,
    runs,
    too_large,
)
from headrace.endpoints.status import StatusPages
from headrace.endpoints.status_choice import StatusChoice
from headrace.endpoints.submit import BeforeSubmit, Misused, Submitting
from headrace.endpoints.wsgi import PLACE, Here, Told, asking, in_threads, sent_headers
from headrace.http.problems import Problem
from headrace.http.sse import HEADERS as EVENT_HEADERS
from headrace.http.sse import Telling

if TYPE_CHECKING:
    from headrace.app import App

__all__ = ["Answers", "FromHeader", "InWorker", "MadeInWorker", "Words", "job_view", "status_urls"]

Identity = Callable[[HttpRequest], Any]
"""Returns the caller's id as text, a number or a UUID, or None."""
View = Callable[..., HttpResponse]

_shown: dict[str, StatusPages] = {}
"""The status pages of this process, by their namespace."""
_JOB: JobOptions = {}


def job_view(
    *methods: str,
    job: JobOptions | TaskOptions = _JOB,
    identity: Identity | None = None,
    shared_keys: bool = False,
    headers: Sequence[str] = HEADERS,
    wait: Seconds = 0.0,
    longest_wait: Seconds = 30.0,
    before_submit: BeforeSubmit | None = None,
    answers: Answers | None = None,
    errors: Errors = "shown",
    words: Words = "headrace",
    status: str | None = None,
    status_url: str | None = None,
) -> Callable[[Callable[..., Any]], View]:
    """Makes a view of a handler: a request is checked and stored, and a worker of the project runs the handler.

    Its parameters are taken from the path, the query and the body, by their types: see
    ``headrace.endpoints.arguments``. The response is 202 with the job, or with ``Prefer: wait=10`` the result.
    ``methods``: POST by default. The view has the task as ``view.task``. Other arguments are those of FastAPI's
    ``JobRouter``; ``identity`` and ``before_submit`` are called with the request, and ``status`` is the namespace of
    the ``status_urls`` that show its jobs, where there are several. Status pages that do not fit are an error of
    Django's system checks, and of the first request of any kind.

    :raises ConfigError: naming the argument
    """
    jobs, allowed = project_app(), [method.upper() for method in methods] or ["POST"]
    submitting = Submitting(
        jobs,
        headers=headers,
        shared_keys=shared_keys,
        wait=wait,
        longest_wait=longest_wait,
        before_submit=in_threads(_closing(before_submit)),
        answers=answers,
        errors=errors,
        words=words,
    )

    asks = identity is not None or before_submit is not None

    def choose(found: Iterable[StatusPages]) -> StatusPages | None:
        return _choose(jobs, status, found, fixed=status_url is not None, asks=asks)

    def decorate(fn: Callable[..., Any]) -> View:
        task: Task[Any, Any] = cast("Any", jobs.task)(runs(fn), **job)
        task.handler.describe = describe
        bindings = dict[frozenset[str], Binding]()
        """By the names in the path, which are known at the first request."""

        def view(request: HttpRequest, **values: Any) -> HttpResponse:
            if request.method not in allowed:
                return HttpResponseNotAllowed(allowed)
            names = frozenset(values)
            if names not in bindings:
                bindings[names] = Binding(task.handler, names, submitting.headers)
                task.handler.uncounted = bindings[names].uncounted
            binding = bindings[names]

            async def answer(asked: EndpointRequest) -> Any:
                return await submitting.answer(
                    task, lambda: binding.arguments(asked, media, body, form_of), asked, Here.of(request)
                )

            try:
                media, body = request.headers.get("content-type", ""), _body(request)
                return _answered(jobs, request, values, identity, (choose(_shown.values()), status_url), answer)
            except Problem as problem:
                return _response(jobs, request, submitting.answers.problem(problem))

        view.__name__, view.__doc__, view.__module__ = fn.__name__, fn.__doc__, fn.__module__
        view.__qualname__ = fn.__qualname__
        cast("Any", view).task = task
        mark_choice(view, choose)
        return view

    return decorate


def status_urls(
    *,
    may_see: Callable[[HttpRequest], Any] | None = None,
    public: bool = False,
    secret: str | bytes | None = None,
    identity: Identity | None = None,
    acts: bool = False,
    logs: bool = False,
    answers: Answers | None = None,
    errors: Errors = "shown",
    words: Words = "headrace",
    delete: OnDelete = "cancel",
    namespace: str = "jobs",
) -> tuple[list[Any], str]:
    """Return the pages that show jobs: ``path("jobs/", include(status_urls(public=True)))``; DELETE cancels.

    Ids are no secrets, so access must be decided: ``may_see`` is called with the request, and raises
    ``PermissionDenied`` or returns False; with ``identity`` callers see their own jobs; with ``public=True`` addresses
    have a signed token. ``namespace``: of the URLs. Other arguments are those of FastAPI's ``status_router``.

    :raises ConfigError: nothing decides access
    """
    check_access("status_urls", may_see=may_see, identity=identity, public=public, secret=secret)
    jobs = project_app()
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
    _shown[namespace] = pages
    by_path: dict[str, dict[str, Page]] = {}
    for page in (*PAGES, *(ACTS if acts else ())):
        by_path.setdefault(page.path, {})[page.method] = page

    def view_of(by_method: dict[str, Page]) -> View:
        def view(request: HttpRequest, id: str, **values: Any) -> HttpResponse:
            page = by_method.get(request.method or "")
            if page is None:
                return HttpResponseNotAllowed(list(by_method))
            try:
                if may_see is not None and may_see(request) is False:
                    raise forbidden()

                async def answer(asked: EndpointRequest) -> Any:
                    return await page.do(pages, id, asked)

                return _answered(jobs, request, values, identity, (pages, None), answer)
            except Problem as problem:
                return _response(jobs, request, pages.answers.problem(problem))

        mark_pages(view, pages)
        return view

    patterns = [
        path(f"<str:id>{behind}", view_of(by_method), name=next(iter(by_method.values())).name)
        for behind, by_method in by_path.items()
    ]
    return patterns, namespace


# -- requests


def _answered(
    jobs: App,
    request: HttpRequest,
    values: dict[str, Any],
    identity: Identity | None,
    shown_at: tuple[StatusPages | None, str | None],
    answer: Callable[[EndpointRequest], Awaitable[Any]],
) -> HttpResponse:
    """Respond to a request on the background loop; what belongs to Django is read before.

    ``shown_at``: the status pages, and their address, if it is fixed.
    """
    caller = None if identity is None else identity_text(identity(request))
    # Which is by name, and counts them; in their order they are in the text alone.
    query = parse_qsl(request.META.get("QUERY_STRING", ""), keep_blank_values=True) if request.GET else []
    pages, fixed = shown_at
    place = None if pages is None else _place(values, pages)
    if fixed is not None:
        place = fixed.replace("{id}", str(PLACE))
    ask = asking(request.headers.items(), values, query, caller, place, pages)

    async def work() -> Any:
        return await answer(await ask())

    return _response(jobs, request, jobs.wait(work()))


def _choose(
    jobs: App, status: str | None, found: Iterable[StatusPages], *, fixed: bool, asks: bool
) -> StatusPages | None:
    """Return the pages of a view among those that are found; ``status``: the namespace that it names.

    :raises Misused: they do not fit, naming the cause and the remedy
    """
    if status is not None and status not in _shown:
        raise Misused(f"job_view: status names {status!r}, and the namespaces of status_urls are: {list(_shown)}")
    named = None if status is None else [_shown[status]]
    pages = [one for one in dict.fromkeys(found) if one.app is jobs]
    if named is None and len(pages) > 1:
        several = [name for name, one in _shown.items() if one in pages]
        raise Misused(f"job_view: {len(pages)} status_urls show its jobs: name one with status=, of {several}")
    return StatusChoice("job_view", jobs, named, fixed=fixed, asks=asks).choose(pages)


def _place(values: dict[str, Any], pages: StatusPages) -> str | None:
    """Return the address at which the project shows a job; None: its URLs do not have the pages."""
    namespace = next((name for name, one in _shown.items() if one is pages), None)
    for given in ({"id": PLACE}, {**values, "id": PLACE}):
        try:
            return cast("str", reverse(f"{namespace}:{PAGES[0].name}", kwargs=given))
        except NoReverseMatch:
            continue
    return None


def _body(request: HttpRequest) -> bytes:
    """Return the body; :raises Problem: it is too large"""
    length = request.headers.get("content-length", "")
    if (length.isdigit() and int(length) > MAX_ENDPOINT_BODY_BYTES) or len(request.body) > MAX_ENDPOINT_BODY_BYTES:
        raise too_large()
    return cast("bytes", request.body)


def _closing(hook: BeforeSubmit | None) -> BeforeSubmit | None:
    """Return a hook that closes its connections on the thread that calls it."""
    if hook is None:
        return None
    asked = hook

    def called(request: HttpRequest, draft: Draft[Any]) -> Any:
        try:
            return asked(request, draft)
        finally:
            connections.close_all()

    return called


# -- responses


class _Streamed:
    """Events for a server that iterates on a loop: each is awaited on a thread."""

    def __init__(self, events: Told) -> None:
        self._events = events

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            while (part := await asyncio.to_thread(next, self._events, None)) is not None:
                yield part
        finally:
            await asyncio.to_thread(self._events.close)

    def close(self) -> None:
        """Stop following the job, also if nothing was read."""
        self._events.close()


def _response(jobs: App, request: HttpRequest, answer: Any) -> HttpResponse:
    """Return the response of Django; a response that is not headrace's stays as it is."""
    if isinstance(answer, Telling):
        events = Told(jobs, answer)
        return StreamingHttpResponse(
            _Streamed(events) if isinstance(request, ASGIRequest) else events, headers=dict(EVENT_HEADERS)
        )
    if not isinstance(answer, EndpointResponse):
        return answer
    response = HttpResponse(answer.body, status=answer.status, headers=sent_headers(answer), content_type=answer.media)
    if not answer.body and answer.status != 200:
        del response.headers["Content-Type"]
    return response
