"""A small shop behind a hub, with a worker and a browser: what the tests of the dashboard look at."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from playwright.async_api import Browser, BrowserContext, Page

from headrace import App, Context, Retry
from headrace.core.limits.rate import Rate
from headrace.hub import HubOptions
from headrace.worker.worker import Worker
from tests.hub.serving import Served, serving
from tests.support.screens.browser import hear

__all__ = ["Shop", "failed", "looking", "opened", "shop_app", "sure", "tasks_of"]


@dataclass
class Shop:
    """What is looked at, and how its handlers are told what to do."""

    app: App
    served: Served
    worker: Worker
    browser: Browser
    mended: dict[str, bool]
    """Whether ``fragile`` works by now."""
    heard: list[str] = field(default_factory=list)
    """What pages complained of."""

    @property
    def address(self) -> str:
        """Where the dashboard is."""
        return self.served.address


def tasks_of(app: App, mended: dict[str, bool]) -> None:
    """Give an App the tasks of the shop."""
    app.queue("mail", max_concurrency=20)
    app.rate("stripe", Rate(100, per=60))

    @app.task
    async def add(a: int, b: int = 1) -> int:
        logging.getLogger("shop").warning("adding %d and %d", a, b)
        return a + b

    @app.task(queue="mail", retry=Retry(0))
    async def fragile(why: str) -> str:
        if mended.get("yes"):
            return "mended"
        raise ValueError(why)

    @app.task(retry=Retry(2, backoff=(0.0,)))
    async def hesitant(ctx: Context, number: int) -> str:
        if ctx.attempt == 1:
            raise ConnectionError(f"not yet, {number}")
        return "done"

    @app.task(queue="video")
    async def steady(ctx: Context, until: float = 100.0) -> str:
        for step in range(100_000):
            ctx.progress(min(until, 1 + step / 4), f"frame {step}")
            await asyncio.sleep(0.02)
        return "done"

    @app.task(concurrency_key="customer:{who}", max_per_key=1, max_concurrency=3, rates=["stripe"])
    async def charge(ctx: Context, who: int, cents: int) -> dict[str, int]:
        await ctx.step("pay", _pay, cents)
        if cents == 0:
            await asyncio.sleep(3600)
        return {"who": who, "cents": cents}

    @app.task
    async def family(ctx: Context, members: int) -> int:
        handles = [await add.submit(number) for number in range(members)]
        return sum([await one.result(timeout=30) for one in handles])

    _talkers(app)


def _talkers(app: App) -> None:
    """Tasks that say much."""

    @app.task
    async def lines(count: int) -> AsyncIterator[str]:
        for number in range(count):
            yield f"line {number}"

    @app.task
    async def chatty(count: int) -> None:
        for number in range(count):
            logging.getLogger("shop").warning("line %d", number)

    @app.task
    async def noisy(ctx: Context, what: str) -> AsyncIterator[str]:
        logging.getLogger("shop").warning("%s", what)
        ctx.progress(50, what, step=what)
        await ctx.step(what, _said, what)
        yield what
        await asyncio.sleep(3600)


async def _pay(cents: int) -> str:
    return f"receipt {cents}"


async def _said(what: str) -> str:
    return what


def shop_app(url: str, mended: dict[str, bool] | None = None) -> App:
    """An App with the tasks of the shop."""
    app = App(url)
    tasks_of(app, {} if mended is None else mended)
    return app


@asynccontextmanager
async def opened(url: str, browser: Browser) -> AsyncIterator[Shop]:
    """The shop, open: a hub without keys, and a worker."""
    mended: dict[str, bool] = {}
    app = shop_app(url, mended)
    options = HubOptions(maintenance=False, webhooks=False, access_log=False)
    async with serving(app, options) as served:
        worker = app.worker(concurrency=8, grace=0.1)
        async with worker:
            yield Shop(app, served, worker, browser, mended)


@asynccontextmanager
async def looking(shop: Shop, path: str = "/", **settings: Any) -> AsyncIterator[Page]:
    """A page of the dashboard; whatever it complains of is kept."""
    context: BrowserContext = await shop.browser.new_context(
        **({"viewport": {"width": 1280, "height": 800}} | settings)
    )
    page = await context.new_page()
    page.set_default_timeout(30_000)
    hear(page, lambda text: shop.heard.append(f"{path}: {text}"))
    page.on("pageerror", lambda error: shop.heard.append(f"{path}: {error}"))
    page.on("dialog", lambda dialog: shop.heard.append(f"{path}: a dialog says {dialog.message}"))
    try:
        await page.goto(shop.address + path)
        yield page
    finally:
        await context.close()


async def failed(shop: Shop, why: str, count: int = 1) -> list[Any]:
    """Jobs that have failed."""
    handles = await shop.app.tasks["fragile"].map([(why,)] * count)
    for handle in handles:
        async for _ in handle.watch():
            pass
    return handles


async def sure(page: Page, word: str) -> None:
    """Say yes to the question that the page asks."""
    await page.locator("#sure").get_by_role("button", name=re.compile(f"^{word}")).click()
