"""What shells that read requests themselves share: the caller, how long to wait, and the pages that show a job."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple
from urllib.parse import parse_qsl
from uuid import UUID

from headrace.core.defaults import MAX_ENDPOINT_BODY_BYTES, MAX_ENDPOINT_WAIT_SECONDS
from headrace.endpoints.dependencies import in_worker, plan_of
from headrace.endpoints.request import EndpointRequest
from headrace.endpoints.status import StatusPages
from headrace.endpoints.submit import Misused
from headrace.endpoints.task_adapter import adapted
from headrace.errors import ConfigError
from headrace.http.problems import Fault, Problem, problem_of
from headrace.http.sse import event
from headrace.worker.handler import is_context, read_hints

__all__ = [
    "ACTS",
    "PAGES",
    "Page",
    "broken_off",
    "check_access",
    "forbidden",
    "form_of",
    "identity_text",
    "runs",
    "too_large",
]

_log = logging.getLogger("headrace.endpoints")


def runs(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function that a worker calls: the handler, with the values that are made in the worker."""
    hints, parameters = read_hints(fn), list(inspect.signature(fn).parameters.values())
    takes_context = bool(parameters) and is_context(parameters[0], hints)
    typed = {one.name: one.replace(annotation=hints.get(one.name, one.empty)) for one in parameters[takes_context:]}
    marks = {name: in_worker(one.annotation, one.default) for name, one in typed.items()}
    plans = {name: plan_of(mark.dependency) for name, mark in marks.items() if mark is not None}
    returns = hints.get("return", inspect.Signature.empty)
    return adapted(fn, typed, returns, takes_context=takes_context, adapters={}, plans=plans, result=None)


def form_of(body: bytes) -> list[tuple[str, str]]:
    """Return the pairs of a form."""
    return parse_qsl(body.decode(errors="replace"), keep_blank_values=True)


def identity_text(value: Any) -> str | None:
    """Return the caller as the customer of a job; :raises Misused: it is no name"""
    if value is None or (isinstance(value, str) and value):
        return value
    if isinstance(value, int | UUID) and not isinstance(value, bool):
        return str(value)
    raise Misused(
        f"identity must give text, a number or a UUID that names the caller, or None, not {value!r}:"
        " return user.id, say, instead of the user"
    )


def too_large() -> Problem:
    """Return the problem of a body that is too large to be read."""
    detail = (
        f"the body may have {MAX_ENDPOINT_BODY_BYTES} bytes: store what is larger elsewhere, and send a reference to it"
    )
    return Problem(413, "too-large", "The body is too large", detail, headers={"Connection": "close"})


# -- status pages


class Page(NamedTuple):
    """One of the pages of a job: its route and its function."""

    name: str
    method: str
    path: str
    """The part behind the id."""
    do: Callable[[StatusPages, str, EndpointRequest], Awaitable[Any]]


PAGES = (
    Page("job", "GET", "", lambda pages, id, asked: pages.show(id, asked, _wait(asked))),
    Page("job_result", "GET", "/result", lambda pages, id, asked: pages.result(id, asked, _wait(asked))),
    Page("job_events", "GET", "/events", lambda pages, id, asked: pages.events(id, asked, _since(asked))),
    Page("cancel_job", "DELETE", "", lambda pages, id, asked: pages.delete(id, asked)),
)
ACTS = (
    Page("retry_job", "POST", "/retry", lambda pages, id, asked: pages.retry(id, asked)),
    Page("discard_job", "POST", "/discard", lambda pages, id, asked: pages.discard(id, asked)),
)


def check_access(
    name: str, *, may_see: object, identity: object, public: bool, secret: str | bytes | None = None
) -> None:
    """Refuse status pages that are open to everyone; ``name``: of the function that makes them.

    :raises ConfigError: nothing decides access
    """
    if may_see is None and identity is None and not public:
        raise ConfigError(
            f"{name}: job ids are no secrets, so whoever guesses one would see the job. Say who may: may_see=...,"
            " identity=... (everybody sees their own), or public=True (addresses have a signed token)"
        )
    if secret is not None and not public:
        raise ConfigError("secret is what tokens of public pages are signed with: say public=True, too")


def forbidden() -> Problem:
    """Return the problem of a caller that may not see jobs."""
    return Problem(403, "forbidden", "This is not for this caller", "the service does not let you look at jobs")


def broken_off(error: Exception) -> bytes:
    """Return the last event of a stream that failed; the log has the reason."""
    _log.error("a stream of events failed", exc_info=error)
    fault = Problem(500, "fault", "A fault of the service", "the service has a fault; its log says more")
    return event("error", (problem_of(error) or fault).details)


def _one(asked: EndpointRequest, name: str) -> str | None:
    return next((value for one, value in asked.query if one == name), None)


def _wait(asked: EndpointRequest) -> float:
    text = _one(asked, "wait") or "0"
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= MAX_ENDPOINT_WAIT_SECONDS:
        message = f"wait must be seconds from 0 to {MAX_ENDPOINT_WAIT_SECONDS:g}, not {text!r}"
        raise Problem(400, "malformed", "The request cannot be understood", message, faults=[Fault("wait", message)])
    return seconds


def _since(asked: EndpointRequest) -> str | None:
    return next(iter(asked.all("last-event-id")), None) or _one(asked, "since")
