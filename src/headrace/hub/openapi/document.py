"""The OpenAPI 3.1 document, made from the table of operations and from the types that they take and give."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Sequence
from functools import cache
from importlib.metadata import version
from threading import Lock
from types import UnionType
from typing import Any, get_args

import msgspec
from starlette.responses import Response

from headrace.core.status import Status
from headrace.core.words import Words
from headrace.http.problems import PAGE, ProblemDetails
from headrace.hub.openapi.field_docs import field_notes
from headrace.hub.server.operation import WORDS, Bounded, Operation, OperationRequest

__all__ = ["OPERATIONS", "document", "problems_of"]

_REF = "#/components/schemas/{name}"

_STATUS = {"$ref": _REF.format(name=Status.__name__)}

_LINES = "application/x-ndjson"

_GENERIC = re.compile(r"(?:Listed_(?P<listed>\w+)|(?P<of_any>\w+)_Any)_")
"""The names that msgspec gives to a list of a type, and to a generic type with Any."""

_PROBLEMS: dict[int, tuple[str, str, str]] = {
    400: ("malformed", "The request cannot be understood", "there is no parameter 'colour' here: none"),
    401: ("key", "A key is needed", "send a key, as in Authorization: Bearer hr_…"),
    403: ("scope", "The key lacks a scope", "this needs the scope 'act', the key 'ci' has 'read'"),
    404: ("not-found", "There is no such thing", "no job 019a8b41-7d20-7f0a-9b1c-2f6f0a3f1f52"),
    405: ("method", "This method is not for this path", "PUT /api/version"),
    408: ("too-slow", "The body did not come in time", "it must come within 30 s"),
    409: ("refused", "The lifecycle refuses this", "a job that is completed cannot be cancelled"),
    410: ("gone", "The job is gone", "ended jobs are not kept for as long as that"),
    413: ("too-large", "The body is too large", "the body may have 2097152 bytes"),
    415: ("media-type", "The body must be JSON", "send it with Content-Type: application/json"),
    422: ("invalid-payload", "The payload does not fit the task", "resize: width: Expected `int`, got `str`"),
    429: ("too-many", "Too many", "this key may submit 100 jobs a second"),
    503: ("unavailable", "The store cannot be reached", "the store cannot be reached; try again"),
}
"""Every problem that a reply may carry: its kind, its title, and an example of its detail."""

_BOUNDED: dict[Bounded, str] = {
    "job": "For a key with a customer, jobs of others are not there.",
    "batch": "For a key with a customer, batches with jobs of others are not there.",
    "webhook": "For a key with a customer, webhooks of others are not there.",
    "found": "A key with a customer finds only what is that customer's.",
    "made": "What a key with a customer makes is that customer's.",
    "told": "A key with a customer is told only of what is that customer's.",
    "offered": "A worker with the key of a customer is offered only that customer's jobs.",
    "leased": "",
    "nothing": "",
    "operator": "Not for keys with a customer.",
}

_INTRODUCTION = """Durable jobs over HTTP. Bodies are JSON, times are RFC 3339, problems are `application/problem+json`
(RFC 9457). A hub with keys wants one with each request: `Authorization: Bearer hr_…`. Programs that follow
many jobs open a WebSocket at `/ws`, with a key of the scope `read`."""


def problems_of(operation: Operation) -> list[int]:
    """Return the statuses of the problems with which an operation may reply."""
    found = {400, 405, 503, *operation.refuses}
    if operation.scope is not None:
        found |= {401, 403, 429}
    if "{" in operation.path:
        found.add(404)  # also for a name that no path can hold, such as one with a line feed
    if operation.method != "GET":
        found.add(415)  # on a hub without keys: a page of another site cannot send JSON without consent
    if operation.body is not None or operation.raw:
        found |= {408, 413, 415}
    return sorted(found)


def document(operations: Sequence[Operation], *, root_path: str = "", keyed: bool = True) -> dict[str, Any]:
    """Return the document of these operations; ``keyed``: whether the hub needs keys."""
    schemas = _Schemas(operations)
    paths: dict[str, dict[str, Any]] = {}
    for operation in operations:
        one = _operation(operation, schemas)
        if keyed and operation.scope is not None:
            one["security"] = [{"key": []}]
        paths.setdefault(_path(operation), {})[operation.method.lower()] = one
    components: dict[str, Any] = {
        "schemas": schemas.components,
        "responses": {f"Problem{status}": _problem(status) for status in _PROBLEMS},
    }
    if keyed:
        what = "A key, as `headrace keys create` prints it."
        components["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer", "description": what}}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "headrace",
            "version": version("headrace"),
            "summary": "Durable jobs over HTTP",
            "description": " ".join(_INTRODUCTION.split()),
            "license": {"name": "MIT", "identifier": "MIT"},
        },
        "servers": [{"url": root_path or "/"}],
        "tags": [{"name": name} for name in sorted(dict.fromkeys(map(_tag, operations)), key=_TAGS.index)],
        "paths": paths,
        "components": components,
    }


class _Schemas:
    """The JSON schemas of all types that operations name."""

    def __init__(self, operations: Sequence[Operation]) -> None:
        said = [kind for one in operations for kind in (one.query, one.body, *(one.lines or ()), *one.gives.values())]
        kinds = [kind for one in (*said, ProblemDetails) for kind in _alternatives(one)]
        self._kinds = [kind for kind in kinds if kind is not None and not isinstance(kind, str)]
        made = msgspec.json.schema_components(self._kinds, ref_template=_REF)
        found, components = _generated(msgspec.json.decode(msgspec.json.encode(made).replace(b"``", b"`")))
        self.components: dict[str, Any] = {_plain(name): schema for name, schema in components.items()}
        for name, schema in self.components.items():
            schema["title"] = name  # generators name a type by its title
        for kind in self._kinds:
            self.components.get(getattr(kind, "__name__", ""), {}).update(getattr(kind, "BESIDES", {}))
        notes = field_notes(self._kinds)
        for name, schema in self.components.items():
            for field, note in notes.get(name, {}).items():
                if field in schema.get("properties", {}):
                    schema["properties"][field] = _noted(schema["properties"][field], note)
        self._found: list[dict[str, Any]] = found
        self.queries = {
            one.name: self.components[self.of(one.query)["$ref"].rpartition("/")[2]]
            for one in operations
            if one.query is not None
        }
        # A type that is used only for parameters is not a component of its own.
        documents = msgspec.json.encode(list(self.components.values())).decode()
        for kind in {one.query for one in operations if one.query is not None}:
            ref = self.of(kind)["$ref"]
            if f'"{ref}"' not in documents:
                self.components.pop(ref.rpartition("/")[2], None)

    def of(self, kind: Any) -> dict[str, Any]:
        """Return the schema of a type that an operation names."""
        if len(kinds := _alternatives(kind)) > 1:
            return {"anyOf": [self.of(one) for one in kinds]}
        return dict(self._found[next(place for place, one in enumerate(self._kinds) if one is kind or one == kind)])


def _alternatives(kind: Any) -> tuple[Any, ...]:
    """Return the alternatives of a union; msgspec distinguishes them only where they are tagged."""
    return get_args(kind) if isinstance(kind, UnionType) else (kind,)


def _plain(name: str) -> str:
    """Return the name of a component as a plain word: mostly the name of the class, without what msgspec adds."""
    if generic := _GENERIC.fullmatch(name):
        return f"{generic['listed']}List" if generic["listed"] else generic["of_any"]
    return name


def _generated(schema: Any) -> Any:
    """Return msgspec's schema with plain names, in a form that client generators understand fully."""
    match schema:
        case dict():
            made = {key: _generated(value) for key, value in schema.items()}
            # A tuple of equal items is an array of that length: some generators reject one that has no further items.
            first = made.get("prefixItems")
            if first and made.get("items") is False and all(one == first[0] for one in first):
                del made["prefixItems"]
                made["items"] = first[0]
            # A schema without limits says so: some generators reject an array without items, and take an object without
            # properties for an empty one.
            if made.get("type") == "array" and "prefixItems" not in made:
                made.setdefault("items", {})
            if made.get("type") == "object" and "properties" not in made:
                made.setdefault("additionalProperties", True)
            # An omitted filter is empty: some generators would send that default, as the text "[]".
            if "anyOf" in made and made.get("default") == []:
                del made["default"]
            # Where a client asks for other words, a status is one of those.
            if made == _STATUS:
                return {"anyOf": [_STATUS, {"type": "string"}]}
            return made
        case list():
            return [_generated(one) for one in schema]
        case str() if schema.startswith(_REF.format(name="")):
            return _REF.format(name=_plain(schema.rpartition("/")[2]))
        case _:
            return schema


def _noted(schema: dict[str, Any], note: str) -> dict[str, Any]:
    return {**schema, "description": note}


def _path(operation: Operation) -> str:
    return re.sub(r"\{(\w+):\w+\}", r"{\1}", operation.path)


_TAGS = (
    "jobs",
    "batches",
    "schedules",
    "queues",
    "limits",
    "rates",
    "tasks",
    "workers",
    "work",
    "failures",
    "figures",
    "events",
    "webhooks",
    "keys",
    "hub",
)
"""The parts of the document, in the order in which readers need them."""


def _tag(operation: Operation) -> str:
    of = operation.path.removeprefix("/api/").partition("/")[0]
    return "figures" if of in ("stats", "charts") else of if of in _TAGS else "hub"


def _operation(operation: Operation, schemas: _Schemas) -> dict[str, Any]:
    scope = f"Needs the scope `{operation.scope}`." if operation.scope else ""
    made: dict[str, Any] = {
        "operationId": operation.name,
        "summary": operation.summary,
        "description": " ".join(filter(None, (scope, _BOUNDED[operation.bounded]))) or operation.summary,
        "tags": [_tag(operation)],
    }
    if parameters := [*_in_path(operation), *_in_query(operation, schemas), *_in_headers(operation)]:
        made["parameters"] = parameters
    if operation.live:
        made["x-live"] = True
    if operation.body is not None or operation.raw:
        made["requestBody"] = _body(operation, schemas)
    made["responses"] = {
        **{str(status): {"$ref": f"#/components/responses/Problem{status}"} for status in problems_of(operation)},
        **{str(status): _good(operation, status, kind, schemas) for status, kind in operation.gives.items()},
    }
    made["responses"] = dict(sorted(made["responses"].items()))
    return made


def _in_path(operation: Operation) -> Iterable[dict[str, Any]]:
    for name in re.findall(r"\{(\w+)", operation.path):
        is_uuid = name.endswith("id") and operation.bounded != "webhook"  # ids of webhooks begin with wh_
        schema = {"type": "string", "minLength": 1} | ({"format": "uuid"} if is_uuid else {})
        one = {"name": name, "in": "path", "required": True, "schema": schema}
        if name in operation.path_examples:
            one["example"] = operation.path_examples[name]
        yield one


def _in_query(operation: Operation, schemas: _Schemas) -> Iterable[dict[str, Any]]:
    schema = schemas.queries.get(operation.name, {})
    for name, property in schema.get("properties", {}).items():
        kind = _given({key: value for key, value in property.items() if key != "description"})
        one = {"name": name, "in": "query", "required": name in schema.get("required", ()), "schema": kind}
        if "description" in property:
            one["description"] = property["description"]
        yield one
    if operation.has_statuses:
        kind = {"type": "string", "enum": list(get_args(Words))}
        yield {"name": WORDS, "in": "query", "required": False, "schema": kind, "description": _IN_WORDS}


_IN_WORDS = "The words for statuses, in the request and in the reply: ours, or those of another design."


def _given(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a parameter that is given: a client omits it, but never sends null."""
    if schema.get("default", ...) is None:
        schema = {name: value for name, value in schema.items() if name != "default"}
    kinds = [kind for kind in schema.get("anyOf", ()) if kind != {"type": "null"}]
    if not kinds:
        return schema
    rest = {name: value for name, value in schema.items() if name != "anyOf"}
    return {**rest, **kinds[0]} if len(kinds) == 1 else {**rest, "anyOf": kinds}


def _in_headers(operation: Operation) -> Iterable[dict[str, Any]]:
    for name, what in operation.headers.items():
        yield {"name": name, "in": "header", "required": False, "schema": {"type": "string"}, "description": what}


def _body(operation: Operation, schemas: _Schemas) -> dict[str, Any]:
    schema = schemas.of(operation.body) if operation.body is not None else {"type": "string"}
    content: dict[str, Any] = {"schema": schema}
    if operation.example is not None:
        content["example"] = operation.example
    contents = {operation.media: content}
    if operation.lines is not None and operation.lines[0] is not None:
        contents[_LINES] = _lines(operation.lines[0], operation.example)
    return {"required": not operation.bare, "content": contents}


def _lines(kind: Any, example: Any) -> dict[str, Any]:
    """Return the description of lines: OpenAPI 3.1 cannot state the type of each. The example is a list of lines."""
    listed = next((value for value in dict(example or {}).values() if isinstance(value, list)), [])
    text = "".join(msgspec.json.encode(one).decode() + "\n" for one in listed)
    return {"schema": {"type": "string", "description": f"One `{kind.__name__}` on each line."}, "example": text}


def _good(operation: Operation, status: int, kind: Any, schemas: _Schemas) -> dict[str, Any]:
    answer: dict[str, Any] = {"description": _WORDS.get(status, "Done")}
    if kind is None:
        return answer
    media, schema = (kind, {"type": "string"}) if isinstance(kind, str) else ("application/json", schemas.of(kind))
    content: dict[str, Any] = {"schema": schema}
    if operation.answered is not None and status == next(iter(operation.gives)):
        content["example"] = operation.answered
    contents = {media: content}
    if operation.lines is not None:
        contents[_LINES] = _lines(operation.lines[1], operation.answered)
    return answer | {"content": contents}


_WORDS = {
    200: "As asked",
    201: "Made",
    202: "It will be done",
    204: "Done; there is nothing to tell",
    304: "As it was",
}


def _problem(status: int) -> dict[str, Any]:
    kind, title, detail = _PROBLEMS[status]
    example = {"type": PAGE + kind, "title": title, "status": status, "detail": detail}
    schema = {"$ref": _REF.format(name=ProblemDetails.__name__)}
    answer: dict[str, Any] = {
        "description": title,
        "content": {"application/problem+json": {"schema": schema, "example": example}},
    }
    if status in (429, 503):
        what = {"description": "Seconds after which it is worth another try", "schema": {"type": "string"}}
        answer["headers"] = {"Retry-After": what}
    return answer


# -- the document and the page as operations


_making = Lock()


def _encoded(root_path: str, keyed: bool) -> bytes:
    with _making:  # once, however many request it meanwhile
        return _made(root_path, keyed)


@cache
def _made(root_path: str, keyed: bool) -> bytes:
    from headrace.hub.operations import OPERATIONS as ALL  # which includes these

    return msgspec.json.encode(document(ALL, root_path=root_path, keyed=keyed))


async def openapi(ask: OperationRequest) -> Response:
    """Return the document of this hub."""
    # In a thread: it takes almost a second, in which other requests are served.
    data = await asyncio.to_thread(_encoded, ask.hub.options.root_path, ask.hub.authenticator.keyed)
    return Response(data, media_type="application/json", headers={"Cache-Control": "no-cache"})


OPERATIONS = (
    Operation(
        path="/openapi.json",
        summary="This document: every operation, in OpenAPI 3.1",
        scope=None,
        bounded="nothing",
        do=openapi,
        gives={200: dict[str, Any]},
        answered={"openapi": "3.1.0", "info": {"title": "headrace", "version": "0.1.0"}, "paths": {}},
    ),
)
