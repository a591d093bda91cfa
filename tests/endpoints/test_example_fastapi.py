"""The example with a page for browsers, in a real one: a button, a bar that moves, the result."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from playwright.async_api import Browser, Page

from tests.endpoints.examples import running
from tests.support.screens.browser import browsing

pytestmark = pytest.mark.timeout(240)


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    with running("fastapi", "service:api", tmp_path) as found:
        yield found


@pytest.fixture
async def browser() -> AsyncIterator[Browser]:
    async with browsing() as made:
        yield made


async def opened(browser: Browser, address: str, width: int = 1280) -> tuple[Page, list[str]]:
    page, said = await browser.new_page(viewport={"width": width, "height": 800}), list[str]()
    page.set_default_timeout(60_000)
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    await page.goto(address)
    return page, said


SEEN = """() => {
  const bar = document.getElementById("bar");
  window.seen = [];
  new MutationObserver(() => window.seen.push(bar.value)).observe(bar, {attributes: true});
}"""


@pytest.mark.parametrize("width", [1280, 390])
async def test_a_job_is_followed_to_its_result(browser: Browser, address: str, width: int) -> None:
    page, said = await opened(browser, address, width)
    await page.evaluate(SEEN)
    await page.fill("#below", "1000")
    await page.click("#go")
    await page.wait_for_function("window.seen.some((value) => value > 0 && value < 100)")
    assert await page.is_disabled("#go")
    assert await page.is_visible("#cancel")
    await page.wait_for_selector("#result", state="visible")
    assert await page.inner_text("#result") == "168 primes below 1,000, the largest is 997"
    assert await page.evaluate("document.getElementById('bar').value") == 100
    assert not await page.is_disabled("#go")
    assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "nothing sticks out"
    assert said == []


async def test_a_page_that_is_opened_again_goes_on_with_its_job(browser: Browser, address: str) -> None:
    page, _ = await opened(browser, address)
    await page.fill("#below", "1000")
    await page.click("#go")
    await page.wait_for_selector("#cancel", state="visible")
    await page.reload()
    await page.wait_for_selector("#result", state="visible")
    assert (await page.inner_text("#result")).startswith("168 primes")


async def test_a_job_is_cancelled(browser: Browser, address: str) -> None:
    page, _ = await opened(browser, address)
    await page.fill("#below", "2000000")
    await page.click("#go")
    await page.wait_for_function("document.getElementById('told').textContent.includes('multiples')")
    await page.click("#cancel")
    await page.wait_for_selector("#result", state="visible")
    assert await page.inner_text("#result") == "Cancelled."


async def test_an_error_of_the_handler_is_shown(browser: Browser, address: str) -> None:
    page, _ = await opened(browser, address)
    await page.fill("#below", "3000000")
    await page.click("#go")
    await page.wait_for_selector("#result.wrong", state="visible")
    assert await page.inner_text("#result") == "that would take too long: at most 2,000,000"


def test_the_example_answers_programs_too(address: str) -> None:
    request = urllib.request.Request(f"{address}/primes?below=100", method="POST", headers={"Prefer": "wait=30"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        assert (answer.status, json.load(answer)) == (200, {"below": 100, "count": 25, "largest": 97})
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(urllib.request.Request(f"{address}/primes?below=1", method="POST"), timeout=60)
    assert refused.value.code == 422
    refused.value.close()
