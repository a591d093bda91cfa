"""Pages in a real browser on stores of their own: with keys, and with very many jobs."""

from __future__ import annotations

from pathlib import Path

import apsw
import pytest
from msgspec.structs import replace
from playwright.async_api import Browser, expect

from headrace.client.submission.by_name import draft_with_warnings
from headrace.hub import HubOptions
from tests.dashboard.shop import shop_app, sure
from tests.hub.serving import Served, serving
from tests.support.apps import url_of
from tests.support.until import until

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.xdist_group("frame")]

JOBS = 50_000
MANY = ("/tasks/render", "/tasks", "/jobs?task=render", "/queues/default", "/")
OPTIONS = HubOptions(maintenance=False, webhooks=False, access_log=False)


async def test_a_key_is_revoked_by_its_button(browser: Browser, tmp_path: Path) -> None:
    """On a store of its own: as soon as there is a key, everybody needs one."""
    app = shop_app(url_of("sqlite", tmp_path))
    async with serving(app, OPTIONS) as served:
        admin = await app.keys.create("ops", ["read", "act", "admin"])
        await app.keys.create("left behind", ["read"])
        await until(lambda: served.hub.authenticator.keyed)
        context = await browser.new_context()
        page = await context.new_page()
        await page.goto(f"{served.address}/keys")
        await page.get_by_label("Your key").fill(admin.text)
        await page.get_by_role("button", name="Log in").click()
        row = page.locator("tr[data-key='left behind']")
        await row.get_by_role("button", name="Revoke").click()
        await expect(page.locator("#sure")).to_contain_text("Every hub refuses it at once")
        await sure(page, "Revoke")
        await expect(row).to_have_count(0)
        await expect(page.locator("tr[data-key=ops]")).to_be_visible()
        await page.goto(f"{served.address}/audit")
        await expect(page.locator("tbody tr", has_text="revoke")).to_contain_text("ops")
        await context.close()
        assert [one.name for one in await app.keys.list()] == ["ops"]


async def test_a_task_of_remote_workers_with_very_many_queued_jobs_has_a_page_in_few_statements(
    browser: Browser, tmp_path: Path
) -> None:
    said = list[str]()

    def note(cursor: object, text: str, values: object) -> bool:
        said.append(text)
        return True

    def hook(connection: apsw.Connection) -> None:
        connection.set_exec_trace(note)

    apsw.connection_hooks.append(hook)
    try:
        app = shop_app(url_of("sqlite", tmp_path))
        async with serving(app, OPTIONS) as served:
            draft, _ = await draft_with_warnings(app, "render", {"scene": 1}, {})
            first = await app.jobs.get((await draft.submit()).id)
            assert first is not None
            few = {path: await _statements(served, path, said) for path in MANY}
            now, dice = app.host.clock.now(), app.host.dice
            for _ in range(JOBS // 5000):
                await app.session.engine.jobs.insert(
                    [replace(first, id=dice.new_id(now), seq=0) for _ in range(5000)], now
                )
            many = {path: await _statements(served, path, said) for path in MANY}
            assert all(many[path] <= few[path] + 10 for path in MANY), (few, many)
            context = await browser.new_context()
            page = await context.new_page()
            await page.goto(f"{served.address}/tasks/render")
            await expect(page.locator("h1")).to_contain_text("Task render")
            await expect(page.locator("table.jobs tbody tr").first).to_contain_text("queued")
            await page.goto(f"{served.address}/jobs?task=render&status=queued")
            await expect(page.locator("h1")).to_contain_text("1,000+ jobs")
            await context.close()
    finally:
        apsw.connection_hooks.remove(hook)


async def _statements(served: Served, path: str, said: list[str]) -> int:
    """How many statements a page takes."""
    before = len(said)
    answer = await served.client.get(path, headers={"accept": "text/html"})
    assert answer.status_code == 200, (path, answer.status_code)
    return len(said) - before
