"""Figures on the pages: they have one meaning, one moment, and a fixed order, as a person sees them in a browser."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path
from uuid import uuid4

import pytest
from playwright.async_api import Browser, expect

from headrace.core.stats.rollup import Rollup, Step, Totals, begin_of
from headrace.dashboard.format import arguments
from headrace.dashboard.pages.jobs import MAX_COUNTED_JOBS
from headrace.engine import Beat, WorkerInfo
from tests.dashboard.looks import axe_faults, sticking_out
from tests.dashboard.shop import Shop, failed, looking, opened

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.xdist_group("dashboard"),
    pytest.mark.timeout(180),
]


async def test_a_row_has_its_arguments_and_the_page_the_numbers_of_matches(tmp_path: Path, browser: Browser) -> None:
    async with opened(f"sqlite:///{tmp_path / 'jobs.db'}", browser) as shop:
        await shop.app.tasks["add"].options(delay=7200).map([(41, 1), (7, 2), (8, 3)])
        await failed(shop, "no such address: " + "x" * 500)
        async with looking(shop, "/jobs") as page:
            await expect(page.locator("tr.scheduled .args").last).to_have_text("a=41, b=1")
            await expect(page.locator("tr.failed .args")).to_have_text(re.compile('^why="no such address: x+…$'))
            await expect(page.locator("h1")).to_have_text("Jobs 4 jobs")
            await expect(page.locator('[data-figure="scheduled"]')).to_have_text("3")
            await expect(page.locator('[data-figure="failed"]')).to_have_text("1")
            await expect(page.locator('[data-figure="completed"]')).to_have_text("0")
            # Under an open page numbers move, and what a person types stays.
            await page.get_by_label("Tag", exact=True).fill("half typed")
            await shop.app.tasks["add"].options(delay=7200).submit(9)
            await expect(page.locator('[data-figure="scheduled"]')).to_have_text("4")
            await expect(page.get_by_label("Tag", exact=True)).to_have_value("half typed")
            assert await axe_faults(page) == []
            await page.set_viewport_size({"width": 390, "height": 844})
            assert await sticking_out(page) == []
        async with looking(shop, "/jobs?task=fragile&status=failed") as page:
            await expect(page.locator("h1")).to_have_text("Jobs 1 job")
            await expect(page.locator('[data-figure="scheduled"]')).to_have_text("0")


async def test_what_is_over_is_counted_up_to_a_bound(tmp_path: Path, browser: Browser) -> None:
    async with opened(f"sqlite:///{tmp_path / 'jobs.db'}", browser) as shop:
        handles = await shop.app.tasks["add"].options(delay=7200).map([(one,) for one in range(MAX_COUNTED_JOBS + 5)])
        async for _ in shop.app.jobs.where(task="add").cancel():
            pass
        async with looking(shop, "/jobs") as page:
            await expect(page.locator('[data-figure="cancelled"]')).to_have_text("1,000+")
            await expect(page.locator("h1")).to_have_text("Jobs 1,000+ jobs")
        assert len(handles) == MAX_COUNTED_JOBS + 5


async def test_idle_queues_are_listed_and_their_order_stays(tmp_path: Path, browser: Browser) -> None:
    async with opened(f"sqlite:///{tmp_path / 'jobs.db'}", browser) as shop:
        app = shop.app
        names = ["default", "mail", "video"]
        for path, rows in (("/queues", "main table.rows tbody .name a"), ("/", "[aria-labelledby=queues] .name a")):
            async with looking(shop, path) as page:
                await expect(page.locator(rows)).to_have_text(names)
                running = await app.tasks["steady"].submit()
                await expect(page.locator("tr[data-key=video]")).to_contain_text("1")
                assert await page.locator(rows).all_text_contents() == names
                await running.cancel()
                await expect(page.locator("tr[data-key=video]")).not_to_contain_text("1")
                await expect(page.locator(rows)).to_have_text(names)


async def test_busy_slots_agree_with_the_jobs_that_run(shop: Shop) -> None:
    handles = await shop.app.tasks["steady"].map([()] * 7)
    try:
        # Before the worker has beaten again: only the store knows what it runs.
        async with looking(shop, "/") as page:
            await expect(page.locator(".verdict small")).to_have_text("1 worker, 8 slots, 7 jobs run")
            await expect(page.locator(".tiles div", has_text="Running").first.locator("dd a")).to_have_text("7")
        async with looking(shop, "/workers") as page:
            await expect(page.locator("td[data-label=slots]").first).to_have_text(re.compile(r"7\s*/ 8"))
    finally:
        for handle in handles:
            await handle.cancel()


async def test_throughput_is_of_the_minutes_there_were(tmp_path: Path, browser: Browser) -> None:
    async with opened(f"sqlite:///{tmp_path / 'jobs.db'}", browser) as shop:
        engine, now = shop.app.session.engine, shop.app.host.clock.now()
        info = WorkerInfo(id=uuid4(), host="here", pid=1, started_at=now, concurrency=1)
        await engine.workers.register(info, now)
        minutes = [begin_of(now - timedelta(minutes=one), Step.MINUTE) for one in range(5)]
        rows = tuple(Rollup(Step.MINUTE, at, "add", "default", Totals(completed=120)) for at in minutes)
        await engine.workers.beat(info.id, Beat(report=1, finished=rows), now)
        async with looking(shop, "/") as page:
            tile = page.locator(".tiles div", has_text="Throughput")
            await expect(tile).to_contain_text(re.compile("600 attempts in [456] min"))
            shown = await tile.locator("dd").first.text_content() or ""
            assert 100 <= int(re.sub(r"[^0-9]", "", shown)) <= 150, shown


async def test_failed_is_said_of_jobs_or_of_attempts(tmp_path: Path, browser: Browser) -> None:
    async with opened(f"sqlite:///{tmp_path / 'jobs.db'}", browser) as shop:
        await failed(shop, "no such address")
        for path, words in (
            ("/queues", ["Failed jobs"]),
            ("/tasks", ["Failed attempts"]),
            ("/tasks/fragile", ["Failed attempts"]),
            ("/", ["Failed jobs"]),
            ("/queues/mail", ["Failed jobs"]),
        ):
            async with looking(shop, path) as page:
                heads = await page.locator("main th, main dt").all_text_contents()
                assert [one for one in heads if "failed" in one.lower()] == words, path
        async with looking(shop, "/") as page:
            await expect(page.locator(".tiles")).to_contain_text(re.compile("[0-9]+ failed attempts? this hour"))


async def test_a_payload_is_cut_to_a_row() -> None:
    assert arguments("{}") == ""
    assert arguments('{"a":1,"b":{"c":[1,2]}}') == 'a=1, b={"c":[1,2]}'
    assert len(arguments('{"a":"' + "ü" * 10_000 + '"}')) <= 45
    assert len(arguments("{" + ",".join(f'"field{one}":{one}' for one in range(100)) + "}")) == 100
    assert arguments("not JSON") == "not JSON"
