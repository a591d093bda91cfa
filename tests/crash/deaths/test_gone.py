"""A worker process is killed: the command and the page say since when, how it was known, and what became of its job."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from playwright.async_api import expect

from headrace.core.lifecycle.departure import How
from headrace.core.status import Status
from tests.crash.app import app, waits_for
from tests.crash.test_death import runs
from tests.hub.serving import serving
from tests.support import forks
from tests.support.crew import crew
from tests.support.living import are_living, living
from tests.support.screens.browser import browsing
from tests.support.servers import schemas
from tests.support.until import until

pytestmark = pytest.mark.timeout(480)

STORES = [pytest.param(kind, marks=pytest.mark.xdist_group(f"crash {kind}")) for kind in ("sqlite", "postgres")]


@pytest.mark.every_engine
@pytest.mark.parametrize("store", STORES)
async def test_a_killed_worker_leaves_a_trace_on_every_screen(store: str, tmp_path: Path) -> None:
    url = schemas.url_of(tmp_path) if store == "postgres" else f"sqlite:///{tmp_path / 'jobs.db'}"
    gate, note = tmp_path / "go", tmp_path / "runs"
    with app.override(url=url), crew(url, tmp_path, beat=10.0, lease=30.0) as workers:
        async with app:
            first = workers.hire()
            handle = await waits_for.submit(str(gate), str(note))
            await until(lambda: runs(note) == [first.pid], within=90)
            dead = (await living(app))[first.pid].info.id
            second = workers.hire()
            await until(lambda: are_living(app, second), within=90)
            survivor = (await living(app))[second.pid].info.id
            workers.kill(first)
            await until(lambda: runs(note) == [first.pid, second.pid], within=90)
            gate.touch()
            await handle.result(timeout=60)

            gone = await app.workers.get_gone(dead)
            assert (gone.departure.how, gone.departure.by, gone.lost) == (How.ENDED, survivor, (handle.id,))
            assert [one.row.info.id for one in (await app.workers.gone()).items] == [dead]

            async def said(*words: str) -> str:
                done = await asyncio.to_thread(forks.run, "workers", "gone", *words, "--url", url)
                assert done.returncode == 0, done.stderr
                return done.stdout

            assert "its process has ended" in await said()
            one = await said(str(dead)[-8:])
            assert f"found by {survivor}" in one
            assert str(handle.id) in one
            assert "completed" in one
            told = json.loads(await said(str(dead), "--json"))
            assert [job["status"] for job in told["jobs"]] == [Status.COMPLETED]

            async with serving(app) as served, browsing() as browser:
                found = (await served.client.get("/api/gone-workers")).json()
                assert [(row["id"], row["how"], row["lost"]) for row in found["items"]] == [(str(dead), "ended", 1)]
                lost = (await served.client.get(f"/api/gone-workers/{dead}/jobs")).json()["items"]
                assert [(row["job_id"], row["status"]) for row in lost] == [(str(handle.id), "completed")]
                page = await browser.new_page()
                await page.goto(f"{served.address}/jobs/{handle.id}")
                await page.locator(f".attempts a[href$='{dead}']").click()
                await expect(page.locator("main")).to_contain_text("its process has ended; found by")
                await expect(page.locator("table.jobs")).to_contain_text("completed")
                await page.get_by_role("link", name="Gone workers").click()
                await expect(page.locator(f"tr[data-key='{dead}']")).to_contain_text("its process has ended")
                await page.close()


async def test_a_worker_that_stops_in_good_order_is_on_record_too(tmp_path: Path) -> None:
    with app.override(url=f"sqlite:///{tmp_path / 'jobs.db'}"):
        async with app:
            async with app.worker() as worker:
                id = worker.id
            gone = await app.workers.get_gone(id)
            assert (gone.departure.how, gone.departure.by, gone.row.holds) == (How.STOPPED, None, 0)
