"""A walk past every page of the dashboard, light and dark, on a laptop and on a phone.

For the tests, and for the pictures in the docs: the list of pages is here, and nowhere else.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Literal

from playwright.async_api import Browser, Page

from headrace import App
from tests.support.screens.browser import hear
from tests.support.until import until

__all__ = ["OPENED", "PAGES", "SHOWN", "Scheme", "Stop", "looks", "opened_at", "places_of", "walk"]

Scheme = Literal["light", "dark"]
SCHEMES: tuple[Scheme, ...] = ("light", "dark")
SIZES = {"laptop": (1280, 800), "phone": (390, 844)}
PAGES = (
    *("overview", "jobs", "job", "running", "family", "dead", "queues", "queue", "limits", "limit"),
    *("tasks", "task", "schedules", "schedule", "batches", "batch", "workers", "worker", "find", "log"),
    *("webhooks", "webhook", "keys", "audit"),
)
"""Every page that shows something, by the name of its picture."""
LOGIN = "login"
OPENED = {
    "confirm": ("running", "button", "Cancel"),
    "form": ("job", "button", "Rerun…"),
    "selection": ("jobs", "checkbox", "Select all jobs on this page"),
    "jump": ("overview", "key", "Control+k"),
    "shortcuts": ("overview", "key", "?"),
}
"""What opens on a page: where, and what opens it."""
SHOWN = (*PAGES, *OPENED, LOGIN)
"""All stops, by the names of their pictures."""


@dataclass(frozen=True)
class Stop:
    """A page, as one sees it."""

    name: str
    scheme: Scheme
    size: str
    page: Page
    status: int

    @property
    def label(self) -> str:
        """Of its picture, and of what is wrong with it."""
        return f"{self.name}-{self.scheme}-{self.size}"


async def places_of(app: App) -> dict[str, str]:
    """Where each page is, in a store in which ``docs.scene.acted_out`` has happened."""

    async def newest(task: str) -> str:
        return str((await app.jobs.list(task=task)).items[0].id)

    shaky = (await app.jobs.list(task="send_mail", text="shaky")).items[-1]
    hook = (await app.webhooks.list() or [(await app.webhooks.add("https://shop.example/hooks")).webhook])[0]
    batch = (await app.batches.list()).items[0]
    worker = next(row for row in await app.workers.list() if row.info.pid != 4711)
    lists = (
        "jobs",
        "dead",
        "queues",
        "limits",
        "tasks",
        "schedules",
        "batches",
        "workers",
        "webhooks",
        "keys",
        "audit",
    )
    return {
        **{name: f"/{name}" for name in lists},
        "overview": "/",
        "job": f"/jobs/{shaky.id}",
        "running": f"/jobs/{await newest('transcode')}",
        "family": f"/jobs/{await newest('build_report')}",
        "queue": "/queues/mail",
        "limit": "/limits/charge_card",
        "task": "/tasks/resize_image",
        "schedule": "/schedules/weekly_digest",
        "log": f"/jobs/{shaky.id}/log",
        "batch": f"/batches/{batch.id}",
        "worker": f"/workers/{worker.info.id}",
        "webhook": f"/webhooks/{hook.id}",
        "find": "/find?q=ma",
    }


def looks() -> list[tuple[Scheme, str]]:
    """Every way to look at a page."""
    return [(scheme, size) for scheme in SCHEMES for size in SIZES]


@asynccontextmanager
async def _window(browser: Browser, scheme: Scheme, size: str, heard: list[str]) -> AsyncIterator[Page]:
    """A page of this look; what it complains of is kept."""
    width, height = SIZES[size]
    settings: dict[str, Any] = {"viewport": {"width": width, "height": height}, "color_scheme": scheme}
    if size == "phone":
        settings |= {"has_touch": True, "is_mobile": True}
    page = await browser.new_page(**settings, timezone_id="Europe/Berlin", locale="en-GB")
    page.set_default_timeout(30_000)
    hear(page, lambda text: heard.append(f"{page.url}: {text}"))
    page.on("pageerror", lambda error: heard.append(f"{page.url}: {error}"))
    try:
        yield page
    finally:
        await page.close()


async def walk(
    browser: Browser, app: App, address: str, heard: list[str], ways: Sequence[tuple[Scheme, str]]
) -> AsyncIterator[Stop]:
    """Stop at every page, at what opens on them, and at last at the login; ``heard`` is told what pages complain of."""
    places = await places_of(app)
    for scheme, size in ways:
        async with _window(browser, scheme, size, heard) as page:
            for name in PAGES:
                yield Stop(name, scheme, size, page, await _go(page, address + places[name]))
            for name in OPENED:
                status = await _go(page, address + places[OPENED[name][0]])
                await opened_at(page, name)
                yield Stop(name, scheme, size, page, status)
    await app.keys.create("ops", ["read", "act"])  # as soon as there is a key, everybody needs one
    for scheme, size in ways:
        async with _window(browser, scheme, size, heard) as page:
            await until(lambda: _is_closed(page, address))
            yield Stop(LOGIN, scheme, size, page, await _go(page, f"{address}/login"))


async def _is_closed(page: Page, address: str) -> bool:
    await page.goto(address)
    return "/login" in page.url


async def _go(page: Page, address: str) -> int:
    answer = await page.goto(address)
    await page.wait_for_function("document.documentElement.classList.contains('scripted')")
    return 0 if answer is None else answer.status


async def opened_at(page: Page, name: str) -> None:
    """Open what this stop is about."""
    _, kind, what = OPENED[name]
    if kind == "key":
        await page.keyboard.press(what)
        await page.locator("#keys-dialog h2" if name == "shortcuts" else "#found li").first.wait_for()
    elif kind == "checkbox":
        await page.get_by_role("checkbox", name=what).check()
        await page.locator("#choice").wait_for()
    else:
        await page.get_by_role("button", name=what).click()
        await page.locator("#sure").wait_for()
