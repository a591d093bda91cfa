"""A store or a hub that goes away under an open page, and comes back: a person sees since when, and how old
figures are.

Real servers are killed, frozen and started, and a real file is locked, under a real browser.
"""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest
from playwright.async_api import Browser, Page, Request, expect

from headrace import App
from headrace.dashboard.outage import PROBE_CACHE_SECONDS, StoreWatch
from headrace.errors import Unavailable
from headrace.hub import Hub, HubOptions
from headrace.hub.server.server import HubServer, listen
from tests.dashboard.looks import axe_faults, sticking_out
from tests.dashboard.shop import looking, opened
from tests.support.servers.postgres import Server
from tests.support.until import until

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.xdist_group("dashboard"),
    pytest.mark.timeout(180),
]

AGES = """() => [...document.querySelectorAll('main time[data-as="age"], main time[data-as="ago"]')]
  .map((one) => one.textContent)"""
OLD = """(seconds) => Date.now() - Date.parse(document.querySelector('#away small time').dateTime) >= seconds * 1000"""
"""Whether the outage that the page reports is so many seconds old."""


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    made = Server.start(tmp_path, fsync="off")
    try:
        yield made
    finally:
        made.stop()


LOCK = """
import sqlite3, sys
with sqlite3.connect(sys.argv[1], isolation_level=None) as other:
    other.execute("BEGIN EXCLUSIVE")
    print("locked", flush=True)
    sys.stdin.read()
"""
"""Another program: what one process locks by two libraries of SQLite, the kernel takes for one lock."""


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Another program has locked the file while the block lasts."""
    command = [sys.executable, "-c", LOCK, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdin is not None
        assert other.stdout is not None
        assert other.stdout.readline() == b"locked\n"
        yield
        other.stdin.close()
        other.wait()


@contextmanager
def asked(page: Page) -> Iterator[Callable[[], int]]:
    """How often the page has asked for what is new, since the block began."""
    requests = list[Request]()

    def note(request: Request) -> None:
        if request.headers.get("x-headrace-live") == "1":
            requests.append(request)

    page.on("request", note)
    try:
        yield lambda: len(requests)
    finally:
        page.remove_listener("request", note)


@pytest.mark.parametrize("how", ["killed", "frozen"])
async def test_a_store_that_does_not_answer_is_told_of_until_it_does(
    server: Server, browser: Browser, how: str
) -> None:
    async with opened(server.url(), browser) as shop:
        running = await shop.app.tasks["steady"].submit()
        await shop.app.tasks["add"].options(delay=7200).submit(1)
        async with looking(shop, "/jobs") as page:
            banner = page.locator("#away")
            await expect(page.locator("tr.running")).to_be_visible()
            await expect(banner).to_be_empty()
            await asyncio.to_thread(server.kill if how == "killed" else server.freeze)
            try:
                await expect(banner).to_contain_text(re.compile(r"The store has not answered since \d\d:\d\d:\d\d"))
                await expect(banner).to_contain_text(re.compile(r"The figures are of \d\d:\d\d:\d\d, and ages stand"))
                ages = await page.evaluate(AGES)
                assert ages
                await page.wait_for_function(OLD, arg=4)
                assert await page.evaluate(AGES) == ages, "ages tick beside figures that are old"
                assert await axe_faults(page) == []
            finally:
                await asyncio.to_thread(server.restart if how == "killed" else server.thaw)
            with asked(page) as times:
                await expect(banner).to_be_empty()
                # One may have been under way when the store returned; they are a second apart.
                assert times() <= 2
            await until(lambda: _ticks(page, ages))
        await shop.app.jobs.handle(running.id).cancel()


async def _ticks(page: Page, before: list[str]) -> bool:
    return bool(await page.evaluate(AGES) != before)


async def test_a_page_that_is_opened_while_the_store_is_away_says_so_and_becomes_the_page(
    server: Server, browser: Browser
) -> None:
    async with opened(server.url(), browser) as shop:
        await asyncio.to_thread(server.kill)
        async with looking(shop, "/queues") as page:
            await expect(page.locator("h1")).to_have_text("The store cannot be read")
            await expect(page.locator("main")).to_contain_text("It has not answered since")
            await asyncio.to_thread(server.restart)
            await expect(page.locator("h1")).to_have_text("Queues")


async def test_a_locked_file_is_told_of_while_it_is_locked_and_figures_stay_current(
    tmp_path: Path, browser: Browser
) -> None:
    """Readers of SQLite do not wait for a writer: so what is shown is current, and only writes wait."""
    async with opened(f"sqlite:///{tmp_path / 'jobs.db'}", browser) as shop:
        await shop.app.tasks["add"].options(delay=7200).submit(1)
        async with looking(shop, "/jobs", viewport={"width": 390, "height": 844}) as page:
            banner = page.locator("#away")
            await expect(page.locator("tr.scheduled")).to_be_visible()
            with locked(tmp_path / "jobs.db"):
                await expect(banner).to_contain_text("The store has taken no writes since")
                await expect(banner).to_contain_text("What is shown is current")
                ages = await page.evaluate(AGES)
                await until(lambda: _ticks(page, ages))
                assert await sticking_out(page) == []
                await page.wait_for_function(OLD, arg=30, timeout=60_000)
                await page.reload()
                await expect(banner).to_contain_text("The store has taken no writes since")
            with asked(page) as times:
                await expect(banner).to_be_empty()
                assert times() <= 3


@asynccontextmanager
async def _hub_on(app: App, port: int) -> AsyncIterator[int]:
    hub = Hub(app, HubOptions(maintenance=False, webhooks=False, access_log=False))
    listener, server = listen("127.0.0.1", port), HubServer(hub)
    running = await server.begin(listener)
    try:
        yield listener.getsockname()[1]
    finally:
        server.stop()
        server.stop()
        await running


async def test_a_hub_that_is_out_of_reach_is_told_of_in_words_of_its_own(tmp_path: Path, browser: Browser) -> None:
    url = f"sqlite:///{tmp_path / 'jobs.db'}"
    context = await browser.new_context()
    page = await context.new_page()
    try:
        async with _hub_on(App(url), 0) as port:
            await page.goto(f"http://127.0.0.1:{port}/queues")
            await expect(page.locator("#away")).to_be_empty()
        await expect(page.locator("#away")).to_contain_text("This page has not reached its server since")
        await expect(page.locator("#away")).to_contain_text("The figures are of")
        async with _hub_on(App(url), port):
            await expect(page.locator("#away")).to_be_empty()
    finally:
        await context.close()


async def test_a_store_that_is_away_is_asked_once_for_all_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    app, returned, pings, there = App("memory://"), list[bool](), list[bool](), asyncio.Event()
    async with app:
        watch = StoreWatch(app, lambda: returned.append(True))

        async def ping(*, write: bool = False) -> None:
            if not write:
                pings.append(True)
            if not there.is_set():
                raise Unavailable("away")

        async def page() -> str:
            await ping(write=True)
            return "page"

        async def shown() -> bool:
            try:
                return await watch.read(page) == "page"
            except Unavailable:
                return False

        monkeypatch.setattr(app.store, "ping", ping)
        began = app.host.clock.monotonic()
        for _ in range(3):
            found = await asyncio.gather(*(watch.read(page) for _ in range(50)), return_exceptions=True)
            assert {type(one) for one in found} == {Unavailable}
        passed = app.host.clock.monotonic() - began
        assert watch.away_since is not None
        assert len(pings) <= 2 + passed / PROBE_CACHE_SECONDS, "each of fifty pages asked by itself"
        there.set()
        await until(shown)
        assert returned == [True]


async def test_what_one_page_alone_is_refused_is_no_outage() -> None:
    app = App("memory://")
    async with app:
        watch = StoreWatch(app, lambda: None)

        async def refused() -> None:
            raise Unavailable("others have a lock")

        with pytest.raises(Unavailable, match="others have a lock"):
            await watch.read(refused)
        assert watch.away_since is None
