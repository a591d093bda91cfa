"""In a real browser, on SQLite and PostgreSQL: every page, every act, and that nothing moves under a reader's hands."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import quote
from uuid import uuid4

import pytest
from playwright.async_api import Page, expect

from headrace.core.schedule.rules import Every
from headrace.core.status import Status
from headrace.engine import WorkerInfo
from tests.dashboard.shop import Shop, failed, looking, shop_app, sure
from tests.hub.serving import serving
from tests.support.apps import url_of
from tests.support.until import until

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.xdist_group("dashboard"),
    pytest.mark.timeout(180),
    pytest.mark.usefixtures("quiet"),
]


async def test_progress_moves_without_a_reload(shop: Shop) -> None:
    handle = await shop.app.tasks["steady"].submit()
    async with looking(shop, f"/jobs/{handle.id}") as page:
        await page.evaluate("window.untouched = true")
        shown = page.locator(".progress progress")
        await expect(shown).to_be_visible()
        before = float(await shown.get_attribute("value") or 0)
        await until(lambda: _grown(page, before))
        assert await page.evaluate("window.untouched"), "the page was loaded again"
        await page.get_by_role("button", name="Cancel").click()
        await sure(page, "Cancel")
        await expect(page.locator("h1 .status.cancelled")).to_be_visible()
        await expect(page.get_by_text("cancel by local")).to_be_visible()
    assert (await handle.refresh()).status is Status.CANCELLED


async def _grown(page: Page, before: float) -> bool:
    return float(await page.locator(".progress progress").get_attribute("value") or 0) > before + 1


async def test_retrying_a_group_of_dead_letters_empties_it(shop: Shop) -> None:
    shop.mended.clear()
    handles = await failed(shop, "the mill stands still", 7)
    async with looking(shop, "/dead") as page:
        group = page.locator("li[data-group]", has_text="the mill stands still")
        await expect(group).to_contain_text("7 jobs")
        shop.mended["yes"] = True
        await group.get_by_role("button", name="Retry group").click()
        await expect(page.locator("#sure h2")).to_have_text("Retry 7 jobs?")
        await sure(page, "Retry 7 jobs")
        await expect(group).to_have_count(0)
    await until(lambda: _all_completed(handles))
    shop.mended.clear()
    for handle in handles:
        history = await shop.app.jobs.history(handle.id)
        assert [(event.verb, event.by) for event in history.events] == [("retry", "local")]


async def _all_completed(handles: list[Any]) -> bool:
    return all([(await handle.refresh()).status is Status.COMPLETED for handle in handles])


async def test_the_keyboard_alone_can_retry_a_job(shop: Shop) -> None:
    [handle] = await failed(shop, "for the keyboard")
    shop.mended["yes"] = True
    async with looking(shop) as page:
        await page.keyboard.press("Control+k")
        await page.keyboard.type(str(handle.id))
        await expect(page.locator("#found [data-go]").first).to_contain_text(str(handle.id))
        await page.keyboard.press("Enter")
        await page.wait_for_url(f"**/jobs/{handle.id}")
        for _ in range(60):
            await page.keyboard.press("Tab")
            if await page.evaluate("document.activeElement.textContent.trim()") == "Retry":
                break
        await page.keyboard.press("Enter")
        await expect(page.locator("#sure")).to_be_visible()
        await page.keyboard.press("Enter")
        await expect(page.locator("h1 .status.completed")).to_be_visible()
    shop.mended.clear()
    assert (await handle.refresh()).status is Status.COMPLETED


async def test_selected_jobs_and_all_that_match_are_acted_on(shop: Shop) -> None:
    handles = await shop.app.tasks["add"].options(delay=3600, tags=["bulk"]).map([(number,) for number in range(5)])
    async with looking(shop, "/jobs?tag=bulk") as page:
        boxes = page.locator('input[name="pick"]')
        await expect(boxes).to_have_count(5)
        await boxes.nth(0).check()
        await boxes.nth(1).check()
        await page.locator("#choice").get_by_role("button", name="Cancel").click()
        await sure(page, "Cancel 2 jobs")
        await expect(page.locator("tr.cancelled")).to_have_count(2)
        await boxes.nth(2).check()
        await page.locator("#matching").check()
        await page.locator("#choice").get_by_role("button", name="Cancel").click()
        await sure(page, "Cancel 3 jobs")
        await expect(page.locator("tr.cancelled")).to_have_count(5)
        await page.locator("#pick-all").check()
        await page.locator("#choice").get_by_role("button", name="Postpone").click()
        await sure(page, "Continue")
        await expect(page.locator("#told")).to_contain_text("None of them")
        await page.locator("#choice").get_by_role("button", name="Rerun").click()
        await sure(page, "Rerun 5 jobs")
        await expect(page.locator("#told")).to_contain_text("5 jobs rerun")
    for handle in handles:
        [rerun] = (await shop.app.jobs.list(rerun_of=handle.id)).items
        assert rerun.tags == ("bulk",)


async def test_a_job_is_postponed_put_in_line_rerun_with_another_payload_and_resolved(shop: Shop) -> None:
    handle = await shop.app.tasks["add"].options(delay=7200).submit(1, 2)
    async with looking(shop, f"/jobs/{handle.id}") as page:
        await page.get_by_role("button", name="Postpone…").click()
        await page.locator("#sure input[name=seconds]").fill("86400")
        await page.locator("#sure").get_by_role("button", name="Postpone").click()
        await expect(page.locator("#told")).to_contain_text("postponed")
        await page.get_by_role("button", name="Priority…").click()
        await page.locator("#sure input[name=priority]").fill("99")
        await page.locator("#sure").get_by_role("button", name="Priority").click()
        await expect(page.locator(".about")).to_contain_text("99 system asked for 50")
        await page.get_by_role("button", name="Run now").click()
        await sure(page, "Run now")
        await expect(page.locator("h1 .status.completed")).to_be_visible()
        await expect(page.locator("section", has_text="Log").last).to_contain_text("adding 1 and 2")
        await page.get_by_role("button", name="Rerun…").click()
        await page.locator("#sure textarea").fill('{"a": "no number"}')
        await page.locator("#sure").get_by_role("button", name="Rerun").click()
        await expect(page.locator("#sure .wrong")).to_contain_text("Expected `int`")
        assert [one for one in shop.heard if "422" not in one] == []
        shop.heard.clear()  # the browser tells of every refusal
        await page.locator("#sure textarea").fill('{"a": 40, "b": 2}')
        await page.locator("#sure").get_by_role("button", name="Rerun").click()
        await page.wait_for_url(lambda url: str(handle.id) not in url)
        await expect(page.locator("h1 .status.completed")).to_be_visible()
        await expect(page.locator("section[aria-labelledby=result]")).to_contain_text("42")
    job = await handle.refresh()
    assert [event.verb for event in (await shop.app.jobs.history(job.id)).events][:3] == [
        "postpone",
        "reprioritise",
        "run_now",
    ]
    shop.mended.clear()
    [dead] = await failed(shop, "to be resolved")
    async with looking(shop, f"/jobs/{dead.id}") as page:
        await page.get_by_role("button", name="Resolve…").click()
        await page.locator("#sure textarea").fill('"by hand"')
        await page.locator("#sure").get_by_role("button", name="Resolve").click()
        await expect(page.locator("h1 .status.completed")).to_be_visible()
    assert (await dead.refresh()).result == "by hand"


async def test_a_job_shows_its_family_steps_items_and_attempts(shop: Shop) -> None:
    parent = await shop.app.tasks["family"].submit(3)
    charge = await shop.app.tasks["charge"].submit(1, 50)
    stream = await shop.app.tasks["lines"].submit(3)
    for handle in (parent, charge, stream):
        async for _ in handle.watch():
            pass
    async with looking(shop, f"/jobs/{parent.id}") as page:
        await expect(page.locator(".graph .node")).to_have_count(4)
        await expect(page.locator(".graph .edge.child")).to_have_count(3)
        await expect(page.locator(".line-of-time > svg rect.running")).to_have_count(1)
        await page.goto(f"{shop.address}/jobs/{charge.id}")
        await expect(page.locator("section[aria-labelledby=steps]")).to_contain_text("receipt 50")
        await page.goto(f"{shop.address}/jobs/{stream.id}")
        await expect(page.locator(".items li")).to_have_count(3)


async def test_the_end_of_a_long_log_is_shown_and_its_beginning_is_a_link_away(shop: Shop) -> None:
    handle = await shop.app.tasks["chatty"].submit(900)
    async for _ in handle.watch():
        pass
    async with looking(shop, f"/jobs/{handle.id}") as page:
        lines = page.locator(".log > div")
        await expect(lines).to_have_count(500)
        await expect(lines.last).to_contain_text("line 899")
        await expect(lines.first).to_contain_text("line 400")
        await page.get_by_role("link", name="Earlier lines").click()
        await expect(lines.first).to_contain_text("line 0")
        await page.get_by_role("link", name="Later lines").click()
        await expect(lines.first).to_contain_text("line 500")
        await expect(lines).to_have_count(400)
        await expect(page.get_by_role("link", name="Later lines")).to_have_count(0)


async def test_reruns_are_shown_as_a_chain_from_everywhere_in_it(shop: Shop) -> None:
    made = [await shop.app.tasks["add"].submit(1)]
    for number in (0, 1, 0):  # the second is a rerun of the first, the third of the second, the fourth of the first
        async for _ in made[number].watch():
            pass
        made.append(await shop.app.jobs.handle(made[number].id).rerun())
    chain = [str(one.id)[-8:] for one in made]
    async with looking(shop) as page:
        for number, one in enumerate(made):
            await page.goto(f"{shop.address}/jobs/{one.id}")
            assert await page.locator(".chain .id").all_inner_texts() == chain
            await expect(page.locator(".chain li").nth(number)).to_contain_text("this one")


async def test_a_task_is_submitted_from_a_form_made_of_its_schema(shop: Shop) -> None:
    async with looking(shop, "/tasks/add") as page:
        form = page.locator("form.submit")
        assert await form.locator("[name='payload.b']").input_value() == "1"
        await form.locator("[name='payload.b']").fill("2")
        await expect(form.locator(".wrong[data-for=a]")).to_contain_text("missing required field")
        await form.locator("[name='payload.a']").fill("40")
        await expect(form.locator(".wrong[data-for=a]")).to_be_hidden()
        await form.get_by_role("button", name="Submit").click()
        await page.wait_for_url("**/jobs/*")
        await expect(page.locator("section[aria-labelledby=result]")).to_contain_text("42")
        await expect(page.locator(".about .events")).to_contain_text("submit by local")
        job = page.url.rpartition("/")[2]
        await page.goto(f"{shop.address}/tasks/add")
        await expect(page.locator(".events")).to_contain_text(job)


async def test_a_batch_is_cancelled_and_a_worker_drained(shop: Shop) -> None:
    add = shop.app.tasks["add"]
    async with shop.app.batch() as batch:
        batch.add_many(add.options(delay=3600).draft(number) for number in range(4))
    async with looking(shop, f"/batches/{batch.id}") as page:
        await page.get_by_role("button", name="Cancel").click()
        await sure(page, "Cancel")
        await expect(page.locator("h1 .status.cancelled")).to_be_visible()
        await expect(page.get_by_text("by local")).to_be_visible()
        async with shop.app.worker(concurrency=3) as other:
            await until(lambda: _is_known(shop, other.id))
            await page.goto(f"{shop.address}/workers/{other.id}")
            await page.get_by_role("button", name="Drain").click()
            await sure(page, "Drain")
            await expect(page.locator("#told")).to_contain_text("takes no more jobs")


async def _is_known(shop: Shop, worker: Any) -> bool:
    return any(row.info.id == worker for row in await shop.app.workers.list())


async def test_new_jobs_arrive_without_a_jump(shop: Shop) -> None:
    add = shop.app.tasks["add"].options(delay=3600, tags=["calm"])
    await add.map([(number,) for number in range(3)])
    async with looking(shop, "/jobs?tag=calm") as page:
        rows = page.locator("table.jobs tbody tr")
        await page.mouse.move(640, 5)
        await expect(rows).to_have_count(3)
        await add.submit(3)
        await expect(rows).to_have_count(4)
        await page.locator('input[name="pick"]').first.check()
        top = await rows.first.get_attribute("data-key")
        await add.map([(4,), (5,)])
        await expect(page.locator("#fresh")).to_have_text("Show 2 new jobs")
        assert await rows.first.get_attribute("data-key") == top, "what somebody works with stays where it is"
        await page.locator("#fresh").click()
        await expect(rows).to_have_count(6)
        assert await page.locator('input[name="pick"]:checked').get_attribute("value") == top


async def test_filters_stand_in_the_address_and_pages_work_without_a_script(shop: Shop) -> None:
    await failed(shop, "needle in a haystack")
    async with looking(shop, "/jobs", java_script_enabled=False) as page:
        await page.locator("input[name=text]").fill("needle in")
        await page.locator("input[name=status][value=failed]").check()
        await page.get_by_role("button", name="Apply").click()
        assert "status=failed" in page.url
        assert "text=needle+in" in page.url
        await expect(page.locator("tr.failed")).to_have_count(1)
        await expect(page.locator(".note").first).to_contain_text("newest 10,000")
        assert await page.locator("button.js:visible").count() == 0, "what needs the script is not there without it"
        await page.locator("tr.failed td.name a").click()
        await expect(page.locator(".trace")).to_contain_text("needle in a haystack")
        await expect(page.locator("time").first).to_contain_text("UTC")


async def _is_found(shop: Shop, text: str) -> bool:
    return bool((await shop.served.client.get(f"/find?q={text}", headers={"accept": "application/json"})).json())


HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>'\"`{{7*7}}"


async def test_hostile_values_stay_text(shop: Shop) -> None:
    app = shop.app
    handle = await app.submit(
        "fragile", {"why": HOSTILE}, tags=[HOSTILE], customer=HOSTILE, metadata={HOSTILE: HOSTILE}, queue=HOSTILE[:60]
    )
    async for _ in handle.watch():
        pass
    resolved = await app.submit("fragile", {"why": HOSTILE}, delay=3600)
    await app.jobs.handle(resolved.id).resolve(result=HOSTILE, by=HOSTILE[:50])
    await app.queues.pause(HOSTILE[:60], by=HOSTILE[:50])
    async with app.batch() as batch:
        batch.add(app.tasks["add"].options(customer=HOSTILE, delay=3600).draft(1))
    paths = [
        *("/", "/jobs", "/dead", "/queues", f"/jobs/{handle.id}", f"/jobs/{resolved.id}", f"/batches/{batch.id}"),
        *("/batches", "/limits", "/tasks", "/tasks/fragile"),
    ]
    async with looking(shop, "/") as page:
        for path in paths:
            await page.goto(shop.address + path)
            await page.wait_for_function("document.documentElement.classList.contains('scripted')")
            assert await page.locator("script").count() == 2
            assert await page.locator("main img").count() == 0
        await page.goto(f"{shop.address}/jobs/{handle.id}")
        await expect(page.locator(".failure .why")).to_contain_text(HOSTILE)
        await until(lambda: _is_found(shop, "script"))
        await page.keyboard.press("Control+k")
        await page.keyboard.type("script")
        await expect(page.locator("#found li").first).to_contain_text("<script>")
    await app.queues.resume(HOSTILE[:60])


async def test_what_handlers_workers_and_schedules_say_stays_text(shop: Shop) -> None:
    app = shop.app
    handle = await app.submit("noisy", {"what": HOSTILE})
    await app.schedules.set(HOSTILE[:60], Every(minutes=5), app.tasks["fragile"].draft(HOSTILE), by=HOSTILE[:50])
    now, id = app.host.clock.now(), uuid4()
    info = WorkerInfo(
        id=id,
        host=HOSTILE,
        pid=1,
        started_at=now,
        concurrency=1,
        tasks=("add",),
        version=HOSTILE,
        lease=3600.0,
        offers={HOSTILE: HOSTILE},
        name=HOSTILE,
    )
    await app.session.engine.workers.register(info, now)
    paths = ["/", "/jobs?status=running", "/workers", f"/workers/{id}", "/schedules", "/tasks/fragile"]
    paths.append(f"/schedules/{quote(HOSTILE[:60], safe='')}")
    async with looking(shop, f"/jobs/{handle.id}") as page:
        for part in (".log", ".items", ".progress .message"):
            await expect(page.locator(part).first).to_contain_text("<script>alert(1)</script>")
        await expect(page.locator("#steps + table")).to_contain_text("<script>alert(1)</script>")
        for path in paths:
            answer = await page.goto(shop.address + path)
            assert answer is not None
            assert answer.status == 200, path
            await page.wait_for_function("document.documentElement.classList.contains('scripted')")
            assert await page.locator("script").count() == 2, path
            assert await page.locator("main img").count() == 0, path
    await app.schedules.delete(HOSTILE[:60])
    await app.session.engine.workers.retire(id)
    await app.jobs.handle(handle.id).cancel()


async def test_what_is_exported_can_be_read(shop: Shop) -> None:
    await shop.app.tasks["add"].options(tags=["export"], delay=3600).map([(1,), (2,)])
    client = shop.served.client
    found = json.loads((await client.get("/jobs.json?tag=export")).text)
    assert sorted(job["payload"]["a"] for job in found) == [1, 2]
    lines = (await client.get("/jobs.csv?tag=export")).text.splitlines()
    assert lines[0].startswith("id,task,queue,status")
    assert len(lines) == 3


async def test_a_key_that_may_only_read_sees_no_act_and_is_refused_a_forged_one(shop: Shop, tmp_path: Path) -> None:
    """On a store of its own: as soon as there is a key, everybody needs one."""
    app = shop_app(url_of("postgres" if "postgres" in shop.app.settings.url else "sqlite", tmp_path))
    async with serving(app) as served:
        reader = await app.keys.create("reader", ["read"])
        actor = await app.keys.create("actor", ["read", "act"])
        handle = await app.tasks["add"].options(delay=3600).submit(1)
        await until(lambda: served.hub.authenticator.keyed)
        keyed = Shop(app, served, shop.worker, shop.browser, {}, shop.heard)
        async with looking(keyed, f"/jobs/{handle.id}") as page:
            assert "/login" in page.url
            await page.get_by_label("Your key").fill(reader.text)
            await page.get_by_role("button", name="Log in").click()
            await page.wait_for_url(f"**/jobs/{handle.id}")
            await expect(page.locator(".who")).to_contain_text("read only")
            assert await page.locator("main button:visible").all_inner_texts() == ["Copy"]
            status = await page.evaluate(
                """async (id) => (await fetch("/act", {
                  method: "POST",
                  headers: {
                    "content-type": "application/json",
                    "x-headrace-token": document.querySelector("meta[name=headrace-token]").content,
                  },
                  body: JSON.stringify({act: "job", verb: "cancel", id}),
                })).status""",
                str(handle.id),
            )
            assert status == 403
            assert [one for one in shop.heard if "403" not in one] == []
            shop.heard.clear()
            await page.get_by_role("button", name="Log out").click()
            await page.wait_for_url("**/login")
            await page.get_by_label("Your key").fill(actor.text)
            await page.get_by_role("button", name="Log in").click()
            await page.goto(f"{served.address}/jobs/{handle.id}")
            await page.get_by_role("button", name="Cancel").click()
            await sure(page, "Cancel")
            await expect(page.locator("h1 .status.cancelled")).to_be_visible()
            await expect(page.locator(".events")).to_contain_text("by actor")
        assert (await handle.refresh()).status is Status.CANCELLED
