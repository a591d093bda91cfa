"""How the pages look, in a real browser: to those who cannot see them, on a phone, in other zones of time."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import axe_playwright_python  # type: ignore[import-untyped]  # it has none
import pytest
import pytest_asyncio
from playwright.async_api import Browser, expect

from tests.dashboard.shop import Shop, failed, looking, opened
from tests.support.apps import url_of

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.xdist_group("dashboard"),
    pytest.mark.timeout(180),
]

AXE = (Path(axe_playwright_python.__file__).parent / "axe.min.js").read_text(encoding="utf-8")
FAULTS = """async (rules) => {
  const only = rules ? {runOnly: {type: "rule", values: [rules]}} : {};
  const found = await axe.run(document, {resultTypes: ["violations"], ...only});
  return found.violations.map((one) => `${one.id}: ${one.help}: ${one.nodes.map((node) => node.target).join(" | ")}`);
}"""
PAGES = ("/", "/jobs", "/dead", "/queues", "/limits", "/tasks", "/schedules", "/batches", "/workers", "/find?q=a")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shop(tmp_path_factory: pytest.TempPathFactory, browser: Browser) -> AsyncIterator[Shop]:
    async with opened(url_of("sqlite", tmp_path_factory.mktemp("shop")), browser) as made:
        yield made


@pytest.fixture(autouse=True)
def quiet(shop: Shop) -> Iterator[None]:
    """No page complains of anything."""
    shop.heard.clear()
    yield
    assert shop.heard == []


@pytest.mark.parametrize(("scheme", "rules"), [("light", None), ("dark", "color-contrast")])
async def test_no_page_has_faults_of_accessibility(shop: Shop, scheme: str, rules: str | None) -> None:
    """Whether it is light or dark matters to the contrast alone."""
    shop.mended.clear()
    [dead] = await failed(shop, "accessible")
    running = await shop.app.by_name["steady"].submit()
    async with shop.app.batch() as batch:
        batch.add(shop.app.by_name["add"].draft(1))
    worker = shop.worker.id
    paths = [*PAGES, f"/jobs/{dead.id}", f"/jobs/{running.id}", "/queues/mail", "/limits/charge", "/tasks/add"]
    paths += [f"/batches/{batch.id}", f"/workers/{worker}", "/jobs/no-such-job", "/jobs?created_after=never"]
    async with looking(shop, "/", color_scheme=scheme) as page:
        for path in paths:
            await page.goto(shop.address + path)
            await page.wait_for_function("document.documentElement.classList.contains('scripted')")
            await page.evaluate(AXE)
            assert await page.evaluate(FAULTS, rules) == [], path
        await page.goto(shop.address)
        await page.keyboard.press("/")
        await expect(page.locator("#found li").first).to_be_visible()
        await page.evaluate(AXE)
        assert await page.evaluate(FAULTS, rules) == [], "the palette"
    shop.heard = [one for one in shop.heard if "404" not in one and "400" not in one]
    await shop.app.cancel(running.id)


async def test_nothing_sticks_out_on_a_phone(shop: Shop) -> None:
    await failed(shop, "averyveryverylongword" * 30)
    options: Any
    name, options = "a.rather.long.name.of.a.task." * 4, {"tags": ["t" * 60], "delay": 3600}
    draft, _ = await shop.app.draft_with_warnings(name, {"x": "y" * 500}, **options)
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
            over = await page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
            assert over <= 0, (path, over)


async def test_times_are_shown_in_the_zone_of_the_browser_and_exact_on_hover(shop: Shop) -> None:
    handle = await shop.app.by_name["add"].submit(1)
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
