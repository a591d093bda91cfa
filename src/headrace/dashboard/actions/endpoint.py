"""The endpoint for all actions of the pages: one address, one table, and a scope for each action.

Only the script of the dashboard's own pages gets here: a request must be JSON, and carry the token of the page.
"""

from __future__ import annotations

import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse

from headrace import errors
from headrace.core.auth.api_keys import Scope
from headrace.dashboard.page import Foreign, Missing, PageRequest
from headrace.dashboard.security import HEADER, secured

if TYPE_CHECKING:
    from headrace.dashboard.dashboard import Dashboard

__all__ = ["Act", "ActionRefused", "Does", "Done", "Endpoint", "endpoint"]

_log = logging.getLogger("headrace.dashboard")

MAX_REQUEST_BYTES = 4 * 1024 * 1024
"""Maximum bytes of a request."""

Endpoint = Callable[[Request], Awaitable[Response]]


class ActionRefused(Exception):
    """The action is refused; the text gives the reason."""

    def __init__(self, status: int, text: str, field: str | None = None, data: Any = None) -> None:
        """``field``: the wrong field of the form; ``data``: data to return nevertheless."""
        super().__init__(text)
        self.status, self.field, self.data = status, field, data


class Done(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The outcome of an action."""

    told: str = ""
    """A sentence for the viewer."""
    go: str | None = None
    """The page to open next."""
    count: int | None = None
    """Of a dry run: how many jobs it would be tried on."""
    filter: dict[str, Any] | None = None
    """Of a dry run: the filter that it counted, to be sent back, so that the action concerns no other jobs."""
    secret: str | None = None
    """What is shown this once, and cannot be read later."""
    data: Any = None


Does = Callable[[PageRequest, Any], Awaitable[Done | AsyncIterator[dict[str, Any]]]]


@dataclass(frozen=True)
class Act:
    """One row of the table."""

    scope: Scope
    body: type[msgspec.Struct]
    do: Does
    whose: Literal["customer", "operator"] = "operator"
    """Whether viewers limited to one customer may do it."""
    check: Does | None = None
    """Serves the trial that a form requests while the viewer types: returns whether the action would be done, and
    changes nothing. A refusal is a valid result of a trial, and no error."""


_KINDS: tuple[tuple[type[Exception], int], ...] = (
    (errors.PayloadTooLarge, 413),
    (errors.InvalidPayload, 422),
    (errors.InvalidResult, 422),
    (errors.Duplicate, 409),
    (errors.TransitionRefused, 409),
    (errors.JobNotFound, 404),
    (errors.UnknownTask, 404),
    (errors.UnknownSchedule, 404),
    (errors.UnknownSetting, 404),
    (errors.UnknownWorker, 404),
    (errors.UnknownWebhook, 404),
    (errors.UnknownKey, 404),
    (errors.Overloaded, 503),
    (errors.Unavailable, 503),
    (errors.ConfigError, 400),
    (Missing, 404),
    (Foreign, 403),
    (msgspec.ValidationError, 400),
    (ValueError, 400),
)


def endpoint(dashboard: Dashboard, acts: Mapping[str, Act]) -> Endpoint:
    """Return the endpoint that does what a page requests, if it is one of these actions."""

    async def dashboard_act(request: Request) -> Response:
        try:
            return secured(await _act(dashboard, acts, request))
        except ActionRefused as refused:
            return _problem(refused.status, str(refused), refused.field, refused.data)
        except ClientDisconnect:
            return Response(status_code=400)  # the client is gone
        except Exception as error:
            for kind, status in _KINDS:
                if isinstance(error, kind):
                    text, field = _said(error)
                    return _problem(status, f"There is no {text}." if isinstance(error, Missing) else text, field)
            _log.exception("an act failed")
            return _problem(500, "Something is broken; the log of the server says more.")

    return dashboard_act


async def _act(dashboard: Dashboard, acts: Mapping[str, Act], request: Request) -> Response:
    viewer = await dashboard.gate.enter(request)
    if isinstance(viewer, Response):
        return viewer
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise ActionRefused(415, "Acts are sent as JSON.")
    tokens = await dashboard.tokens()
    if not tokens.accepts(request, viewer, request.headers.get(HEADER, "")):
        raise ActionRefused(403, "This page is too old, or not one of ours: load it again.")
    given = msgspec.json.decode(await _body(request), type=dict[str, Any])
    act, trial = acts.get(str(given.pop("act", ""))), given.pop("trial", False) is True
    if act is None:
        raise ActionRefused(404, "There is no such act.")
    if act.scope not in viewer.scopes:
        raise ActionRefused(403, f"You may not do this: it needs the scope {act.scope}.")
    if act.whose == "operator" and viewer.customer is not None:
        raise ActionRefused(403, "This concerns more than one customer.")
    ask = PageRequest(dashboard, request, viewer)
    if trial:
        return await _tried(ask, act, given)
    answer = await act.do(ask, msgspec.convert(given, act.body))
    dashboard.shared.forget()
    if isinstance(answer, Done):
        return Response(msgspec.json.encode(answer), media_type="application/json")
    return StreamingResponse(_lines(dashboard, answer), media_type="application/x-ndjson")


async def _tried(ask: PageRequest, act: Act, given: dict[str, Any]) -> Response:
    try:
        body = msgspec.convert(given, act.body)
        answer = Done() if act.check is None else await act.check(ask, body)
    except (
        ActionRefused,
        errors.InvalidPayload,
        errors.ConfigError,
        errors.UnknownTask,
        msgspec.ValidationError,
    ) as error:
        text, field = _said(error)
        return _problem(200, text, field, getattr(error, "data", None))
    return Response(msgspec.json.encode(answer), media_type="application/json")


_WHERE = re.compile(r" - at `\$\.?([a-z_]*)[^`]*`$|missing required field `([a-z_]+)`$")


def _said(error: Exception) -> tuple[str, str | None]:
    """Return an error as a sentence for people, and the field of the form that it is about."""
    text, field = str(error), getattr(error, "field", None)
    if isinstance(error, msgspec.ValidationError) and (found := _WHERE.search(text)) is not None:
        return text.removesuffix(found[0]) if found[1] is not None else text, found[1] or found[2]
    return text, field


async def _lines(dashboard: Dashboard, answers: AsyncIterator[dict[str, Any]]) -> AsyncIterator[bytes]:
    """Yield the progress of an action on many jobs, line by line."""
    try:
        async for one in answers:
            yield msgspec.json.encode(one) + b"\n"
    except errors.HeadraceError as error:
        yield msgspec.json.encode({"error": str(error)}) + b"\n"
    finally:
        dashboard.shared.forget()


async def _body(request: Request) -> bytes:
    parts, size = list[bytes](), 0
    async for part in request.stream():
        size += len(part)
        if size > MAX_REQUEST_BYTES:
            raise ActionRefused(413, "That is too much at once.")
        parts.append(part)
    return b"".join(parts)


def _problem(status: int, text: str, field: str | None = None, data: Any = None) -> Response:
    said = {"error": text} | {name: value for name, value in (("field", field), ("data", data)) if value is not None}
    return secured(Response(msgspec.json.encode(said), status, media_type="application/json"))
