"""A small App behind a hub, with something in each room, for tests."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from headrace import App, Retry
from headrace.core.auth.api_keys import SCOPES
from headrace.hub.auth.caller import Caller
from headrace.hub.server.operation import Operation
from tests.hub.serving import Served, serving
from tests.support.apps import url_of

__all__ = ["acting_as", "small_app", "world"]


def small_app(url: str) -> App:
    """An App with the tasks that the examples of the OpenAPI document name."""
    app = App(url)

    @app.task(queue="images", priority=70)
    async def resize(image: str, width: int = 800) -> dict[str, str | int]:
        return {"image": image, "width": width}

    @app.task(retry=Retry(0))
    async def fail(why: str) -> None:
        raise ValueError(why)

    return app


@asynccontextmanager
async def world(folder: Path) -> AsyncIterator[Served]:
    """The App behind a hub, on SQLite."""
    async with serving(small_app(url_of("sqlite", folder))) as hub:
        yield hub


def acting_as(hub: Served, customer: str | None = None, *, tasks: frozenset[str] | None = None) -> None:
    """Let every request be one of a key that is bound to this customer and to these tasks."""
    caller = Caller(name="key", scopes=frozenset(SCOPES), customer=customer, tasks=tasks)

    def let_in(connection: object, operation: Operation) -> Caller:
        return caller

    hub.hub.authenticator.caller = let_in  # type: ignore[method-assign]
