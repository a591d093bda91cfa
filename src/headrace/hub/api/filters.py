"""The filters of jobs over HTTP: in an address, and in the body of an action on many."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, TypeAlias, TypeVar, cast
from uuid import UUID

import msgspec
from msgspec import Meta

from headrace.client.api.filters import Filters
from headrace.core.defaults import MAX_FILTER_VALUES, MAX_NAME_CHARACTERS
from headrace.core.status import Reason
from headrace.core.words import HEADRACE, StatusWord, Vocabulary
from headrace.errors import ConfigError
from headrace.http.problems import Fault, Problem
from headrace.hub.api.hidden_errors import hides
from headrace.hub.auth.customers import filters_of
from headrace.hub.server.operation import OperationRequest

__all__ = ["JobFilters", "SaidStatus", "filters_in"]

T = TypeVar("T")

SaidStatus = Annotated[StatusWord, Meta(min_length=1, max_length=MAX_NAME_CHARACTERS)]
"""A status in a request, in the words that the request chooses; of ours, ``in_progress`` is ``running``."""

Several: TypeAlias = T | Annotated[tuple[T, ...], Meta(max_length=MAX_FILTER_VALUES)]
"""One value, or up to 100 of which one must match; in an address the parameter is repeated."""

Moment = Annotated[datetime, Meta(tz=True)]


class JobFilters(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Which jobs. Every given field must match; a field with several values matches if one of them does."""

    status: Several[SaidStatus] = ()
    """In any case; with ``words``, a word of those, which finds all statuses that it stands for."""
    reason: Several[Reason] = ()
    task: Several[str] = ()
    queue: Several[str] = ()
    customer: Several[str] = ()
    worker: Several[UUID] = ()
    """Jobs that the worker has now."""
    fingerprint: Several[str] = ()
    """Of groups of failures."""
    tag: str | None = None
    text: Annotated[str, Meta(min_length=1)] | None = None
    """Searched in the id, the task, the payload and the error."""
    schedule: str | None = None
    parent: UUID | None = None
    """Children of this job."""
    root: UUID | None = None
    """All descendants of this job, which has no parent."""
    batch: UUID | None = None
    rerun_of: UUID | None = None
    suspect: bool = False
    """Only jobs that ran when their worker died, and may have killed it."""
    created_after: Moment | None = None
    """At this moment, or later."""
    created_before: Moment | None = None
    finished_after: Moment | None = None
    finished_before: Moment | None = None
    type: Several[str] = ()
    """The same as ``task``."""
    customer_id: Several[str] = ()
    """The same as ``customer``."""


_SAME = {"type": "task", "customer_id": "customer"}


def filters_in(ask: OperationRequest, asked: msgspec.Struct, under: str = "") -> Filters:
    """Return the filters of a request, by headrace's names and limited to the caller's customer.

    ``asked``: has all fields of ``JobFilters``, or some of them, and perhaps others that are no filters. ``under``: the
    field that it is in.

    :raises Problem: 400, it gives two values for one thing, or a word that is no status; 403, it names another customer
    """
    given: dict[str, Any] = {}
    for name in JobFilters.__struct_fields__:
        value = getattr(asked, name, None)
        if value is None or value is False or value == ():
            continue
        ours = _SAME.get(name, name)
        value = tuple(dict.fromkeys(value)) if isinstance(value, tuple) else value
        if given.setdefault(ours, value) != value:
            message = f"{name} is the same as {ours}: say it once"
            raise _malformed(name, message)
    if "status" in given:
        given |= _statuses(given["status"], given.get("reason", ()), ask.words or HEADRACE, f"{under}status")
    if "text" in given and hides(ask.hub.options, ask.caller):
        message = "errors are kept from this key, and a text is looked for in them, too"
        raise Problem(403, "forbidden", "This is not for this key", message, faults=[Fault("text", message)])
    return filters_of(ask, cast(Filters, given))


def _statuses(said: Any, reasons: Any, words: Vocabulary, field: str) -> dict[str, Any]:
    """Return the filters that the words and reasons of a request mean: each is one, or a tuple of several."""
    places = [(field, said)] if isinstance(said, str) else [(f"{field}[{n}]", one) for n, one in enumerate(said)]
    for place, word in places:
        if not words.knows(word):
            raise _malformed(place, f"Invalid value {word!r}: it is one of {', '.join(words.words())}")
    try:
        return words.filters([word for _, word in places], [reasons] if isinstance(reasons, str) else reasons)
    except ConfigError as error:
        raise _malformed(field, str(error)) from None


def _malformed(field: str, message: str) -> Problem:
    return Problem(400, "malformed", "The request cannot be understood", message, faults=[Fault(field, message)])
