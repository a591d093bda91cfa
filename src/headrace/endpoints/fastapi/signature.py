"""The signature of a handler, as FastAPI reads it and as it is stored, parameter by parameter."""

from __future__ import annotations

import inspect
from base64 import b64decode, b64encode
from collections.abc import Callable, Collection, Iterable, Mapping
from io import BytesIO
from typing import Annotated, Any, NamedTuple, get_args, get_origin

from fastapi import BackgroundTasks, Response, UploadFile, params
from fastapi.security import SecurityScopes
from fastapi.security.base import SecurityBase
from pydantic import TypeAdapter
from starlette.datastructures import Headers
from starlette.datastructures import UploadFile as StarletteUploadFile
from starlette.requests import HTTPConnection

from headrace.core import defaults
from headrace.core.codec.json import Codec, Unsupported
from headrace.endpoints.dependencies import Plan, in_worker, plan_of
from headrace.endpoints.request import is_credential
from headrace.endpoints.submit import Misused
from headrace.endpoints.task_adapter import Adapter, adapted
from headrace.errors import ConfigError
from headrace.http.problems import Problem
from headrace.worker.handler import is_context, read_hints

__all__ = ["Signature", "read_signature", "refuse_secrets"]

_OF_THE_REQUEST = (HTTPConnection, Response, BackgroundTasks, SecurityScopes)
"""Types that do not outlive the request."""


class Signature(NamedTuple):
    """A handler as FastAPI and as a worker see it."""

    seen: tuple[inspect.Parameter, ...]
    """The parameters that FastAPI reads the request into."""
    adapters: Mapping[str, Adapter]
    depends: frozenset[str]
    """Those that dependencies return during the request."""
    uncounted: frozenset[str]
    """Those that do not count when requests with one key are compared: of dependencies, headers and cookies."""
    run: Callable[..., Any]
    """The function that a worker calls."""
    returns: Any
    """The return annotation; ``inspect.Signature.empty``: there is none."""

    def stored(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments for the task."""
        if not self.adapters:
            return dict(values)
        return {name: self.adapters[name].store(one) if name in self.adapters else one for name, one in values.items()}


def read_signature(fn: Callable[..., Any], headers: Collection[str], cookies: Collection[str]) -> Signature:
    """Return the signature of a handler; ``headers``, ``cookies``: credentials that may be stored nevertheless.

    :raises ConfigError: naming the parameter that cannot be stored, and the remedy
    """
    hints, name = read_hints(fn), fn.__qualname__
    parameters = list(inspect.signature(fn).parameters.values())
    takes_context = bool(parameters) and is_context(parameters[0], hints)
    typed = {one.name: one.replace(annotation=hints.get(one.name, one.empty)) for one in parameters[takes_context:]}
    plans, adapters, depends, uncounted = dict[str, Plan](), dict[str, Adapter](), set[str](), set[str]()
    for one in typed.values():
        where = f"{name}: parameter {one.name!r}"
        if isinstance(one.annotation, str):
            raise ConfigError(f"{where}: {one.annotation} is not known where the module is read: import it there")
        base, marks = _parts(one)
        if (mark := in_worker(one.annotation, one.default)) is not None:
            plans[one.name] = plan_of(mark.dependency)
            continue
        _refuse(where, one.name, base, marks, headers, cookies)
        if any(isinstance(mark, params.Depends) for mark in marks):
            depends.add(one.name)
        if any(isinstance(mark, params.Depends | params.Header | params.Cookie) for mark in marks):
            uncounted.add(one.name)
        remedy = "mark it as made in the worker, as in Annotated[..., InWorker(...)]"
        if (adapter := _adapter(base, where, remedy)) is not None:
            adapters[one.name] = adapter
    returns = hints.get("return", inspect.Signature.empty)
    if isinstance(returns, type) and issubclass(returns, Response):
        raise ConfigError(f"{name}: a job returns its result, which is stored, not a {returns.__name__}")
    result = (
        None
        if returns is inspect.Signature.empty or inspect.isasyncgenfunction(fn)
        else _adapter(returns, f"{name}: return annotation", "return something that has a JSON form")
    )
    run = adapted(fn, typed, returns, takes_context=takes_context, adapters=adapters, plans=plans, result=result)
    seen = tuple(one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in typed.values() if one.name not in plans)
    return Signature(seen, adapters, frozenset(depends), frozenset(uncounted), run, returns)


def _parts(one: inspect.Parameter) -> tuple[Any, list[Any]]:
    """Return the type of a parameter, and FastAPI's marks on it."""
    hint = one.annotation
    marks = [one.default]
    if get_origin(hint) is Annotated:
        hint, *more = get_args(hint)
        marks += more
    return (Any if hint is inspect.Parameter.empty else hint), marks


def _refuse(
    where: str, name: str, base: Any, marks: Iterable[Any], headers: Collection[str], cookies: Collection[str]
) -> None:
    """Refuse a parameter that cannot, or should not, be stored."""
    if isinstance(base, type) and issubclass(base, _OF_THE_REQUEST):
        text = "does not outlive the request: take what you need of it by Header, Query or Depends"
        raise ConfigError(f"{where}: a {base.__name__} {text}")
    for mark in marks:
        dependency: Any = getattr(mark, "dependency", None)
        if isinstance(dependency, SecurityBase):
            text = "would store credentials with the job: depend on something that gives the user instead"
            raise ConfigError(f"{where}: {text}, or say JobRouter(identity=...)")
        if isinstance(mark, params.Header):
            header = mark.alias or name.replace("_", "-")
            if is_credential(header) and header.lower() not in headers:
                raise ConfigError(
                    f"{where}: the header {header} may be a credential, and would be stored with the job:"
                    f" if it is to be, say JobRouter(headers=[{header!r}])"
                )
        if isinstance(mark, params.Cookie):
            cookie = mark.alias or name
            if cookie not in cookies:
                raise ConfigError(
                    f"{where}: the cookie {cookie} would be stored with the job: if it is to be, say"
                    f" JobRouter(cookies=[{cookie!r}])"
                )


def _adapter(base: Any, where: str, remedy: str) -> Adapter | None:
    """Return how to store a type that headrace cannot store by itself; None: it can.

    :raises ConfigError: pydantic cannot, either
    """
    if _has_uploads(base):
        return Adapter(_store_uploads, _load_uploads)
    try:
        Codec(base)
    except Unsupported as error:
        try:
            adapter: TypeAdapter[Any] = TypeAdapter(base)
            schema = adapter.json_schema()
        except Exception:  # pydantic raises various errors for a type that it does not know
            raise ConfigError(f"{where} cannot be stored with a job ({error}): {remedy}") from None
        refuse_secrets(where, schema)
        return Adapter(lambda value: _dumped(adapter, value, where), adapter.validate_python)
    return None


def _dumped(adapter: TypeAdapter[Any], value: Any, where: str) -> Any:
    stored = adapter.dump_python(value, mode="json")
    if adapter.validate_python(stored) != value:
        raise Misused(f"{where}: {type(value).__name__} does not come back from JSON as it was")
    return stored


def refuse_secrets(name: str, schema: Mapping[str, Any]) -> None:
    """Refuse types that mask themselves when written: the handler would get asterisks."""
    if _has_secret(schema):
        raise ConfigError(
            f"{name}: a SecretStr is written as stars, so the handler would never see it, and a job keeps no secrets:"
            " take str if it may be stored, or have it made in the worker"
        )


def _has_secret(node: Any) -> bool:
    if isinstance(node, Mapping):
        return node.get("writeOnly") is True or any(map(_has_secret, node.values()))
    return isinstance(node, list) and any(map(_has_secret, node))


# -- uploads


def _has_uploads(base: Any) -> bool:
    if isinstance(base, type) and issubclass(base, StarletteUploadFile):
        return True
    return any(_has_uploads(one) for one in get_args(base))


def _store_uploads(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_store_uploads(one) for one in value]
    if not isinstance(value, StarletteUploadFile):
        return value
    size, most = value.size or 0, defaults.MAX_PAYLOAD_BYTES * 3 // 4
    if size > most:
        text = f"the file {value.filename!r} has {size} bytes, and a job keeps {most}: store it, and send a reference"
        raise Problem(413, "too-large", "The file is too large", text)
    value.file.seek(0)
    data = b64encode(value.file.read()).decode()
    return {"filename": value.filename, "headers": dict(value.headers), "data": data}


def _load_uploads(value: Any) -> Any:
    if isinstance(value, list):
        return [_load_uploads(one) for one in value]
    if not isinstance(value, dict):
        return value
    data = b64decode(value["data"])
    return UploadFile(BytesIO(data), size=len(data), filename=value["filename"], headers=Headers(value["headers"]))
