"""An App whose jobs do what a test tells them to, when it tells them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator

from headrace import App, Context, Retry

__all__ = ["Doing"]

_log = logging.getLogger("tests.doing")


class Doing:
    """Tasks that say what they do, and go on when the gate is opened."""

    def __init__(self, url: str) -> None:
        self.app = App(url)
        self.gate = asyncio.Event()

        @self.app.task
        async def work(ctx: Context, n: int) -> int:
            _log.warning("begun with %d", n)
            ctx.progress(40, "under way")
            await self.gate.wait()
            _log.warning("done")
            return 2 * n

        @self.app.task
        async def quick(n: int) -> int:
            return n

        @self.app.task(retry=Retry(max_retries=1, backoff=[0.01]))
        async def fail(why: str) -> None:
            raise ValueError(why)

        @self.app.task
        async def count(ctx: Context, to: int) -> AsyncIterator[int]:
            for number in range(to):
                yield number
            await self.gate.wait()

        @self.app.task
        async def flood(ctx: Context, items: int) -> AsyncIterator[str]:
            for _ in range(items):
                yield "x" * 20_000

        self.flood = flood
        self.work, self.quick, self.fail, self.count = work, quick, fail, count
