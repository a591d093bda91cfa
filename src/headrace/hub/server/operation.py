"""An operation of the hub: one row of the table that routes, documents, scopes and tests are made from."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, Literal, get_args, get_type_hints

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from headrace.core.auth.api_keys import Scope
from headrace.core.status import Status
from headrace.core.words import StatusWord, Vocabulary
from headrace.http.sse import MEDIA as EVENTS
from headrace.hub.auth.caller import Caller

if TYPE_CHECKING:
    from headrace.hub.hub import Hub

__all__ = ["WORDS", "Bounded", "Do", "Operation", "OperationReply", "OperationRequest", "operations_of"]

WORDS = "words"
"""The parameter that chooses the words for statuses."""

Bounded = Literal["job", "batch", "webhook", "found", "made", "told", "offered", "leased", "nothing", "operator"]
"""How a customer's key is limited to what belongs to that customer.

``job``, ``batch``, ``webhook``: the path names one; another customer's gets the reply of a missing one. ``found``: a
search; it finds only the customer's jobs. ``made``: what it stores belongs to the customer. ``told``: a live feed; it
sends only the customer's jobs. ``offered``: a worker; it is offered only the customer's jobs. ``leased``: a lease names
the job; a lease of another key is refused. ``nothing``: it shows no particular job. ``operator``: such a key is
refused.
"""


class OperationReply(msgspec.Struct, frozen=True):
    """The reply to a request."""

    document: Any = None
    """Encoded as JSON; None: no body. A ``Record`` is written as ``to_dict`` returns it."""
    status: int = 200
    headers: Mapping[str, str] = {}


class OperationRequest(msgspec.Struct, frozen=True, kw_only=True):
    """An authorised request: its caller and its decoded content."""

    hub: Hub
    caller: Caller
    request: Request
    path: Mapping[str, str]
    query: Any
    """Of the type that the operation names."""
    body: Any
    """Of the type that the operation names."""
    words: Vocabulary | None = None
    """The words in which it names statuses, and wants them; None: it does not say."""


Do = Callable[[OperationRequest], Awaitable[OperationReply | Response]]


@dataclass(frozen=True, kw_only=True)
class Operation:
    """One operation: its route, its scope, what it takes and gives, and the function that serves it."""

    name: str = ""
    """Unique: the ``operationId`` of the OpenAPI document; empty: the name of what does it."""
    method: Literal["GET", "POST", "PUT", "PATCH", "DELETE"] = "GET"
    path: str
    """In Starlette's form, ``/api/jobs/{id}``."""
    summary: str
    scope: Scope | None
    """None: no key is needed."""
    bounded: Bounded = "operator"
    do: Do
    query: type[msgspec.Struct] | None = None
    """Its parameters; unknown ones are refused."""
    body: Any = None
    """The type of its JSON body; None: it has none."""
    decode: Callable[[bytes], Any] | None = None
    """Decodes its body, where more than the document of its type is made of it."""
    bare: bool = False
    """Its body may be missing: then the defaults of its type count."""
    raw: bool = False
    """It reads the body itself, as a stream; ``media`` says of what type."""
    media: str = "application/json"
    lines: tuple[Any, Any] | None = None
    """It takes and gives lines of JSON as well (``application/x-ndjson``): the types of a line and of its reply. The
    first is None where it only gives them, to clients that accept them."""
    largest: Literal["body", "bulk"] = "body"
    """Which limit applies to its body."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """Headers that it reads, each with its purpose."""
    gives: Mapping[int, Any] = field(default_factory=dict)
    """Its successful replies: status → the type of the document (None: no body; a string: another media type)."""
    refuses: tuple[int, ...] = ()
    """The statuses of problems that only some operations have: 404, 409, 410, 422. Every operation has the others."""
    example: Any = None
    """A valid body."""
    answered: Any = None
    """The reply to the example."""
    path_examples: Mapping[str, Any] = field(default_factory=dict)
    live: bool = False
    """It may take long: it streams or waits."""
    words: bool = False
    """It takes ``?words=`` though its types have no status: it has them in a text, or is about jobs, so that a client
    may send the parameter with each of its requests about them."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", self.name or getattr(self.do, "__name__", ""))

    @cached_property
    def has_statuses(self) -> bool:
        """Whether it shows statuses, or finds jobs by them: then ``?words=`` chooses the words for them."""
        kinds = (self.query, self.body, *(self.lines or ()), *self.gives.values())
        return self.words or any(kind == EVENTS or _has_statuses(kind) for kind in kinds)

    @cached_property
    def parameters(self) -> tuple[str, ...]:
        """The names of its parameters."""
        own = () if self.query is None else self.query.__struct_encode_fields__
        return (*own, WORDS) if self.has_statuses else own


def _has_statuses(kind: Any) -> bool:
    """Return whether documents of this type have statuses in them."""
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return _struct_has_statuses(kind)
    return kind is Status or kind is StatusWord or any(map(_has_statuses, get_args(kind)))


@cache
def _struct_has_statuses(kind: type[msgspec.Struct]) -> bool:
    return any(map(_has_statuses, get_type_hints(kind, include_extras=True).values()))


def operations_of(
    path: str, path_examples: Mapping[str, Any], given: Any, answered: Any, **defaults: Any
) -> Callable[..., Operation]:
    """Return a function that makes the operations on one thing; by default they reply with ``given``.

    ``path``: of the thing; ``answered``: an example of ``given``; ``defaults``: of other fields. A DELETE has no
    document in its reply.
    """

    def operation(route: str, summary: str, scope: Scope, do: Do, **fields: Any) -> Operation:
        """``route``: the method and the rest of the path, as in ``POST /pause``; ``fields``: others of an operation."""
        method, _, rest = route.partition(" ")
        reply = {"gives": {204: None}} if method == "DELETE" else {"gives": {200: given}, "answered": answered}
        said = {"method": method, "path": path + rest, "summary": summary, "scope": scope, "do": do}
        return Operation(**defaults | {"path_examples": path_examples} | said | reply | fields)

    return operation
