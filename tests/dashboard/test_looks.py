"""How the pages look, in a real browser: to those who cannot see them, on a phone, in other zones of time."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Browser, expect

from headrace.client.submission.by_name import draft_with_warnings
from tests.dashboard.looks import axe_faults, sticking_out
from tests.dashboard.shop import Shop, failed, looking, opened
from tests.support.apps import url_of

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.xdist_group("dashboard"),
    pytest.mark.timeout(180),
    pytest.mark.usefixtures("quiet"),
]

PAGES = ("/", "/jobs", "/dead", "/queues", "/limits", "/tasks", "/schedules", "/batches", "/workers", "/find?q=a")


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def shop(tmp_path_factory: pytest.TempPathFactory, browser: Browser) -> AsyncIterator[Shop]:
    async with opened(url_of("sqlite", tmp_path_factory.mktemp("shop")), browser) as made:
        yield made


NEXT = {
    "/jobs": "Submit one: await task.submit(…), headrace submit TASK",
    "/dead": "A job comes here when no attempt is left",
    "/batches": "async with app.batch() as batch",
    "/schedules": "@app.task(schedule=Cron(",
    "/find?q=nothing": "A job is found by its whole id",
}
"""What pages say that have nothing to show: what to do next."""


async def test_pages_with_nothing_on_them_say_what_to_do_and_have_no_faults_of_accessibility(
    tmp_path_factory: pytest.TempPathFactory, browser: Browser
) -> None:
    """The others are walked past in ``test_walk.py``."""
    async with opened(url_of("sqlite", tmp_path_factory.mktemp("empty")), browser) as empty:
        async with looking(empty) as page:
            for path in (
                *PAGES,
                "/queues/mail",
                "/limits/charge",
                "/tasks/add",
                "/jobs/none",
                "/jobs?created_after=never",
            ):
                await page.goto(empty.address + path)
                await page.wait_for_function("document.documentElement.classList.contains('scripted')")
                assert await axe_faults(page) == [], path
            for path, remedy in NEXT.items():
                await page.goto(empty.address + path)
                await expect(page.locator(".empty").last).to_be_visible()
                assert remedy in await page.locator("main").inner_text(), path
        assert [one for one in empty.heard if "404" not in one and "400" not in one] == []


async def test_nothing_sticks_out_on_a_phone(shop: Shop) -> None:
    await failed(shop, "averyveryverylongword" * 30)
    options: Any
    name, options = "a.rather.long.name.of.a.task." * 4, {"tags": ["t" * 60], "delay": 3600}
    draft, _ = await draft_with_warnings(shop.app, name, {"x": "y" * 500}, options)
    long = await draft.submit()
    paths = [
        *PAGES,
        f"/jobs/{long.id}",
        "/tasks/charge",
        "/limits/charge",
        "/queues/mail",
        f"/workers/{shop.worker.id}",
    ]
    async with looking(shop, "/", viewport={"width": 390, "height": 844}) as page:
        for path in paths:
            await page.goto(shop.address + path)
            assert await sticking_out(page) == [], path


async def test_times_are_shown_in_the_zone_of_the_browser_and_exact_on_hover(shop: Shop) -> None:
    handle = await shop.app.tasks["add"].submit(1)
    async for _ in handle.watch():
        pass
    made = (await handle.refresh()).created_at
    async with looking(shop, f"/jobs/{handle.id}", timezone_id="Asia/Kolkata", locale="en-GB") as page:
        shown = page.locator(".about dd time").first
        await expect(shown).to_have_attribute("title", re.compile(rf"{made:%Y-%m-%d %H:%M:%S}.* UTC"))
        local = await page.evaluate(
            "(at) => new Date(at).toLocaleTimeString('en-GB', {timeZone: 'Asia/Kolkata', hourCycle: 'h23'})",
            made.isoformat(),
        )
        await expect(shown).to_contain_text(local)
        told = page.locator(".facts time").first
        await expect(told).to_have_text(re.compile(r"^\d\d:\d\d:\d\d$|, \d\d:\d\d:\d\d$"))
        await expect(told).to_have_attribute("title", re.compile(r" UTC$"))


MOVING = """[...document.querySelectorAll("*")].filter((one) => {
  const style = getComputedStyle(one);
  return style.transitionDuration !== "0s" || style.animationName !== "none";
}).map((one) => one.outerHTML.slice(0, 80))"""


async def test_nothing_moves_for_those_who_ask_for_less_motion(shop: Shop) -> None:
    running = await shop.app.tasks["steady"].submit()
    async with looking(shop, f"/jobs/{running.id}", reduced_motion="reduce") as page:
        await expect(page.locator(".progress progress")).to_be_visible()
        assert await page.evaluate(MOVING) == []
    await shop.app.jobs.handle(running.id).cancel()
