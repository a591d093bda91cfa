"""The arguments of an ``APIRouter``, as types: routers of headrace pass them on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any, TypedDict

from fastapi import params
from fastapi.routing import APIRoute
from starlette.responses import Response
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Lifespan

__all__ = ["AllRouterOptions", "RouterOptions"]


class RouterOptions(TypedDict, total=False):
    """The arguments of an ``APIRouter`` but for its dependencies."""

    prefix: str
    tags: list[str | Enum] | None
    default_response_class: type[Response]
    responses: dict[int | str, dict[str, Any]] | None
    callbacks: list[BaseRoute] | None
    routes: list[BaseRoute] | None
    redirect_slashes: bool
    default: ASGIApp | None
    dependency_overrides_provider: Any
    route_class: type[APIRoute]
    on_startup: Sequence[Callable[[], Any]] | None
    on_shutdown: Sequence[Callable[[], Any]] | None
    lifespan: Lifespan[Any] | None
    deprecated: bool | None
    include_in_schema: bool
    generate_unique_id_function: Callable[[APIRoute], str]
    strict_content_type: bool
    """Of newer versions of FastAPI."""


class AllRouterOptions(RouterOptions, total=False):
    """All arguments of an ``APIRouter``."""

    dependencies: Sequence[params.Depends] | None
