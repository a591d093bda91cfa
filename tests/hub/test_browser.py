"""In a real browser: no page of elsewhere gets anywhere at a hub without keys, and the hub's own page works."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, Route

from headrace.hub.operations import OPERATIONS
from tests.hub.serving import Served, serving
from tests.support.screens.browser import browsing, hear, is_hint
from tests.support.until import until

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.xdist_group("hub in a browser"),
    pytest.mark.timeout(180),
]

FOREIGN, REBOUND = "evil.example", "rebound.example"

READS = ["/api/jobs", "/api/jobs/count", "/api/version", "/api/keys", "/api/webhooks", "/openapi.json", "/metrics"]

SUBMIT = json.dumps({"task": "stolen", "payload": {}})

KINDS = ["application/json", "text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", ""]


@pytest.fixture
def log() -> Iterator[list[logging.LogRecord]]:
    """What reached the hub."""

    class Kept(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            records.append(record)

    records, logger = list[logging.LogRecord](), logging.getLogger("headrace.hub.access")
    handler, before = Kept(), logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    yield records
    logger.removeHandler(handler)
    logger.setLevel(before)


@asynccontextmanager
async def visited(page: Page, address: str) -> AsyncIterator[Page]:
    """A page whose document is the attacker's; all else that it asks for goes over the network."""

    async def document(route: Route) -> None:
        await route.fulfill(content_type="text/html", body="<!doctype html><link rel=icon href='data:,'><p>hello")

    await page.route(address, document)
    await page.goto(address)
    await page.unroute(address)  # with a route, the browser would not ask first (CORS preflight)
    yield page


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def started() -> AsyncIterator[Browser]:
    async with browsing({FOREIGN: "127.0.0.1", REBOUND: "127.0.0.1"}) as made:
        yield made


@pytest_asyncio.fixture(loop_scope="module")
async def browser(started: Browser) -> AsyncIterator[Browser]:
    yield started
    for context in started.contexts:
        await context.close()


@pytest_asyncio.fixture(loop_scope="module")
async def hub(tmp_path: Path) -> AsyncIterator[Served]:
    async with serving(f"sqlite:///{tmp_path}/jobs.db") as made:
        await made.client.post("/api/jobs", json={"task": "secret", "payload": {"card": "4111"}})
        yield made


async def tasks(hub: Served) -> list[str]:
    """The tasks of all jobs there are."""
    return [job["task"] for job in (await hub.client.get("/api/jobs")).json()["items"]]


def asked(log: list[logging.LogRecord], method: str, path: str) -> list[int]:
    """How requests of this kind were answered."""
    found = [vars(record) for record in log]
    return [one["status"] for one in found if (one["method"], one["path"]) == (method, path)]


FETCH = """async ([address, options]) => {
  try {
    const answer = await fetch(address, options);
    return {type: answer.type, status: answer.status, text: await answer.text()};
  } catch (error) { return {type: "failed", status: 0, text: ""}; }
}"""


async def fetch(page: Page, address: str, **options: Any) -> dict[str, Any]:
    """What a script of the page sees of an answer."""
    seen: dict[str, Any] = await page.evaluate(FETCH, [address, options])
    return seen


SOCKET = """(address) => new Promise((done) => {
  const socket = new WebSocket(address);
  socket.onopen = () => done("open");
  socket.onerror = () => done("refused");
})"""

EVENTS = """(address) => new Promise((done) => {
  const source = new EventSource(address);
  source.onopen = () => done("open");
  source.onerror = () => { source.close(); done("refused"); };
})"""

TAG = """([name, address]) => new Promise((done) => {
  const made = document.createElement(name);
  made.onload = () => done("loaded");
  made.onerror = () => done("refused");
  made.src = address;
  document.body.append(made);
})"""

FORM = """([address, kind]) => {
  const form = document.createElement("form"), field = document.createElement("input");
  Object.assign(form, {action: address, method: "post", enctype: kind});
  Object.assign(field, {name: '{"task": "stolen", "payload": {"a": "', value: '"}}'});
  form.append(field);
  document.body.append(form);
  form.submit();
}"""


@pytest.mark.parametrize("origin", [f"http://{FOREIGN}/", "http://localhost:9/", "https://evil.example/"])
async def test_a_foreign_page_reads_nothing(
    hub: Served, browser: Browser, log: list[logging.LogRecord], origin: str
) -> None:
    page = await browser.new_page()
    async with visited(page, origin):
        for path in READS:
            for mode in ("cors", "no-cors"):
                seen = await fetch(page, hub.address + path, mode=mode)
                assert (seen["type"], seen["status"], seen["text"]) in {("failed", 0, ""), ("opaque", 0, "")}, path
        for name in ("script", "img"):
            assert await page.evaluate(TAG, [name, f"{hub.address}/api/jobs"]) == "refused"
        assert await page.evaluate(EVENTS, f"{hub.address}/api/events") == "refused"
        assert await page.evaluate(SOCKET, hub.address.replace("http", "ws") + "/ws") == "refused"
    reached = asked(log, "GET", "/api/jobs")
    assert set(reached) <= {403}
    if origin.startswith("http:"):  # the browser itself keeps a secure page from asking for what is not
        assert len(reached) >= 2, "the hub refused it, and not the browser alone"


async def test_a_foreign_page_submits_nothing(hub: Served, browser: Browser, log: list[logging.LogRecord]) -> None:
    page, address = await browser.new_page(), f"{hub.address}/api/jobs"
    async with visited(page, f"http://{FOREIGN}/"):
        for kind in KINDS:
            for mode in ("cors", "no-cors"):
                headers = {"content-type": kind} if kind else {}
                seen = await fetch(page, address, method="POST", body=SUBMIT, mode=mode, headers=headers)
                assert (seen["type"], seen["text"]) in {("failed", ""), ("opaque", "")}, (kind, mode)
        for method in ("PUT", "PATCH", "DELETE"):
            seen = await fetch(page, f"{hub.address}/api/queues/default", method=method, body="{}")
            assert seen["type"] == "failed"
        await page.evaluate("([to, text]) => navigator.sendBeacon(to, text)", [address, SUBMIT])
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data"):
        async with visited(page, f"http://{FOREIGN}/"), page.expect_navigation(url=address):
            await page.evaluate(FORM, [address, kind])
        assert "problems/" in await page.content()
    await until(lambda: len(asked(log, "POST", "/api/jobs")) >= 13)  # all but those that the browser asks about first
    assert set(asked(log, "POST", "/api/jobs")) <= {403, 415}
    assert set(asked(log, "OPTIONS", "/api/jobs")) == {405}
    assert await tasks(hub) == ["secret"]


async def test_a_page_whose_name_has_been_bound_to_this_machine_gets_nowhere(
    hub: Served, browser: Browser, log: list[logging.LogRecord]
) -> None:
    """To the browser it is the hub's own page: scripts may read every answer, and there is nothing in them."""
    page, port = await browser.new_page(), hub.address.rpartition(":")[2]
    async with visited(page, f"http://{REBOUND}:{port}/page"):
        for path in READS:
            seen = await fetch(page, path)
            assert seen["type"] == "basic", "the script reads the answer"
            assert seen["status"] == 403, path
            assert "secret" not in seen["text"]
        for kind in KINDS:
            headers = {"content-type": kind} if kind else {}
            assert (await fetch(page, "/api/jobs", method="POST", body=SUBMIT, headers=headers))["status"] == 403
        assert await page.evaluate(EVENTS, "/api/events") == "refused"
        assert await page.evaluate(SOCKET, f"ws://{REBOUND}:{port}/ws") == "refused"
    assert await tasks(hub) == ["secret"]


async def test_the_page_of_the_hub_itself_may_ask(hub: Served, browser: Browser) -> None:
    """What is refused above is refused for who asks: the same scripts work here."""
    page = await browser.new_page()
    await page.goto(f"{hub.address}/docs")
    assert (await fetch(page, "/api/jobs"))["status"] == 200
    headers = {"content-type": "application/json"}
    assert (await fetch(page, "/api/jobs", method="POST", body=SUBMIT, headers=headers))["status"] == 201
    assert await page.evaluate(SOCKET, hub.address.replace("http", "ws") + "/ws") == "open"
    assert await page.evaluate(EVENTS, "/api/events") == "open"
    await page.close()
    assert await tasks(hub) == ["stolen", "secret"]


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_the_documentation_shows_every_operation(hub: Served, browser: Browser, scheme: Any) -> None:
    page, said = await browser.new_page(color_scheme=scheme), list[str]()
    hear(page, said.append)
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("requestfailed", lambda request: said.append(request.url))
    await page.goto(f"{hub.address}/docs")
    await page.wait_for_selector("#contents a")
    shown = await page.inner_text("body")
    for operation in OPERATIONS:
        assert operation.summary in shown
    await page.fill("#filter", "cancel")
    await page.wait_for_function("document.querySelectorAll('#contents a:not([hidden])').length > 0")
    assert not await page.is_visible("#nothing")
    await page.fill("#filter", "no such thing")
    await page.wait_for_selector("#nothing", state="visible", timeout=10_000)
    assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "nothing sticks out"
    assert said == []


NAMELESS = (
    "<!doctype html><form method=post><input type=password autocomplete=current-password><button>in</button></form>"
)
SAYS = "<script>console.debug('ours'); console.log('ours'); console.warn('ours'); console.error('ours')</script>"


async def test_forms_for_keys_have_what_managers_of_passwords_look_for(hub: Served, browser: Browser) -> None:
    """Browsers advise a name beside a password; what a page of ours says is never taken for such advice."""
    await hub.app.keys.create("root", ["read"])
    advised = list[str]()
    for path in ("/login", "/docs"):
        page = await browser.new_page()
        page.on("console", lambda message: advised.append(message.text))
        await page.goto(hub.address + path)
        await page.wait_for_selector("form", state="attached")
        beside = "form:has(input[type=password]) input[type=text][autocomplete=username][hidden]"
        assert await page.locator(beside).count() == 1, path
        assert await page.locator(beside).get_attribute("name") is None, "it is not sent"
        await page.wait_for_load_state("networkidle")
        assert advised == [], path
        await page.close()
    page, heard, hints = await browser.new_page(), list[str](), list[str]()
    page.on("console", lambda message: (hints if is_hint(message) else heard).append(message.text))
    await page.route("**/nameless", lambda route: route.fulfill(content_type="text/html", body=NAMELESS + SAYS))
    await page.goto(f"{hub.address}/nameless")
    await until(lambda: len(heard) == 4)
    assert heard == ["ours"] * 4
    assert all("[DOM]" in one for one in hints)
