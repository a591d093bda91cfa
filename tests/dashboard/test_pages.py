"""In a real browser, on SQLite and PostgreSQL: what each page answers, and what can be done there."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from playwright.async_api import expect

from headrace.client.submission.by_name import draft_with_warnings
from headrace.core.status import Status
from tests.dashboard.shop import Shop, failed, looking, sure
from tests.support.until import until

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.xdist_group("dashboard"),
    pytest.mark.timeout(180),
    pytest.mark.usefixtures("quiet"),
]


async def statuses(shop: Shop, ids: list[UUID]) -> set[Status]:
    return {job.status for job in await shop.app.jobs.get_many(ids) if job is not None}


async def test_the_overview_says_what_needs_somebody_and_what_to_do(shop: Shop) -> None:
    await shop.app.tasks["add"].map([(number,) for number in range(5)])
    async with looking(shop) as page:
        await expect(page.locator(".tiles dt").first).to_have_text("Oldest waiting")
        draft, _ = await draft_with_warnings(shop.app, "nobody_has_it", {}, {})
        handle = await draft.submit()
        problem = page.locator(".problems li", has_text="No living worker has the task 'nobody_has_it'")
        await expect(problem).to_contain_text("Start a worker: headrace worker")
        await expect(page.locator("h1")).to_contain_text("problem")
        await expect(page.locator(".tiles .first")).to_contain_text("in default")
        assert await page.locator(".problems").bounding_box() is not None
        await problem.get_by_role("link", name="See the jobs").click()
        await expect(page.locator(f"tr[data-key='{handle.id}']")).to_be_visible()
    await shop.app.jobs.handle(handle.id).cancel()


async def test_an_alert_about_a_failing_task_leads_to_its_errors_and_to_a_job_that_succeeded(shop: Shop) -> None:
    handles = await shop.app.tasks["hesitant"].map([(number,) for number in range(5)])
    for handle in handles:
        assert await handle.result(timeout=60) == "done"
    async with looking(shop) as page:
        problem = page.locator(".problems li", has_text="Task hesitant: 5 attempts failed within the hour, 50% of all")
        await problem.get_by_role("link", name="See its errors").click()  # it comes with a beat of the worker
        row = page.locator("#errors tbody tr")
        await expect(row).to_have_count(1)
        await expect(row).to_contain_text("ConnectionError")
        await expect(row).to_contain_text("shop.py:hesitant")
        await row.locator("a[href*='/jobs/']").click()
        await expect(page.locator("h1")).to_contain_text("hesitant")
        await expect(page.locator("main")).to_contain_text("completed")


async def test_a_task_that_only_jobs_or_remote_workers_name_has_a_page(shop: Shop) -> None:
    draft, _ = await draft_with_warnings(shop.app, "elsewhere", {}, {})
    handle = await draft.submit()
    async with looking(shop, "/tasks/elsewhere") as page:
        await expect(page.locator("h1")).to_contain_text("Task elsewhere")
        await expect(page.locator("main")).to_contain_text("No worker has described its parameters")
        await expect(page.locator(f"tr[data-key='{handle.id}']")).to_be_visible()
        await shop.served.client.post("/api/work/register_worker", json={"worker_id": "far", "tasks": ["elsewhere"]})
        await page.goto(f"{shop.address}/tasks")
        row = page.locator("tr[data-key=elsewhere]")
        await expect(row.locator("td[data-label=workers]")).to_have_text("1")
    await shop.app.jobs.handle(handle.id).cancel()


async def test_charts_are_by_outcome_queue_and_task_over_an_hour_or_a_month(shop: Shop) -> None:
    handles = await shop.app.tasks["add"].map([(number,) for number in range(5)])
    for handle in handles:
        async for _ in handle.watch():
            pass
    async with looking(shop) as page:
        chart = page.locator("section[aria-labelledby=finished]")
        await expect(chart.locator(".key", has_text="completed")).to_be_visible()  # it comes with a beat of the worker
        await chart.get_by_role("link", name="task").click()
        await expect(chart.locator(".key", has_text="add")).to_be_visible()
        await chart.get_by_role("link", name="queue").click()
        await expect(chart.locator(".key", has_text="default")).to_be_visible()
        for name, steps in (("24 h", 25), ("7 d", 169), ("30 d", 31)):
            await chart.get_by_role("link", name=name).click()
            await expect(chart.get_by_role("link", name=name)).to_have_attribute("aria-current", "true")
            await expect(chart.locator(".drawing rect").first).to_be_visible()
            assert await chart.locator(".figures tbody tr").count() in (steps - 1, steps)
        assert "by=queue" in page.url
        assert "range=30d" in page.url


async def test_a_group_of_dead_letters_is_discarded(shop: Shop) -> None:
    shop.mended.clear()
    handles = await failed(shop, "for the bin", 3)
    async with looking(shop, "/dead") as page:
        group = page.locator("li[data-group]", has_text="for the bin")
        await expect(group).to_contain_text("first")
        await group.get_by_text("Traceback of the newest").click()
        await expect(group.locator(".trace")).to_contain_text("ValueError: for the bin")
        await group.get_by_role("button", name="Discard group").click()
        await expect(page.locator("#sure")).to_contain_text("They end as cancelled (discarded).")
        await sure(page, "Discard 3 jobs")
        await expect(group).to_have_count(0)
    assert await statuses(shop, [one.id for one in handles]) == {Status.CANCELLED}


PHONE: dict[str, Any] = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}


async def test_on_a_phone_a_job_is_discarded_and_a_worker_drained(shop: Shop) -> None:
    shop.mended.clear()
    [dead] = await failed(shop, "by thumb")
    async with shop.app.worker(concurrency=3) as other, looking(shop, f"/jobs/{dead.id}", **PHONE) as page:
        await page.get_by_role("button", name="Discard").tap()
        await expect(page.locator("#sure h2")).to_have_text("Discard this job?")
        await page.locator("#sure").get_by_role("button", name="Discard").tap()
        await expect(page.locator("h1 .status.cancelled")).to_be_visible()
        await expect(page.locator(".about .events")).to_contain_text("discard by local")
        await page.get_by_role("link", name="Workers").tap()
        row = page.locator(f"tr[data-key='{other.id}']")
        await row.get_by_role("button", name="Drain").tap()
        await page.locator("#sure").get_by_role("button", name="Drain").tap()
        await expect(page.locator("#told")).to_contain_text("takes no more jobs")
    [drained] = [one for one in await shop.app.store.audit() if one.key == f"drain:{other.id}"]
    assert (drained.verb, drained.by) == ("drain", "local")


async def test_failures_are_counted_over_time(shop: Shop) -> None:
    shop.mended.clear()
    await failed(shop, "counted", 2)
    async with looking(shop, "/dead") as page:
        chart = page.locator("section[aria-labelledby=over-time]")
        await expect(chart.locator(".key", has_text="fragile")).to_be_visible()
        await page.goto(f"{shop.address}/dead?task=add")
        await expect(page.locator("h1")).to_have_text("Dead letters")
        await expect(chart).to_have_count(0)


async def test_selected_jobs_are_retried_postponed_and_discarded(shop: Shop) -> None:
    shop.mended.clear()
    dead = await failed(shop, "selected", 2)
    ids = [one.id for one in dead]
    async with looking(shop, "/jobs?text=selected&status=failed") as page:
        await expect(page.locator("tr.failed")).to_have_count(2)
        await page.locator("#pick-all").check()
        shop.mended["yes"] = True
        await page.locator("#choice").get_by_role("button", name="Retry").click()
        await sure(page, "Retry 2 jobs")
        await expect(page.locator("#told")).to_contain_text("2 jobs retried")
        await until(lambda: _all(shop, ids, Status.COMPLETED))
        later = await shop.app.tasks["add"].options(delay=600, tags=["later"]).map([(1,), (2,)])
        await page.goto(f"{shop.address}/jobs?tag=later")
        await page.locator("#pick-all").check()
        await page.locator("#choice").get_by_role("button", name="Postpone").click()
        await page.locator("#sure input").fill("7200")
        await sure(page, "Continue")
        await sure(page, "Postpone 2 jobs")
        await expect(page.locator("tr.scheduled").first).to_contain_text("2 h")
        await page.locator("#pick-all").check()
        await page.locator("#choice").get_by_role("button", name="Discard").click()
        await expect(page.locator("#told")).to_contain_text("None of them")  # these have not ended
        await page.locator("#choice").get_by_role("button", name="Cancel").click()
        await sure(page, "Cancel 2 jobs")
        await expect(page.locator("tr.cancelled")).to_have_count(2)
    shop.mended.clear()
    assert await statuses(shop, [one.id for one in later]) == {Status.CANCELLED}


async def _all(shop: Shop, ids: list[UUID], status: Status) -> bool:
    return await statuses(shop, ids) == {status}


async def test_a_queued_job_says_its_place_why_it_waits_and_is_moved(shop: Shop) -> None:
    await shop.app.queues.pause("standing")
    first, second = await shop.app.tasks["add"].options(queue="standing").map([(1,), (2,)])
    async with looking(shop, f"/jobs/{second.id}") as page:
        await expect(page.locator(".place")).to_contain_text("Number 2 in line")
        await expect(page.locator(".explain")).to_contain_text("paused")
        await page.get_by_role("button", name="Move…").click()
        await page.locator("#sure input[name=queue]").fill("default")
        await page.locator("#sure").get_by_role("button", name="Move").click()
        await expect(page.locator("h1 .status.completed")).to_be_visible()
        await expect(page.locator(".about")).to_contain_text("asked for standing")
        await expect(page.locator(".about .events")).to_contain_text("move by local")
    await shop.app.jobs.handle(first.id).cancel()
    await shop.app.queues.reset("standing")


async def test_who_waits_for_whom_is_drawn(shop: Shop) -> None:
    add = shop.app.tasks["add"]
    first = add.options(delay=3600).draft(1)
    second = add.options(after=[first]).draft(2)
    handles = await shop.app.submit_many([first, second])
    async with looking(shop, f"/jobs/{handles[1].id}") as page:
        await expect(page.locator(".graph .node")).to_have_count(2)
        await expect(page.locator(".graph .edge.after")).to_have_count(1)
        await expect(page.locator("h1 .status.waiting")).to_be_visible()
        await page.locator(".graph a").first.focus()
        await page.keyboard.press("Enter")
        await page.wait_for_url(f"**/jobs/{handles[0].id}")
    await shop.app.jobs.handle(handles[0].id).cancel()


async def test_a_worker_says_what_it_offers_has_and_last_did(shop: Shop) -> None:
    handle = await shop.app.tasks["steady"].submit()
    async with (
        shop.app.worker(concurrency=2, queues=["nobodys"], offers={"gpu": "a100"}) as other,
        looking(shop, "/workers") as page,
    ):
        row = page.locator(f"tr[data-key='{other.id}']")
        await expect(row).to_contain_text("gpu=a100")
        await row.locator("a").first.click()
        await expect(page.locator("section[aria-labelledby=serves]")).to_contain_text("nobodys")
        polled = page.locator(".tiles div", has_text="Last poll")
        await expect(polled).to_contain_text("ago")
        await expect(page.locator(".tiles div", has_text="Memory")).to_contain_text("MiB")
        await page.goto(f"{shop.address}/workers/{shop.worker.id}")
        await expect(page.locator(f"tr[data-key='{handle.id}']")).to_be_visible()
    await shop.app.jobs.handle(handle.id).cancel()


async def test_what_failed_of_a_batch_is_retried(shop: Shop) -> None:
    shop.mended.clear()
    async with shop.app.batch() as batch:
        batch.add_many([shop.app.tasks["fragile"].draft("in a batch"), shop.app.tasks["add"].draft(1)])
    async with looking(shop, f"/batches/{batch.id}") as page:
        await expect(page.locator("h1 .status.failed")).to_be_visible()
        shop.mended["yes"] = True
        await page.get_by_role("button", name="Retry failed").click()
        await sure(page, "Retry 1 job")
        await expect(page.locator("h1 .status.completed")).to_be_visible()
        await expect(page.get_by_role("button", name="Retry failed")).to_have_count(0)
    shop.mended.clear()


async def test_everything_that_has_a_name_is_a_jump_away(shop: Shop) -> None:
    async with shop.app.batch() as batch:
        batch.add(shop.app.tasks["add"].options(delay=3600).draft(1))
    [job] = (await shop.app.jobs.list(batch=batch.id)).items
    aims: list[tuple[str, str, Any]] = [
        (str(job.id), f"/jobs/{job.id}", "Control+k"),
        (str(job.id)[-8:], f"/jobs/{job.id}", "/"),
        (str(batch.id), f"/batches/{batch.id}", "/"),
        ("charge", "/tasks/charge", "Meta+k"),
        ("mai", "/queues/mail", "/"),
        (str(shop.worker.id)[-8:], f"/workers/{shop.worker.id}", "/"),
        ("dead lett", "/dead", "/"),
    ]
    async with looking(shop) as page:
        for text, path, key in aims:
            await page.goto(shop.address)
            await page.wait_for_function("document.documentElement.classList.contains('scripted')")
            await page.keyboard.press(key)
            await page.keyboard.type(text)
            await expect(page.locator(f"#found [aria-selected=true][data-go='{path}']")).to_be_visible()
            await page.keyboard.press("Enter")
            await page.wait_for_url(f"**{path}")
    await shop.app.jobs.handle(job.id).cancel()
