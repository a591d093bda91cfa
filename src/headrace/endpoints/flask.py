"""Flask: routes that become jobs (``JobBlueprint``), and the pages that show them (``status_blueprint``).

jobs = App("sqlite:///jobs.db")
reports = JobBlueprint(jobs, "reports", __name__, url_prefix="/reports", identity=current_user)

@reports.post("/<int:year>", job=JobOptions(timeout=600))
def report(year: int, req: ReportRequest) -> Report: ...

web = Flask(__name__)
web.register_blueprint(reports)
web.register_blueprint(status_blueprint(jobs, identity=current_user), url_prefix="/jobs")
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any, TypedDict, Unpack, cast
from urllib.parse import parse_qsl

from headrace.client.options import JobOptions, TaskOptions
from headrace.client.task import Task
from headrace.core.defaults import MAX_ENDPOINT_BODY_BYTES
from headrace.core.times import Seconds
from headrace.core.words import Words
from headrace.endpoints.arguments import FORM, Binding, FromHeader
from headrace.endpoints.dependencies import InWorker, MadeInWorker
from headrace.endpoints.documents import Errors, OnDelete
from headrace.endpoints.errors import describe
from headrace.endpoints.request import HEADERS, EndpointRequest
from headrace.endpoints.responses import Answers, EndpointResponse
from headrace.endpoints.routes import ACTS, PAGES, Page, check_access, forbidden, identity_text, runs, too_large
from headrace.endpoints.status import StatusPages
from headrace.endpoints.status_choice import StatusChoice, check_status_url
from headrace.endpoints.submit import BeforeSubmit, Submitting
from headrace.endpoints.wsgi import PLACE, Here, Told, asking, in_threads, sent_headers
from headrace.errors import MissingExtra
from headrace.http.problems import Problem
from headrace.http.sse import HEADERS as EVENT_HEADERS
from headrace.http.sse import Telling

try:
    from flask import Blueprint, Flask, Response, current_app, request, url_for
    from flask.blueprints import BlueprintSetupState
    from werkzeug.exceptions import MethodNotAllowed
    from werkzeug.routing import BuildError
except ModuleNotFoundError as error:
    raise MissingExtra("headrace.endpoints.flask", "flask", "flask") from error

if TYPE_CHECKING:
    from headrace.app import App

__all__ = ["Answers", "FromHeader", "InWorker", "JobBlueprint", "MadeInWorker", "Words", "status_blueprint"]

Options = JobOptions | TaskOptions
Identity = Callable[[], Any]
"""Returns the id of the caller (``flask.request``) as text, or None."""

_JOB: JobOptions = {}
_EXTENSION, _PAGES = "headrace", "__headrace_pages__"


class BlueprintOptions(TypedDict, total=False):
    """The arguments of a ``Blueprint`` but for its names."""

    static_folder: str | PathLike[str] | None
    static_url_path: str | None
    template_folder: str | PathLike[str] | None
    url_prefix: str | None
    subdomain: str | None
    url_defaults: dict[str, Any] | None
    root_path: str | None
    cli_group: str | None


class JobBlueprint(Blueprint):
    """A ``Blueprint`` with routes that are jobs: a request is checked and stored, and a worker runs the handler.

    A handler's parameters are taken from the path, the query and the body, by their types: see
    ``headrace.endpoints.arguments``. The response is 202 with the job, or with ``Prefer: wait=10`` the result.
    """

    def __init__(
        self,
        jobs: App,
        name: str,
        import_name: str,
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
        status: Blueprint | None = None,
        status_url: str | None = None,
        **blueprint: Unpack[BlueprintOptions],
    ) -> None:
        """``blueprint``: all other arguments of a ``Blueprint``.

        The others are those of FastAPI's ``JobRouter``; ``identity`` is called without arguments, within the request,
        and ``status`` is what ``status_blueprint`` returned.

        :raises ConfigError: naming the argument. Status pages that do not fit are refused when a blueprint is
            registered, and pages that ``status`` names and that are not registered at the first request of any kind
        """
        super().__init__(name, import_name, **blueprint)
        asks = identity is not None or before_submit is not None
        named = None if status is None else [one for one in (getattr(status, _PAGES, None),) if one is not None]
        self._choice = StatusChoice("JobBlueprint", jobs, named, fixed=status_url is not None, asks=asks)
        check_status_url(status_url)
        self.jobs = jobs
        """The App that stores the jobs."""
        self._identity, self._status_url = identity, status_url
        self._submitting = Submitting(
            jobs,
            headers=headers,
            shared_keys=shared_keys,
            wait=wait,
            longest_wait=longest_wait,
            before_submit=in_threads(before_submit),
            answers=answers,
            errors=errors,
            words=words,
        )
        self.record(self._pair)

    def _pair(self, state: BlueprintSetupState) -> None:
        pairing = _pairing(cast("Flask", state.app))
        if self._choice not in pairing.choices:
            pairing.choices.append(self._choice)
        pairing.check_registered()

    # -- decorators; their other options are those of Flask

    def get(self, rule: str, *, job: Options | None = _JOB, **options: Any) -> Callable[[Any], Any]:
        """A GET route that is a job; ``job``: its options, None: a plain route."""
        return self.route(rule, methods=["GET"], job=job, **options)

    def put(self, rule: str, *, job: Options | None = _JOB, **options: Any) -> Callable[[Any], Any]:
        """A PUT route that is a job; ``job``: its options, None: a plain route."""
        return self.route(rule, methods=["PUT"], job=job, **options)

    def post(self, rule: str, *, job: Options | None = _JOB, **options: Any) -> Callable[[Any], Any]:
        """A POST route that is a job; ``job``: its options, None: a plain route."""
        return self.route(rule, methods=["POST"], job=job, **options)

    def delete(self, rule: str, *, job: Options | None = _JOB, **options: Any) -> Callable[[Any], Any]:
        """A DELETE route that is a job; ``job``: its options, None: a plain route."""
        return self.route(rule, methods=["DELETE"], job=job, **options)

    def patch(self, rule: str, *, job: Options | None = _JOB, **options: Any) -> Callable[[Any], Any]:
        """A PATCH route that is a job; ``job``: its options, None: a plain route."""
        return self.route(rule, methods=["PATCH"], job=job, **options)

    def route(
        self, rule: str, *, methods: Iterable[str] | None = None, job: Options | None = _JOB, **options: Any
    ) -> Callable[[Any], Any]:
        """A route that is a job, for any of these methods; ``job``: its options, None: a plain route."""
        wanted = [method.upper() for method in methods or ["GET"]]
        if job is None:
            return super().route(rule, methods=wanted, **options)

        def decorate(fn: Callable[..., Any]) -> Task[Any, Any]:
            return self._add(rule, fn, wanted, dict(job), options)

        return decorate

    def _add(
        self, rule: str, fn: Callable[..., Any], methods: list[str], job: dict[str, Any], options: dict[str, Any]
    ) -> Task[Any, Any]:
        task: Task[Any, Any] = cast("Any", self.jobs.task)(runs(fn), **job)
        task.handler.describe = describe
        bindings = dict[frozenset[str], Binding]()
        """By the names in the path; its prefix may add some."""

        def bind(state: BlueprintSetupState) -> None:
            for one in state.app.url_map.iter_rules(_full_name(state, endpoint)):
                names = frozenset(one.arguments)
                bindings[names] = Binding(task.handler, names, self._submitting.headers)
                task.handler.uncounted = bindings[names].uncounted

        def view(**values: Any) -> Any:
            if request.method == "HEAD" and "HEAD" not in methods:  # Flask allows it wherever it allows GET
                raise MethodNotAllowed(methods)
            assert request.url_rule is not None
            return self._answer(task, bindings[frozenset(request.url_rule.arguments)], values)

        view.__name__, view.__doc__, view.__module__ = fn.__name__, fn.__doc__, fn.__module__
        endpoint = options.pop("endpoint", fn.__name__)
        self.add_url_rule(rule, endpoint, view, methods=methods, **options)
        self.record(bind)
        return task

    def _answer(self, task: Task[Any, Any], binding: Binding, values: dict[str, Any]) -> Any:
        try:
            media, body, form = _body()
            caller = None if self._identity is None else identity_text(self._identity())
            here, ask = (
                Here.of(cast("Any", request)._get_current_object()),
                _asked(self.jobs, caller, values, self._choice, self._status_url),
            )

            async def answer() -> Any:
                asked = await ask()
                return await self._submitting.answer(
                    task, lambda: binding.arguments(asked, media, body, lambda _: form), asked, here
                )

            return _response(self.jobs, self.jobs.wait(answer()))
        except Problem as problem:
            return _response(self.jobs, self._submitting.answers.problem(problem))


# -- which pages show the jobs of a blueprint


class _Pairing:
    """The blueprints of one application, and the pages that show their jobs."""

    def __init__(self) -> None:
        self.pages: dict[str, StatusPages] = {}
        """By the full name of the endpoint that shows a job."""
        self.choices: list[StatusChoice] = []
        self._checked = False

    def check_registered(self) -> None:
        """Refuse what no blueprint that is registered later could mend: a choice without a name;
        :raises Misused: naming the cause and the remedy"""
        for choice in self.choices:
            if choice.named is None:
                choice.choose(self._pages_of(choice))

    def check_all(self) -> None:
        """Check every choice, until all are right; :raises Misused: naming the cause and the remedy"""
        if not self._checked:
            for choice in self.choices:
                choice.choose(self._pages_of(choice))
            self._checked = True

    def _pages_of(self, choice: StatusChoice) -> Iterator[StatusPages]:
        return (one for one in self.pages.values() if one.app is choice.app)


def _pairing(web: Flask) -> _Pairing:
    """Return that of an application; with the first blueprint of headrace its requests begin to check it."""
    found = web.extensions.get(_EXTENSION)
    if found is None:
        found = web.extensions[_EXTENSION] = _Pairing()
        web.before_request(found.check_all)
    return cast("_Pairing", found)


# -- requests


def _asked(
    jobs: App, caller: str | None, values: dict[str, Any], choice: StatusChoice, fixed: str | None = None
) -> Callable[[], Awaitable[EndpointRequest]]:
    """Return a coroutine function that returns the request of this thread as values."""
    place, pages = _place(jobs, choice)
    if fixed is not None:
        place = fixed.replace("{id}", str(PLACE))
    query = parse_qsl(request.query_string.decode(errors="replace"), keep_blank_values=True)  # args are by name
    return asking(request.headers.items(), values, query, caller, place, pages)


def _place(jobs: App, choice: StatusChoice) -> tuple[str | None, StatusPages | None]:
    """Return the address at which the application of this request shows jobs of a router, and its pages.

    :raises Misused: the pages do not fit the router
    """
    known = _pairing(cast("Any", current_app)._get_current_object()).pages
    pages = choice.choose(one for one in known.values() if one.app is jobs)
    for endpoint, one in known.items():
        if one is pages:
            names = next(current_app.url_map.iter_rules(endpoint)).arguments
            given = {name: value for name, value in (request.view_args or {}).items() if name in names}
            try:
                return url_for(endpoint, **{**given, "id": PLACE, "_external": False}), pages
            except BuildError:  # a parameter in the path of the pages that this request does not have
                return None, pages
    return None, pages


def _body() -> tuple[str, bytes, list[tuple[str, str]]]:
    """Return the media type of the body, the body, and its pairs if it is a form.

    :raises Problem: it is too large
    """
    media = request.content_type or ""
    if (request.content_length or 0) > MAX_ENDPOINT_BODY_BYTES:
        raise too_large()
    if request.mimetype == FORM:
        pairs = list(request.form.items(multi=True))
        return media, FORM.encode() if pairs else b"", pairs
    body = request.stream.read(MAX_ENDPOINT_BODY_BYTES + 1) if request.content_length is None else request.get_data()
    if len(body) > MAX_ENDPOINT_BODY_BYTES:
        raise too_large()
    return media, body, []


def _full_name(state: BlueprintSetupState, endpoint: str) -> str:
    return f"{state.name_prefix}.{state.name}.{endpoint}".lstrip(".")


# -- responses


def _response(jobs: App, answer: Any) -> Any:
    """Return the response of Flask; a response that is not headrace's stays as it is."""
    if isinstance(answer, Telling):
        return Response(Told(jobs, answer), 200, EVENT_HEADERS)
    if not isinstance(answer, EndpointResponse):
        return answer
    response = Response(answer.body, answer.status, sent_headers(answer), content_type=answer.media)
    if not answer.body and answer.status != 200:
        del response.headers["Content-Type"]
    return response


# -- status pages


def status_blueprint(
    jobs: App,
    name: str = "jobs",
    *,
    may_see: Callable[[], Any] | None = None,
    public: bool = False,
    secret: str | bytes | None = None,
    identity: Identity | None = None,
    acts: bool = False,
    logs: bool = False,
    answers: Answers | None = None,
    errors: Errors = "shown",
    words: Words = "headrace",
    delete: OnDelete = "cancel",
    **blueprint: Unpack[BlueprintOptions],
) -> Blueprint:
    """Return a ``Blueprint`` that shows jobs of an App: ``/<id>``, ``/<id>/result``, ``/<id>/events``; DELETE cancels.

    Ids are no secrets, so access must be decided: ``may_see`` is called within the request, and aborts or returns
    False; with ``identity`` callers see their own jobs; with ``public=True`` addresses have a signed token.
    ``blueprint``: all arguments of a ``Blueprint``; the others are those of FastAPI's ``status_router``.

    :raises ConfigError: nothing decides access
    """
    check_access("status_blueprint", may_see=may_see, identity=identity, public=public, secret=secret)
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
    choice = StatusChoice("status_blueprint", jobs, [pages], fixed=True, asks=True)
    made = Blueprint(name, __name__, **blueprint)
    setattr(made, _PAGES, pages)

    def view_of(page: Page) -> Callable[..., Any]:
        def view(id: str, **values: Any) -> Any:
            try:
                if may_see is not None and may_see() is False:
                    raise forbidden()
                caller = None if identity is None else identity_text(identity())
                ask = _asked(jobs, caller, values, choice)

                async def answer() -> Any:
                    return await page.do(pages, id, await ask())

                return _response(jobs, jobs.wait(answer()))
            except Problem as problem:
                return _response(jobs, pages.answers.problem(problem))

        return view

    for page in (*PAGES, *(ACTS if acts else ())):
        made.add_url_rule("/<id>" + page.path, page.name, view_of(page), methods=[page.method])

    def tell(state: BlueprintSetupState) -> None:
        pairing = _pairing(cast("Flask", state.app))
        pairing.pages[_full_name(state, PAGES[0].name)] = pages
        pairing.check_registered()

    made.record(tell)
    return made
