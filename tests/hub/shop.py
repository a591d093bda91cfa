"""An App behind a hub, with tasks whose handlers do what tests of the hub look at."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any

from headrace import App, Context, Retry

__all__ = ["Shop"]

_log = logging.getLogger("shop")


async def echo(value: Any = None) -> Any:
    return value


async def fail(why: str) -> None:
    raise ValueError(why)


async def tell(n: int) -> None:
    for number in range(1, n + 1):
        _log.warning("line %d", number)


async def stream(n: int) -> AsyncIterator[str]:
    for number in range(1, n + 1):
        yield f"item {number}"


async def stumble(ctx: Context, n: int) -> AsyncIterator[int]:
    for number in range(1, n + 1):
        yield number * ctx.attempt
    if ctx.attempt == 1:
        raise ValueError("stumbled")


class Shop:
    """An App whose handlers return, fail, tell, stream, wait and submit."""

    def __init__(self, url: str) -> None:
        self.app = app = App(url)
        self.go_on = asyncio.Event()
        """What ``wait`` and ``stubborn`` wait for."""
        self.echo, self.tell, self.stream = app.task(echo), app.task(tell), app.task(stream)
        self.fail = app.task(retry=Retry(0))(fail)
        self.stumble = app.task(retry=Retry(1, backoff="fixed", initial=0.0, jitter=False))(stumble)

        @app.task
        async def wait(ctx: Context) -> str:
            ctx.progress(50, "half")  # so that its start is on record
            await self.go_on.wait()
            return "done"

        @app.task
        async def stubborn(ctx: Context) -> None:
            ctx.progress(50, "half")
            try:
                await self.go_on.wait()
            except asyncio.CancelledError:
                await self.go_on.wait()
                raise

        @app.task
        async def family(n: int) -> None:
            for number in range(n):
                await self.echo.submit(number)

        self.wait, self.stubborn, self.family = wait, stubborn, family
