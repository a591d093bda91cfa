"""An operation of the hub: one line of the table that routes, documents, scopes and tests are made from."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from headrace.core.auth.api_keys import Scope
from headrace.hub.auth.caller import Caller

if TYPE_CHECKING:
    from headrace.hub.hub import Hub

__all__ = ["Bounded", "Do", "Operation", "OperationReply", "OperationRequest"]

Bounded = Literal["job", "batch", "webhook", "found", "made", "told", "offered", "leased", "nothing", "operator"]
"""How the key of a customer is kept to what is that customer's.

``job``, ``batch``, ``webhook``: the path names one; that of somebody else is answered like one that is not there.
``found``: a search; it finds only the customer's own. ``made``: what it stores becomes the customer's. ``told``: a live
feed; it tells only of the customer's own. ``offered``: a worker; it is offered only the customer's jobs. ``leased``: a
lease names the job; one that was not given to this key is no lease. ``nothing``: it shows no particular job of anybody.
``operator``: such a key is refused.
"""


class OperationReply(msgspec.Struct, frozen=True):
    """What a request is answered with."""

    document: Any = None
    """As JSON; None: no body. A ``Record`` is written as ``to_dict`` gives it."""
    status: int = 200
    headers: Mapping[str, str] = {}


class OperationRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request that was let in: who asks, and for what."""

    hub: Hub
    caller: Caller
    request: Request
    path: Mapping[str, str]
    query: Any
    """Of the type that the operation names."""
    body: Any
    """Of the type that the operation names."""


Do = Callable[[OperationRequest], Awaitable[OperationReply | Response]]


@dataclass(frozen=True, kw_only=True)
class Operation:
    """One operation: how it is asked for, who may, what it takes and gives, and what does it."""

    name: str = ""
    """Unique: the ``operationId`` of the OpenAPI document; empty: the name of what does it."""
    method: Literal["GET", "POST", "PUT", "PATCH", "DELETE"] = "GET"
    path: str
    """As Starlette has it, ``/api/jobs/{id}``."""
    summary: str
    scope: Scope | None
    """None: everybody, even without a key."""
    bounded: Bounded = "operator"
    do: Do
    query: type[msgspec.Struct] | None = None
    """Its parameters; those not named here are refused."""
    body: Any = None
    """The type of its JSON body; None: it has none."""
    bare: bool = False
    """It may be asked for without a body: then the defaults of its type count."""
    raw: bool = False
    """It reads the body itself, as a stream; ``media`` says of what type."""
    media: str = "application/json"
    lines: tuple[Any, Any] | None = None
    """It takes and gives lines of JSON as well (``application/x-ndjson``): the types of a line and of its answer. The
    first is None where it only gives them, to those who accept them."""
    largest: Literal["body", "bulk"] = "body"
    """Which limit its body has."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """Headers that it reads, and what for."""
    gives: Mapping[int, Any] = field(default_factory=dict)
    """Its good answers: status → the type of the document (None: no body; a string: another media type)."""
    refuses: tuple[int, ...] = ()
    """The statuses of problems that only some operations answer: 404, 409, 410, 422. All others are everybody's."""
    example: Any = None
    """A body that works."""
    answered: Any = None
    """What it is answered with."""
    path_examples: Mapping[str, Any] = field(default_factory=dict)
    live: bool = False
    """It may take long: a stream, or a wait."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", self.name or getattr(self.do, "__name__", ""))
