"""Binds requests to arguments, for frameworks that do not: path, query, headers and body, by type.

A parameter that the path names comes from the path. One with an object as its type (a struct, dataclass, model,
TypedDict or dict) is the body. One that is marked ``FromHeader`` is a header. All others come from the query.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Annotated, Any, get_args, get_origin

import msgspec
from msgspec import inspect as types

from headrace.core.codec.json import Codec
from headrace.core.codec.roundtrip import Misfit
from headrace.core.job import Values
from headrace.endpoints.request import EndpointRequest, is_credential, values_of
from headrace.errors import ConfigError
from headrace.http.problems import Fault, Problem
from headrace.worker.handler import Handler

__all__ = ["FORM", "Binding", "FromHeader"]

FORM = "application/x-www-form-urlencoded"

_OBJECTS = (types.StructType, types.DataclassType, types.TypedDictType, types.DictType, types.CustomType)
_LISTS = (types.ListType, types.SetType, types.FrozenSetType, types.VarTupleType)


class FromHeader:
    """Marks a parameter that is a header: ``user: Annotated[str, FromHeader("x-user")]``."""

    def __init__(self, name: str | None = None) -> None:
        """``name``: of the header; by default that of the parameter."""
        self.name = name


class _Place:
    """The source of one argument in a request."""

    def __init__(self, source: str, name: str, hint: Any, required: bool) -> None:
        self.source, self.name, self.required = source, name, required
        base = get_args(hint)[0] if get_origin(hint) is Annotated else hint
        node = types.type_info(base)
        self.is_list = any(isinstance(one, _LISTS) for one in _flat(node))
        self.codec, self.type = Codec(base), base

    def read(self, texts: Sequence[str]) -> Any:
        """Decode the value from its texts, one or more; :raises Misfit:"""
        given: Any = list(texts) if self.is_list else texts[-1]
        try:
            return msgspec.convert(given, self.type, strict=False)
        except msgspec.ValidationError as error:
            raise Misfit(str(error).partition(" - at `")[0]) from None


def _flat(node: Any) -> list[Any]:
    if isinstance(node, types.UnionType):
        return [inner for one in node.types for inner in _flat(one)]
    return _flat(node.type) if isinstance(node, types.Metadata) else [node]


class Binding:
    """Finds the arguments of a handler in a request."""

    def __init__(self, handler: Handler, route: Collection[str], headers: Collection[str] = ()) -> None:
        """``route``: the names in its path; ``headers``: credentials that may be stored nevertheless.

        :raises ConfigError: two parameters would be the body, or a header is a credential
        """
        self.task = handler.name
        self._places: dict[str, _Place] = {}
        self._body: str | None = None
        for one in handler.parameters:
            mark = next((mark for mark in get_args(one.type)[1:] if isinstance(mark, FromHeader)), None)
            if one.name in route:
                place = _Place("path", one.name, one.type, True)
            elif mark is not None:
                name = (mark.name or one.name.replace("_", "-")).lower()
                if is_credential(name) and name not in headers:
                    raise ConfigError(
                        f"{handler.name}: the header {name} may be a credential, and would be stored with the job:"
                        f" if it is to be, say headers=[{name!r}]"
                    )
                place = _Place("header", name, one.type, one.required)
            elif _is_object(one.type):
                if self._body is not None:
                    raise ConfigError(
                        f"{handler.name}: {self._body!r} and {one.name!r} are both objects: a request has one body"
                    )
                self._body, place = one.name, _Place("body", one.name, one.type, one.required)
            else:
                place = _Place("query", one.name, one.type, one.required)
            self._places[one.name] = place
        if missing := [name for name in route if name not in self._places]:
            raise ConfigError(f"{handler.name} has no parameter for {missing[0]!r}, which stands in its path")

    @property
    def uncounted(self) -> frozenset[str]:
        """The parameters that do not count when requests with the same key are compared."""
        return frozenset(name for name, place in self._places.items() if place.source == "header")

    def arguments(
        self, asked: EndpointRequest, media: str, body: bytes, form: Callable[[bytes], Any]
    ) -> dict[str, Any]:
        """Return the arguments in a request, by name; ``media``: of its body, ``form``: decodes the pairs of a form.

        :raises Problem: 422, naming everything that does not fit
        """
        found, faults = dict[str, Any](), list[Fault]()
        given: dict[str, Values] = {
            "path": {name: (str(value),) for name, value in asked.route.items()},
            "query": values_of(asked.query),
            "header": asked.headers,
        }
        for name, place in self._places.items():
            where = f"{place.source}.{place.name}"
            try:
                if place.source == "body":
                    if body or place.required:
                        found[name] = _body(place, media, body, form)
                elif (texts := given[place.source].get(place.name)) is not None:
                    found[name] = place.read(texts)
                elif place.required:
                    raise Misfit("it is missing")
            except Misfit as error:
                field = f"{where}.{error.path}" if error.path else where
                faults.append(Fault(field, error.message))
        if faults:
            text = "; ".join(f"{one.field}: {one.message}" for one in faults)
            raise Problem(422, "invalid-payload", "The request does not fit", text, faults=faults)
        return found


def _is_object(hint: Any) -> bool:
    base = get_args(hint)[0] if get_origin(hint) is Annotated else hint
    return any(isinstance(one, _OBJECTS) for one in _flat(types.type_info(base)))


def _body(place: _Place, media: str, body: bytes, form: Callable[[bytes], Any]) -> Any:
    kind = media.partition(";")[0].strip().lower()
    if kind == FORM:
        values = values_of(form(body))
        return _converted(place, {name: texts[0] if len(texts) == 1 else list(texts) for name, texts in values.items()})
    if kind and kind != "application/json" and not kind.endswith("+json"):
        raise Misfit(f"it must be JSON or a form, not {kind}")
    try:
        return place.codec.decode(body.decode())
    except UnicodeDecodeError:
        raise Misfit("it is not UTF-8") from None


def _converted(place: _Place, given: Any) -> Any:
    try:
        return msgspec.convert(given, place.type, strict=False)
    except msgspec.ValidationError as error:
        message, _, path = str(error).partition(" - at `$")
        raise Misfit(message, path.rstrip("`").lstrip(".")) from None
